"""The files of a session as a tar.gz that is made while it is sent. Memory holds the manifest and a few pieces."""

import asyncio
import tarfile
import zlib
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing

from quarterdeck.blobs import service as blobs
from quarterdeck.blobs.blob_store import BlobStore
from quarterdeck.sandbox.manifest import FileKind, Manifest, ManifestFile

# What is compressed at a time.
_PIECE_BYTES = 256 * 1024
# Fast: most archives are unpacked once.
_LEVEL = 1
_GZIP_FORMAT = 31
_TYPES = {FileKind.FILE: tarfile.REGTYPE, FileKind.LINK: tarfile.SYMTYPE, FileKind.FOLDER: tarfile.DIRTYPE}


class Archives:
    """`threads`: compressing is done in as many, so that archives cannot use all processors of a host."""

    def __init__(self, blob_store: BlobStore, threads: int) -> None:
        self._blob_store = blob_store
        self._threads = ThreadPoolExecutor(threads, "archive")

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def pieces(self, manifest: Manifest) -> AsyncGenerator[bytes, None]:
        compressor = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP_FORMAT)
        loop = asyncio.get_running_loop()
        waiting = bytearray()
        async with aclosing(self._tar(manifest)) as pieces:
            async for piece in pieces:
                waiting += piece
                # Small files together, so that each piece is worth a thread.
                if len(waiting) >= _PIECE_BYTES:
                    if compressed := await loop.run_in_executor(self._threads, compressor.compress, bytes(waiting)):
                        yield compressed
                    waiting.clear()
        yield compressor.compress(waiting) + compressor.flush()

    async def _tar(self, manifest: Manifest) -> AsyncGenerator[bytes, None]:
        for file in manifest.files:
            yield _header(file)
            if file.kind is not FileKind.FILE:
                continue
            async with aclosing(blobs.pieces(self._blob_store, file.blob, file.bytes, 0, file.bytes)) as content:
                async for piece in content:
                    yield piece
            yield bytes(-file.bytes % tarfile.BLOCKSIZE)
        yield bytes(2 * tarfile.BLOCKSIZE)


def _header(file: ManifestFile) -> bytes:
    entry = tarfile.TarInfo(file.path)
    entry.type = _TYPES[file.kind]
    entry.size = file.bytes if file.kind is FileKind.FILE else 0
    entry.mode = file.mode
    entry.linkname = file.target or ""
    entry.mtime = int(file.modified_at.timestamp())
    return entry.tobuf(tarfile.PAX_FORMAT)
