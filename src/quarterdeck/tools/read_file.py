"""The tool `read_file`: reads lines of a text file of the workspace or of a skill."""

import os
from typing import IO, Any

from quarterdeck.blobs.model import PIECE_BYTES
from quarterdeck.sandbox.beneath import open_file
from quarterdeck.sandbox.run_folders import Place, clean_path
from quarterdeck.tools.model import ToolSpec
from quarterdeck.tools.sandboxed_tool import count_argument, sandboxed_tool
from quarterdeck.tools.tool import CallContext, Effect, Tool, parameters, text_argument

READ_FILE = "read_file"
_SNIFFED_BYTES = 8192
_SIGNATURES = {
    b"\x89PNG\r\n\x1a\n": "PNG image",
    b"\xff\xd8\xff": "JPEG image",
    b"GIF8": "GIF image",
    b"%PDF-": "PDF document",
    b"PK\x03\x04": "ZIP archive",
    b"\x1f\x8b": "gzip archive",
    b"\x7fELF": "program",
}


def read_file(place: Place | None) -> Tool:
    properties = {
        "path": {"type": "string", "description": "Relative to the workspace."},
        "offset": {"type": "integer", "minimum": 1, "description": "The first line to read. By default 1."},
        "limit": {"type": "integer", "minimum": 1, "description": "How many lines. By default as many as fit."},
    }
    spec = ToolSpec(READ_FILE, "Read a text file in the workspace.", parameters(properties, ["offset", "limit"]))
    return sandboxed_tool(spec, Effect.READS, place, _read)


async def _read(place: Place, arguments: dict[str, Any], context: CallContext) -> str:
    path = clean_path(text_argument(arguments, "path"))
    offset, limit = count_argument(arguments, "offset") or 1, count_argument(arguments, "limit")

    def read(folder: int, below: str) -> str:
        with os.fdopen(open_file(folder, below), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            head = file.read(_SNIFFED_BYTES)
            if not _is_text(head):
                return f"This is a binary file of {size} bytes{_kind(head)}; only text can be read."
            file.seek(0)
            return _lines(file, size, offset, limit, place.result_bytes)

    return await place.read(path, read)


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
    return next((f" ({kind})" for start, kind in _SIGNATURES.items() if head.startswith(start)), "")
