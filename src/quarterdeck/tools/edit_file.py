"""The tool `edit_file`: replaces a part of a text file of the workspace. The result is a diff."""

import os
from typing import Any

from quarterdeck.sandbox.beneath import open_file, reported
from quarterdeck.sandbox.folders import Folder
from quarterdeck.sandbox.model import Refusal
from quarterdeck.sandbox.run_folders import Place, writable_path
from quarterdeck.skills.model import shown
from quarterdeck.tools.model import ToolSpec
from quarterdeck.tools.sandboxed_tool import sandboxed_tool
from quarterdeck.tools.tool import CallContext, Effect, Output, Tool, parameters, text_argument
from quarterdeck.tools.write_file import encoded, put_file, short_diff

EDIT_FILE = "edit_file"
# Larger files are data. Commands can change them.
_MAX_BYTES = 4 * 1024 * 1024


def edit_file(place: Place | None) -> Tool:
    properties = {
        "path": {"type": "string", "description": "Relative to the workspace."},
        "old": {"type": "string", "description": "The text to replace. It must occur exactly once."},
        "new": {"type": "string", "description": "The text in its place."},
    }
    description = "Replace one part of a text file in the workspace. The result is a diff."
    return sandboxed_tool(ToolSpec(EDIT_FILE, description, parameters(properties)), Effect.WRITES, place, _edit)


async def _edit(place: Place, arguments: dict[str, Any], context: CallContext) -> Output:
    path = writable_path(text_argument(arguments, "path"))
    old, new = text_argument(arguments, "old"), text_argument(arguments, "new")
    encoded(new)
    if not old:
        raise Refusal('the argument "old" must not be empty.')

    def edit(folder: Folder) -> str:
        before = _read(folder.descriptor, path)
        count = before.count(old)
        if count != 1:
            advice = "Read the file again." if count == 0 else "Add lines around it that make it unique."
            raise Refusal(f'the text occurs {count} times in "{shown(path)}", not once. {advice}')
        after = before.replace(old, new)
        if after == before:
            return "The file has this text already."
        content = after.encode()
        put_file(folder, path, content)
        return short_diff(path, before.encode(), content) or f'Changed "{shown(path)}" ({len(content)} bytes).'

    text, changes, notice = await place.workspace.write(edit)
    return Output(text + notice, changes)


def _read(folder: int, path: str) -> str:
    with reported(shown(path)), os.fdopen(open_file(folder, path), "rb") as file:
        content = file.read(_MAX_BYTES + 1)
    if len(content) > _MAX_BYTES:
        raise Refusal(f'"{shown(path)}" has more than {_MAX_BYTES} bytes. Change it with a command.')
    try:
        return content.decode()
    except UnicodeDecodeError as fault:
        raise Refusal(f'"{shown(path)}" is not a text file.') from fault
