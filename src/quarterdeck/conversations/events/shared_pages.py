"""Pages of logs for open streams: read once, and written once, for all readers that are at the same place."""

import asyncio
from collections.abc import Callable
from uuid import UUID

from quarterdeck.conversations.events import store
from quarterdeck.conversations.events.model import EventBody
from quarterdeck.core.errors import ServiceError
from quarterdeck.db.database import Connection, Database

# A stream holds one page at a time for as long as its reader takes.
_PAGE_BYTES = 256 * 1024
_PAGE_EVENTS = 100

_Place = tuple[UUID, int]


class SharedPage:
    def __init__(self, events: list[EventBody], more: bool) -> None:
        self.events = events
        self.more = more
        self._written: bytes | None = None

    def written(self, write: Callable[[list[EventBody]], bytes]) -> bytes:
        if self._written is None:
            self._written = write(self.events)
        return self._written


_Waiting = asyncio.Future[SharedPage | None]


class SharedPages:
    def __init__(self, database: Database) -> None:
        self._database = database
        # Who waits for pages that have not begun to be read. A future each: one that leaves takes nothing from others.
        self._wanted: dict[_Place, list[_Waiting]] = {}
        self._reads: set[asyncio.Task[None]] = set()

    async def after(self, session_id: UUID, position: int) -> SharedPage | None:
        """What the log holds after an entry: all that was committed before this was asked for. None: the database is
        away."""
        place = (session_id, position)
        page: _Waiting = asyncio.get_running_loop().create_future()
        if together := self._wanted.get(place):
            together.append(page)
        else:
            self._wanted[place] = [page]
            read = asyncio.create_task(self._read(place, self._wanted[place]))
            self._reads.add(read)
            read.add_done_callback(self._reads.discard)
        return await page

    async def _read(self, place: _Place, together: list[_Waiting]) -> None:
        session_id, position = place

        async def read(connection: Connection) -> SharedPage:
            self._close(place, together)
            return SharedPage(*await store.page(connection, session_id, position, _PAGE_EVENTS, _PAGE_BYTES))

        page: SharedPage | None = None
        fault: Exception | None = None
        try:
            page = await self._database.read(read)
        except ServiceError:
            pass
        except Exception as other:
            fault = other
        self._close(place, together)
        for one in together:
            if one.done():
                continue
            if fault is not None:
                one.set_exception(fault)
            else:
                one.set_result(page)

    def _close(self, place: _Place, together: list[_Waiting]) -> None:
        """Who comes from here on was told of an entry that this look may miss."""
        if self._wanted.get(place) is together:
            del self._wanted[place]
