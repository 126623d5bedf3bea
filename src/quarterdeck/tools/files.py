"""The tools for files of the session and of skills: reading, writing, editing, listing and searching."""

import os
import stat
from collections import Counter
from contextlib import suppress
from typing import IO, Any

import puremagic
from puremagic import PureError

from quarterdeck.blobs.model import PIECE_BYTES
from quarterdeck.core.helper_process import ProcessFailed, run_helper
from quarterdeck.core.text_types import storable
from quarterdeck.sandbox.adapter import SANDBOX_FOLDER
from quarterdeck.sandbox.beneath import (
    descriptor,
    make_folders,
    open_beneath,
    open_file,
    open_folder,
    replace_file,
    reported,
)
from quarterdeck.sandbox.folders import Folder
from quarterdeck.sandbox.model import Refusal
from quarterdeck.sandbox.run_folders import RunSandbox, clean_path, writable_path
from quarterdeck.sandbox.scan import RESERVED
from quarterdeck.skills.diff import unified_diff
from quarterdeck.skills.model import shown
from quarterdeck.tools import search_process
from quarterdeck.tools.model import BuiltIn, ToolSpec
from quarterdeck.tools.tool import (
    CallContext,
    Effect,
    Output,
    Tool,
    bounded_text,
    count_argument,
    parameters,
    sandboxed_tool,
    text_argument,
)

_SNIFFED_BYTES = 8192


def read_file(sandbox: RunSandbox | None) -> Tool:
    properties = {
        "path": {"type": "string", "description": f"Relative to {SANDBOX_FOLDER}."},
        "offset": {"type": "integer", "minimum": 1, "description": "The first line to read. By default 1."},
        "limit": {"type": "integer", "minimum": 1, "description": "How many lines. By default as many as fit."},
    }
    spec = ToolSpec(BuiltIn.READ_FILE, "Read a text file in the sandbox.", parameters(properties, ["offset", "limit"]))
    return sandboxed_tool(spec, Effect.READS, sandbox, _read)


