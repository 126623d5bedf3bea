"""Telling readers that logs grew, off the path of the requests that made them grow."""

import asyncio
from collections.abc import Iterable
from uuid import UUID

from quarterdeck.conversations.events.signals import hints, notify
from quarterdeck.core.logging import log
from quarterdeck.db.database import Connection, Database

# Under load a notification a batch would cost more than the reading along is worth; this many seconds nobody notices.
_PAUSE_SECONDS = 0.01


class Hints:
    """What comes while a notification is under way goes out with the next. A hint that is lost is made up for by the
    readers' own looking."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._waiting: set[UUID] = set()
        self._sender: asyncio.Task[None] | None = None

    def add(self, session_ids: Iterable[UUID]) -> None:
        self._waiting.update(session_ids)
        if self._waiting and self._sender is None:
            self._sender = asyncio.create_task(self._send())

    async def close(self) -> None:
        if self._sender is not None:
            self._sender.cancel()
            await asyncio.gather(self._sender, return_exceptions=True)

    async def _send(self) -> None:
        try:
            while self._waiting:
                session_ids, self._waiting = self._waiting, set()
                await self._notify(hints(session_ids))
                await asyncio.sleep(_PAUSE_SECONDS)
        finally:
            self._sender = None

    async def _notify(self, payloads: list[str]) -> None:
        async def send(connection: Connection) -> None:
            await notify(connection, payloads)

        try:
            await self._database.read(send)
        except Exception as fault:
            log.debug("readers were not told of news and will find it by themselves", exc_info=fault)
