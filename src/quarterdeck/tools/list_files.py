"""The tool `list_files`: the files of the workspace or of a skill, with their sizes."""

import os
import stat
from collections import Counter
from typing import Any

from quarterdeck.core.text_types import storable
from quarterdeck.sandbox.beneath import descriptor, open_folder
from quarterdeck.sandbox.run_folders import Place, clean_path
from quarterdeck.sandbox.scan import RESERVED
from quarterdeck.tools.model import ToolSpec
from quarterdeck.tools.sandboxed_tool import sandboxed_tool
from quarterdeck.tools.tool import CallContext, Effect, Tool, bounded_text, parameters, text_argument

LIST_FILES = "list_files"
# Further ones are counted by folder. A skill has at most ten thousand files, a workspace twenty thousand by default.
_MAX_FILES = 100_000


def list_files(place: Place | None) -> Tool:
    path = {"type": "string", "description": "A folder, relative to the workspace. By default the workspace itself."}
    description = "List the files in a folder of the workspace and in the folders below it, with their sizes."
    spec = ToolSpec(LIST_FILES, description, parameters({"path": path}, ["path"]))
    return sandboxed_tool(spec, Effect.READS, place, _list)


async def _list(place: Place, arguments: dict[str, Any], context: CallContext) -> str:
    path = clean_path(text_argument(arguments, "path", ""))
    skills = [f"{RESERVED}/{name}/" for name in place.skills.names]
    if path == RESERVED:
        return "\n".join(skills) or "There are no skills."
    found = await place.read(path, _find)
    lines = [*(_line(path, size) for path, size in sorted(found.items())), *([] if path else skills)]
    if not lines:
        return "The folder is empty."
    text = "\n".join(lines)
    if len(text.encode()) <= place.result_bytes:
        return text
    data = "\n".join(_summary(found)).encode()
    return bounded_text(data, len(data), place.result_bytes)


def _find(folder: int, path: str) -> dict[str, int | None]:
    """Paths relative to `path`, with the sizes of files. None: a link, or an empty folder, which ends with a slash."""
    found: dict[str, int | None] = {}
    with descriptor(open_folder(folder, path)) as start:
        waiting = [""]
        while waiting and len(found) < _MAX_FILES:
            below = waiting.pop()
            # One open folder at a time. The path has no links in it: they are not entered.
            with descriptor(open_folder(start, below)) as opened, os.scandir(opened) as entries:
                names = 0
                for entry in entries:
                    name = f"{below}/{entry.name}" if below else entry.name
                    status = entry.stat(follow_symlinks=False)
                    names += 1
                    if stat.S_ISDIR(status.st_mode):
                        # The mount point of the skills, which an earlier command has left.
                        if name != RESERVED or path:
                            waiting.append(name)
                    else:
                        found[name] = status.st_size if stat.S_ISREG(status.st_mode) else None
                if names == 0 and below:
                    found[f"{below}/"] = None
    return found


def _line(path: str, size: int | None) -> str:
    shown = storable(path).replace("\n", "\\n")
    return shown if size is None else f"{shown} ({size} bytes)"


def _summary(found: dict[str, int | None]) -> list[str]:
    """The files of the first level, and the number of files in each folder."""
    folders = Counter(path.partition("/")[0] for path in found if "/" in path)
    files = [_line(path, size) for path, size in found.items() if "/" not in path]
    return sorted([*files, *(f"{_line(name, None)}/ ({count} files)" for name, count in folders.items())])
