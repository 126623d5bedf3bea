"""Reads changed files for the store."""

import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from msgspec import Struct

from quarterdeck.blobs.model import PIECE_BYTES
from quarterdeck.blobs.spool import open_spool
from quarterdeck.sandbox.beneath import descriptor
from quarterdeck.sandbox.scan import Found, Signature, open_found, out_of_bounds, signature_of
from quarterdeck.skills.model import shown

# Of one batch. Each content is a spool while it is being stored: at most one in 256 KiB of them is an open file.
_BATCH_FILES = 1_000
_BATCH_BYTES = 32 * 1024 * 1024


class Content(Struct, frozen=True):
    found: Found
    # Before it was read: a file that changes meanwhile differs from it at the next scan.
    signature: Signature
    sha256: str
    size: int
    # A copy of exactly the bytes that the SHA-256 is of.
    spool: IO[bytes]


def batches(files: list[Found]) -> Iterator[list[Found]]:
    batch: list[Found] = []
    size = 0
    for file in files:
        if batch and (len(batch) == _BATCH_FILES or size + file.signature.size > _BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(file)
        size += file.signature.size
    if batch:
        yield batch


def read_contents(
    folder: int, batch: list[Found], max_bytes: int, spools: Path, stopped: Callable[[], bool]
) -> list[Content]:
    contents: list[Content] = []
    try:
        for found in batch:
            contents.append(_read(folder, found, max_bytes, spools, stopped))
    except BaseException:
        for content in contents:
            content.spool.close()
        raise
    return contents


def _read(folder: int, found: Found, max_bytes: int, spools: Path, stopped: Callable[[], bool]) -> Content:
    digest, size = hashlib.sha256(), 0
    spool = open_spool(spools)
    try:
        with descriptor(open_found(folder, found)) as file:
            signature = signature_of(os.fstat(file))
            while piece := os.read(file, PIECE_BYTES):
                size += len(piece)
                if size > max_bytes:
                    raise out_of_bounds(f'"{shown(found.path)}" has more than {max_bytes} bytes')
                if stopped():
                    raise InterruptedError
                digest.update(piece)
                spool.write(piece)
    except BaseException:
        spool.close()
        raise
    return Content(found, signature, digest.hexdigest(), size, spool)
