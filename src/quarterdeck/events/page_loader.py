"""Loads pages of session logs for open streams. Streams at the same position share one query and one encoding."""

import asyncio
from collections.abc import Callable, Hashable
from uuid import UUID
from weakref import WeakValueDictionary

from quarterdeck.core.errors import ServiceError
from quarterdeck.db.database import Connection, Database
from quarterdeck.events import store
from quarterdeck.events.model import EventBody, EventType

# A stream keeps one page in memory until its client has received it.
_PAGE_BYTES = 256 * 1024
_PAGE_EVENTS = 100


class LogPage:
    def __init__(self, events: list[EventBody], more: bool) -> None:
        # Dropped once they are encoded: a page may be kept until a slow client has received it.
        self.events = events
        self.more = more
        # None: the page is empty.
        self.last_id = events[-1].id if events else None
        # Each run that started, and which attempt at it.
        self.attempts = [
            (event.run_id, event.data.get("attempt", 0))
            for event in events
            if event.type == EventType.RUN_STARTED and event.run_id is not None
        ]
        self._encoded: bytes | None = None

    def encoded(self, encode: Callable[[list[EventBody]], bytes]) -> bytes:
        if self._encoded is None:
            self._encoded = encode(self.events)
            self.events = []
        return self._encoded


class PageLoader:
    def __init__(self, database: Database) -> None:
        self._database = database
        # Queries that were not sent yet, by session and position: only these can be joined. A query that was sent
        # before an event was committed misses that event.
        self._joinable: dict[tuple[UUID, int], asyncio.Task[LogPage | None]] = {}
        # Pages that some stream still holds and that can no longer change, because more events follow them.
        self._complete: WeakValueDictionary[tuple[UUID, int], LogPage] = WeakValueDictionary()
        # The event loop itself keeps only weak references to tasks.
        self._queries: set[asyncio.Task[LogPage | None]] = set()

    async def load(self, session_id: UUID, after: int, owner: Hashable | None) -> LogPage | None:
        """The events that follow event `after`, with all that were committed before this call. None if the database is
        unavailable. `owner`: whose share of the connections is used."""
        complete = self._complete.get((session_id, after))
        if complete is not None:
            return complete
        query = self._joinable.get((session_id, after))
        if query is None:
            query = asyncio.create_task(self._query(session_id, after, owner))
            self._joinable[session_id, after] = query
            self._queries.add(query)
            query.add_done_callback(self._queries.discard)
        # A stream that is cancelled must not cancel the query that other streams wait for.
        return await asyncio.shield(query)

    async def _query(self, session_id: UUID, after: int, owner: Hashable | None) -> LogPage | None:
        async def read(connection: Connection) -> LogPage:
            self._joinable.pop((session_id, after), None)
            page = LogPage(*await store.page(connection, session_id, after, _PAGE_EVENTS, _PAGE_BYTES))
            if page.more:
                self._complete[session_id, after] = page
            return page

        try:
            return await self._database.read(read, owner=owner)
        except ServiceError:
            return None
        finally:
            self._joinable.pop((session_id, after), None)
