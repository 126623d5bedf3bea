"""The tool `search_files`: lines of files in the workspace or of a skill that match a regular expression."""

import os
from typing import Any

from quarterdeck.core.limited_process import ProcessFailed, run_limited
from quarterdeck.sandbox.beneath import descriptor, open_beneath
from quarterdeck.sandbox.model import Refusal
from quarterdeck.sandbox.run_folders import Place, clean_path
from quarterdeck.sandbox.scan import RESERVED
from quarterdeck.tools import search_process
from quarterdeck.tools.model import ToolSpec
from quarterdeck.tools.tool import CallContext, Effect, Tool, parameters, sandboxed_tool, text_argument

SEARCH_FILES = "search_files"
_SECONDS = 20.0
_MAX_PATTERN = 10_000


def search_files(place: Place | None) -> Tool:
    properties = {
        "pattern": {
            "type": "string",
            "description": "A regular expression, as Python has them. Searched line by line.",
        },
        "path": {"type": "string", "description": "A folder or file. By default the whole workspace, without skills."},
    }
    description = "Search text files in the workspace. The result has a line `path:number:line` for each match."
    spec = ToolSpec(SEARCH_FILES, description, parameters(properties, ["path"]))
    return sandboxed_tool(spec, Effect.READS, place, _search)


async def _search(place: Place, arguments: dict[str, Any], context: CallContext) -> str:
    pattern, path = text_argument(arguments, "pattern"), clean_path(text_argument(arguments, "path", ""))
    if len(pattern) > _MAX_PATTERN:
        raise Refusal(f"the pattern is longer than {_MAX_PATTERN} characters.")

    def open_start(folder: int, below: str) -> int:
        return open_beneath(folder, below, os.O_RDONLY | os.O_NONBLOCK)

    with descriptor(await place.read(path, open_start)) as start:
        order = {
            "pattern": pattern,
            "descriptor": start,
            "path": path,
            "prefix": f"{path}/" if path else "",
            "skipped": None if path else RESERVED,
            "max_bytes": place.result_bytes,
        }
        try:
            found = await run_limited(search_process, order, _SECONDS, [start])
        except TimeoutError:
            raise Refusal(
                f"the search took more than {_SECONDS:g} s. Use a simpler pattern or a smaller folder."
            ) from None
        except ProcessFailed as fault:
            if fault.exit_code != search_process.INVALID_PATTERN:
                raise
            raise Refusal(f"this is not a regular expression: {fault.output.decode()}.") from None
    return found.decode("utf-8", "replace").rstrip("\n") or "Nothing matches."
