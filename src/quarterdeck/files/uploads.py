"""Receives uploaded files: a limited number at a time, each into a temporary file."""

import asyncio
import codecs
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO
from uuid import UUID

from quarterdeck.blobs.service import open_spool
from quarterdeck.core.settings import BundleSettings, FileSettings
from quarterdeck.core.slots import Slots, hold_slot

# Collected before they are written in a thread. Smaller bodies are not worth one.
_BATCH_BYTES = 256 * 1024


class Received:
    def __init__(self, content: IO[bytes]) -> None:
        self.content = content
        self.bytes = 0
        # Whether it is valid UTF-8 without NUL.
        self.is_text = True
        self._digest = hashlib.sha256()
        self._decoder = codecs.getincrementaldecoder("utf-8")()

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()

    def write(self, piece: bytes, *, is_last: bool = False) -> None:
        self.content.write(piece)
        self.bytes += len(piece)
        self._digest.update(piece)
        if self.is_text:
            try:
                self.is_text = "\0" not in self._decoder.decode(piece, is_last)
            except UnicodeDecodeError:
                self.is_text = False


class FileUploads:
    """`shares` says what part of the slots one workspace can hold, and how long a caller waits for one."""

    def __init__(self, settings: FileSettings, shares: BundleSettings, folder: Path) -> None:
        self._slots = Slots(settings.uploads, shares.per_workspace(settings.uploads))
        self._wait_seconds = shares.upload_wait_seconds
        self._folder = folder

    @asynccontextmanager
    async def receive(self, workspace_id: UUID, body: AsyncIterator[bytes]) -> AsyncIterator[Received]:
        """A caller that waits for its turn has not sent the body yet, so it holds neither memory nor disk."""
        async with hold_slot(self._slots, workspace_id, self._wait_seconds, "uploads"):
            with open_spool(self._folder) as spool:
                received, batch = Received(spool), bytearray()
                async for piece in body:
                    batch += piece
                    if len(batch) >= _BATCH_BYTES:
                        await asyncio.to_thread(received.write, bytes(batch))
                        batch.clear()
                received.write(bytes(batch), is_last=True)
                yield received
