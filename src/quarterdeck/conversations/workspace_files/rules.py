"""Links of a workspace, and media types. Pure functions, no I/O."""

from collections import deque
from collections.abc import Mapping
from mimetypes import MimeTypes

# The limit of Linux.
_LINKS = 40
# More than a path of 1,024 bytes needs. Links with long targets could keep a process busy otherwise.
_PARTS = 2_000
_BYTES, _GZIP = "application/octet-stream", "application/gzip"
# Without the lists of the host, so that every server answers the same.
_TYPES = MimeTypes()
# Python 3.11 does not know it.
_TYPES.add_type("text/markdown", ".md")


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


def media_type(path: str) -> str:
    """By the name. The content is untrusted, so a response with it must also be an attachment."""
    found, encoding = _TYPES.guess_type(path.rpartition("/")[2])
    if encoding is not None:
        return _GZIP if encoding == "gzip" else _BYTES
    return found or _BYTES
