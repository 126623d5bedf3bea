"""The text of an answer while it is being written: sent to whoever reads along, stored nowhere."""

import asyncio
from contextlib import suppress
from types import TracebackType
from typing import Self

from quarterdeck.conversations.events.notifications import delta_payloads, notify
from quarterdeck.conversations.runs.lifecycle import Lease
from quarterdeck.core.errors import ServiceError
from quarterdeck.db.database import Connection
from quarterdeck.worker.parts import WorkerParts


class Deltas:
    """Gathers pieces for a moment: a notification for each would cost more than the text."""

    def __init__(self, parts: WorkerParts, lease: Lease) -> None:
        self._parts = parts
        self._lease = lease
        self._pieces: list[str] = []
        self._sender: asyncio.Task[None] | None = None

    def add(self, text: str) -> None:
        self._pieces.append(text)
        if self._sender is None:
            self._sender = asyncio.create_task(self._send_soon())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        # What has not gone out is in the message that is about to be stored.
        if self._sender is not None:
            self._sender.cancel()
            # Not awaited itself: the cancelling of this task, should it come now, must not be taken for the sender's.
            await asyncio.wait({self._sender})

    async def _send_soon(self) -> None:
        await asyncio.sleep(self._parts.settings.run.delta_seconds)
        while self._pieces:
            text, self._pieces = "".join(self._pieces), []
            lease = self._lease
            payloads = delta_payloads(lease.session_id, lease.run_id, lease.attempt, text)

            async def send(connection: Connection, payloads: list[str] = payloads) -> None:
                await notify(connection, payloads)

            with suppress(ServiceError):
                await self._parts.database.read(send)
            await asyncio.sleep(self._parts.settings.run.delta_seconds)
        self._sender = None