async def _read(sandbox: RunSandbox, arguments: dict[str, Any], context: CallContext) -> str:
    path = clean_path(text_argument(arguments, "path"))
    offset, limit = count_argument(arguments, "offset") or 1, count_argument(arguments, "limit")

    def read(folder: int, below: str) -> str:
        with os.fdopen(open_file(folder, below), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            head = file.read(_SNIFFED_BYTES)
            if not _is_text(head):
                return f"This is a binary file of {size} bytes{_kind(head)}; only text can be read."
            file.seek(0)
            return _lines(file, size, offset, limit, sandbox.result_bytes)

    return await sandbox.read(path, read)


def _lines(file: IO[bytes], size: int, offset: int, limit: int | None, max_bytes: int) -> str:
    if not _skip_lines(file, offset - 1):
        return f"[The file has less than {offset} lines.]"
    start = file.tell()
    data = file.read(max_bytes + 1)
    kept = data[:max_bytes]
    if limit is not None and kept.count(b"\n") >= limit:
        kept = b"\n".join(kept.split(b"\n", limit)[:limit]) + b"\n"
    # PostgreSQL cannot store U+0000 in text.
    text = kept.decode("utf-8", "replace").replace("\0", "\ufffd")
    if start == 0 and len(kept) == size:
        return text
    last = offset + kept.count(b"\n") - (1 if kept.endswith(b"\n") else 0)
    if start + len(kept) >= size:
        return f"{text}\n[Lines {offset} to {last}, the end of the file.]"
    if kept.endswith(b"\n"):
        return f"{text}[Lines {offset} to {last} of {size} bytes. Continue with offset {last + 1}.]"
    return f"{text}\n[Cut in line {last}, after {start + len(kept)} of {size} bytes.]"


def _skip_lines(file: IO[bytes], count: int) -> bool:
    """False: there are not so many lines."""
    while count > 0:
        at = file.tell()
        piece = file.read(PIECE_BYTES)
        if not piece:
            return False
        found = piece.count(b"\n")
        if found < count:
            count -= found
            continue
        end = 0
        for _ in range(count):
            end = piece.index(b"\n", end) + 1
        file.seek(at + end)
        return True
    return True


def _is_text(head: bytes) -> bool:
    if b"\0" in head:
        return False
    try:
        head.decode()
    except UnicodeDecodeError as fault:
        # The end may be in the middle of a character.
        return fault.start >= _SNIFFED_BYTES - 3
    return True


def _kind(head: bytes) -> str:
    try:
        return f" ({puremagic.from_string(head, mime=True)})"
    except PureError:
        return ""


# The tool `write_file`: creates or replaces a text file of the session.

# Longest sum of both texts. Nobody would read a longer diff.
_DIFF_BYTES = 512 * 1024


def write_file(sandbox: RunSandbox | None) -> Tool:
    properties = {
        "path": {"type": "string", "description": f"Relative to {SANDBOX_FOLDER}. Missing folders are created."},
        "content": {"type": "string", "description": "The whole content of the file."},
    }
    spec = ToolSpec(BuiltIn.WRITE_FILE, "Create a text file in the sandbox, or replace it.", parameters(properties))
    return sandboxed_tool(spec, Effect.WRITES, sandbox, _write)


async def _write(sandbox: RunSandbox, arguments: dict[str, Any], context: CallContext) -> Output:
    path = writable_path(text_argument(arguments, "path"))
    content = encoded(text_argument(arguments, "content"))

    def write(folder: Folder) -> str:
        before = put_file(folder, path, content)
        if before is None:
            return f'Created "{shown(path)}" ({len(content)} bytes).'
        text = f'Replaced "{shown(path)}" ({len(content)} bytes).'
        diff = short_diff(path, before, content)
        return f"{text}\n{diff}" if diff else text

    text, changes, notice = await sandbox.session_folder.write(write)
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


# The tool `edit_file`: replaces a part of a text file of the session. The result is a diff.

# Larger files are data. Commands can change them.
_MAX_BYTES = 4 * 1024 * 1024


def edit_file(sandbox: RunSandbox | None) -> Tool:
    properties = {
        "path": {"type": "string", "description": f"Relative to {SANDBOX_FOLDER}."},
        "old": {"type": "string", "description": "The text to replace. It must occur exactly once."},
        "new": {"type": "string", "description": "The text in its place."},
    }
    description = "Replace one part of a text file in the sandbox. The result is a diff."
    return sandboxed_tool(
        ToolSpec(BuiltIn.EDIT_FILE, description, parameters(properties)), Effect.WRITES, sandbox, _edit
    )


async def _edit(sandbox: RunSandbox, arguments: dict[str, Any], context: CallContext) -> Output:
    path = writable_path(text_argument(arguments, "path"))
    old, new = text_argument(arguments, "old"), text_argument(arguments, "new")
    encoded(new)
    if not old:
        raise Refusal('the argument "old" must not be empty.')

    def edit(folder: Folder) -> str:
        before = _edit_file_read(folder.descriptor, path)
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

    text, changes, notice = await sandbox.session_folder.write(edit)
    return Output(text + notice, changes)


def _edit_file_read(folder: int, path: str) -> str:
    with reported(shown(path)), os.fdopen(open_file(folder, path), "rb") as file:
        content = file.read(_MAX_BYTES + 1)
    if len(content) > _MAX_BYTES:
        raise Refusal(f'"{shown(path)}" has more than {_MAX_BYTES} bytes. Change it with a command.')
    try:
        return content.decode()
    except UnicodeDecodeError as fault:
        raise Refusal(f'"{shown(path)}" is not a text file.') from fault


# The tool `list_files`: the files of the session or of a skill, with their sizes.

# Further ones are counted by folder. A skill has at most ten thousand files, a session twenty thousand by default.
_MAX_FILES = 100_000


def list_files(sandbox: RunSandbox | None) -> Tool:
    path = {"type": "string", "description": f"A folder, relative to {SANDBOX_FOLDER}, the default."}
    description = "List the files in a folder of the sandbox and in the folders below it, with their sizes."
    spec = ToolSpec(BuiltIn.LIST_FILES, description, parameters({"path": path}, ["path"]))
    return sandboxed_tool(spec, Effect.READS, sandbox, _list)


async def _list(sandbox: RunSandbox, arguments: dict[str, Any], context: CallContext) -> str:
    path = clean_path(text_argument(arguments, "path", ""))
    skills = [f"{RESERVED}/{name}/" for name in sandbox.skills.names]
    if path == RESERVED:
        return "\n".join(skills) or "There are no skills."
    found = await sandbox.read(path, _find)
    lines = [*(_line(path, size) for path, size in sorted(found.items())), *([] if path else skills)]
    if not lines:
        return "The folder is empty."
    text = "\n".join(lines)
    if len(text.encode()) <= sandbox.result_bytes:
        return text
    data = "\n".join(_summary(found)).encode()
    return bounded_text(data, len(data), sandbox.result_bytes)


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


# The tool `search_files`: lines of files of the session or of a skill that match a regular expression.

_SECONDS = 20.0
_MAX_PATTERN = 10_000


def search_files(sandbox: RunSandbox | None) -> Tool:
    properties = {
        "pattern": {
            "type": "string",
            "description": "A regular expression, as Python has them. Searched line by line.",
        },
        "path": {
            "type": "string",
            "description": f"A folder or file. By default all of {SANDBOX_FOLDER}, without skills.",
        },
    }
    description = "Search text files in the sandbox. The result has a line `path:number:line` for each match."
    spec = ToolSpec(BuiltIn.SEARCH_FILES, description, parameters(properties, ["path"]))
    return sandboxed_tool(spec, Effect.READS, sandbox, _search)


async def _search(sandbox: RunSandbox, arguments: dict[str, Any], context: CallContext) -> str:
    pattern, path = text_argument(arguments, "pattern"), clean_path(text_argument(arguments, "path", ""))
    if len(pattern) > _MAX_PATTERN:
        raise Refusal(f"the pattern is longer than {_MAX_PATTERN} characters.")

    def open_start(folder: int, below: str) -> int:
        return open_beneath(folder, below, os.O_RDONLY | os.O_NONBLOCK)

    with descriptor(await sandbox.read(path, open_start)) as start:
        order = {
            "pattern": pattern,
            "descriptor": start,
            "path": path,
            "prefix": f"{path}/" if path else "",
            "skipped": None if path else RESERVED,
            "max_bytes": sandbox.result_bytes,
        }
        try:
            found = await run_helper(search_process, order, _SECONDS, [start])
        except TimeoutError:
            raise Refusal(
                f"the search took more than {_SECONDS:g} s. Use a simpler pattern or a smaller folder."
            ) from None
        except ProcessFailed as fault:
            if fault.exit_code != search_process.INVALID_PATTERN:
                raise
            raise Refusal(f"this is not a regular expression: {fault.output.decode()}.") from None
    return found.decode("utf-8", "replace").rstrip("\n") or "Nothing matches."
