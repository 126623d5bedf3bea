"""The tool `write_file`: creates or replaces a text file of the workspace."""

import os
import stat
from contextlib import suppress
from typing import Any

from quarterdeck.blobs.model import PIECE_BYTES
from quarterdeck.sandbox.beneath import descriptor, make_folders, open_file, replace_file, reported
from quarterdeck.sandbox.folders import Folder
from quarterdeck.sandbox.model import Refusal
from quarterdeck.sandbox.run_folders import Place, writable_path
from quarterdeck.skills.diff import unified_diff
from quarterdeck.skills.model import shown
from quarterdeck.tools.model import ToolSpec
from quarterdeck.tools.sandboxed_tool import sandboxed_tool
from quarterdeck.tools.tool import CallContext, Effect, Output, Tool, parameters, text_argument

WRITE_FILE = "write_file"
# Longest sum of both texts. Nobody would read a longer diff.
_DIFF_BYTES = 512 * 1024


def write_file(place: Place | None) -> Tool:
    properties = {
        "path": {"type": "string", "description": "Relative to the workspace. Missing folders are created."},
        "content": {"type": "string", "description": "The whole content of the file."},
    }
    spec = ToolSpec(WRITE_FILE, "Create a text file in the workspace, or replace it.", parameters(properties))
    return sandboxed_tool(spec, Effect.WRITES, place, _write)


async def _write(place: Place, arguments: dict[str, Any], context: CallContext) -> Output:
    path = writable_path(text_argument(arguments, "path"))
    content = encoded(text_argument(arguments, "content"))

    def write(folder: Folder) -> str:
        before = put_file(folder, path, content)
        if before is None:
            return f'Created "{shown(path)}" ({len(content)} bytes).'
        text = f'Replaced "{shown(path)}" ({len(content)} bytes).'
        diff = short_diff(path, before, content)
        return f"{text}\n{diff}" if diff else text

    text, changes, notice = await place.workspace.write(write)
    return Output(text + notice, changes)


def encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as fault:
        raise Refusal("the text has characters that UTF-8 cannot represent.") from fault


def put_file(folder: Folder, path: str, content: bytes) -> bytes | None:
    """The content that was replaced, as far as a diff needs it. None: there was no file."""
    above, _, name = path.rpartition("/")
    with reported(shown(path)):
        before = _before(folder.descriptor, path)
        with descriptor(make_folders(folder.descriptor, above, folder.owner)) as parent:
            with suppress(FileNotFoundError):
                if stat.S_ISLNK(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
                    target = shown(os.readlink(name, dir_fd=parent))
                    raise Refusal(f'"{shown(path)}" is a link to "{target}". Write to its target.')
            replace_file(parent, name, [content], folder.owner)
        return before


def _before(folder: int, path: str) -> bytes | None:
    try:
        with os.fdopen(open_file(folder, path), "rb") as file:
            return file.read(_DIFF_BYTES + PIECE_BYTES)
    except FileNotFoundError:
        return None


def short_diff(path: str, before: bytes, after: bytes) -> str:
    """Empty if one of them is not text, or too long: it would keep the interpreter lock for a tenth of a second."""
    if len(before) + len(after) > _DIFF_BYTES or b"\0" in before:
        return ""
    try:
        return unified_diff(path, before.decode(), after.decode())
    except UnicodeDecodeError:
        return ""
