"""Sends the text of a model's answer, or the output of a tool call, to open streams as it comes, and announces when a
request to the model is repeated. Not stored."""

import asyncio
from contextlib import suppress
from types import TracebackType
from typing import Self

from quarterdeck.core.errors import ServiceError
from quarterdeck.db.database import Database
from quarterdeck.events.log import delta_payloads, notify, retry_payload
from quarterdeck.events.model import RetryBody
from quarterdeck.runs.lifecycle import Lease


class DeltaSender:
    """Collects text for a moment before sending it: a notification for each token would cost too much."""

    def __init__(
        self, database: Database, lease: Lease, interval_seconds: float, *, call_id: str | None = None
    ) -> None:
        """`call_id`: of the tool call whose output it sends."""
        self._database = database
        self._call_id = call_id
        self._lease = lease
        self._interval_seconds = interval_seconds
        self._retry: RetryBody | None = None
        # Behind the retry.
        self._texts: list[str] = []
        self._sender: asyncio.Task[None] | None = None

    def add(self, text: str) -> None:
        self._texts.append(text)
        self._start()

    def retry(self, attempt: int, pause_seconds: float, reason: str) -> None:
        """The text of the failed request that is not sent yet is dropped: the next one begins anew."""
        self._texts.clear()
        lease = self._lease
        self._retry = RetryBody(lease.session_id, lease.run_id, attempt, round(pause_seconds, 3), reason)
        self._start()

    def _start(self) -> None:
        if self._sender is None:
            self._sender = asyncio.create_task(self._send())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Unsent text is part of the message or the result that is stored next.
        if self._sender is not None:
            self._sender.cancel()
            # asyncio.wait does not raise the sender's CancelledError, so a CancelledError here is this task's own.
            await asyncio.wait({self._sender})

    async def _send(self) -> None:
        await asyncio.sleep(self._interval_seconds)
        while self._texts or self._retry is not None:
            lease = self._lease
            payloads = [] if self._retry is None else [retry_payload(self._retry)]
            text, self._texts, self._retry = "".join(self._texts), [], None
            payloads += delta_payloads(lease.session_id, lease.run_id, lease.attempt, text, self._call_id)
            with suppress(ServiceError):
                await self._database.read(notify, payloads)
            await asyncio.sleep(self._interval_seconds)
        self._sender = None
