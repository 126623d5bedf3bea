"""Links of a workspace. Pure functions, no I/O."""

from collections import deque
from collections.abc import Mapping

# The limit of Linux.
_LINKS = 40
# More than a path of 1,024 bytes needs. Links with long targets could keep a process busy otherwise.
_PARTS = 2_000


def follow_links(path: str, links: Mapping[str, str]) -> str | None:
    """The path without links, as the kernel would find it. `links`: the targets of all links, by path. None: it leaves
    the workspace, or it has too many links or parts, such as links in a circle."""
    followed = 0
    found: list[str] = []
    parts = deque(path.split("/"))
    for _ in range(_PARTS):
        if not parts:
            return "/".join(found)
        part = parts.popleft()
        if part == "..":
            if not found:
                return None
            found.pop()
        elif part not in ("", "."):
            found.append(part)
        target = links.get("/".join(found))
        if target is not None:
            followed += 1
            if followed > _LINKS or target.startswith("/"):
                return None
            found.pop()
            parts.extendleft(reversed(target.split("/")))
    return None
