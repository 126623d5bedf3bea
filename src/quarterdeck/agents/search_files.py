"""The tool `search_files`: lines of files in the workspace or of a skill that match a regular expression."""

import asyncio
import json
import os
import re
import sys
from asyncio.subprocess import DEVNULL, PIPE
from contextlib import suppress
from pathlib import Path
from typing import Any

from quarterdeck.agents import search_process
from quarterdeck.agents.model import ToolSpec
from quarterdeck.agents.sandboxed_tool import sandboxed_tool
from quarterdeck.agents.tools import CallContext, Effect, Refusal, Tool, parameters, text_argument
from quarterdeck.agents.workspace.beneath import descriptor, open_beneath
from quarterdeck.agents.workspace.place import Place, clean_path
from quarterdeck.agents.workspace.scan import RESERVED

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
    _check(pattern)

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
        found = await _run(order, start)
    return found.decode("utf-8", "replace").rstrip("\n") or "Nothing matches."


def _check(pattern: str) -> None:
    try:
        if len(pattern) > _MAX_PATTERN:
            raise Refusal(f"the pattern is longer than {_MAX_PATTERN} characters.")
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as fault:
        raise Refusal(f"this is not a regular expression: {fault}.") from fault


async def _run(order: dict[str, Any], start: int) -> bytes:
    program = Path(search_process.__file__)
    arguments = [sys.executable, "-I", "-S", str(program)]
    # Nothing of the worker's environment.
    process = await asyncio.create_subprocess_exec(
        *arguments, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, pass_fds=(start,), env={}
    )
    try:
        async with asyncio.timeout(_SECONDS):
            found, _ = await process.communicate(json.dumps(order).encode())
    except TimeoutError:
        raise Refusal(f"the search took more than {_SECONDS:g} s. Use a simpler pattern or a smaller folder.") from None
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if process.returncode != 0:
        raise RuntimeError(f"the search ended with {process.returncode}")
    return found
