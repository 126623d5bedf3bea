"""What the open streams of a process share: one connection that listens for signals and looks after all of them.

It also checks, for all at once, whether their readers may still read and whether their logs hold more than was sent.
That net makes every signal dispensable. Nothing reaches a stream but through this connection, so that while no check
is possible nothing is sent either.
"""

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from uuid import UUID

import psycopg
from psycopg import AsyncConnection

from quarterdeck.auth.access import find_principals
from quarterdeck.conversations.events import store
from quarterdeck.conversations.events.model import DeltaBody, Head
from quarterdeck.conversations.events.signals import parse
from quarterdeck.conversations.visibility import sees_session
from quarterdeck.core.actors import Credential, Permission, Principal
from quarterdeck.core.logging import log
from quarterdeck.core.settings import DatabaseSettings, StreamSettings
from quarterdeck.db.database import Connection, connection_options

_FIRST_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 1.0
_CONNECT_SECONDS = 3
# A session has one active run; more are remembered only because late deltas of the last ones may still come.
_RUNS_REMEMBERED = 8


class Next(Enum):
    LOOK = "look into the log"
    NOTHING = "nothing has come"
    STOP = "stop"


class Reader:
    """One open stream: who reads what, how far it is, and what it has to do next, in order."""

    def __init__(
        self, session_id: UUID, credential: Credential, named: UUID | None, after: int, queue_deltas: int
    ) -> None:
        self.session_id = session_id
        self.credential = credential
        # The last entry that was handed to the stream.
        self.position = after
        self.ended = asyncio.Event()
        self._named = named
        self._queue_deltas = queue_deltas
        # None: look into the log. Deltas keep their place before and after it, so that they come before the message
        # they belong to. No two looks stand side by side, so deltas bound the whole.
        self._todo: deque[DeltaBody | None] = deque([None])
        self._attempts: dict[UUID, int] = {}
        self._something = asyncio.Event()

    def look(self) -> None:
        if not self._todo or self._todo[-1] is not None:
            self._todo.append(None)
        self._something.set()

    def hand(self, delta: DeltaBody) -> None:
        """Dropped when there is no room: the whole text comes with its message."""
        if self.is_current(delta.run_id, delta.attempt) and len(self._todo) < 2 * self._queue_deltas:
            self._todo.append(delta)
            self._something.set()

    def is_current(self, run_id: UUID, attempt: int) -> bool:
        """Whether no later attempt of this run was seen: what a worker that was taken for dead still says is void."""
        if attempt < self._attempts.get(run_id, 0):
            return False
        self._attempts[run_id] = attempt
        if len(self._attempts) > _RUNS_REMEMBERED:
            del self._attempts[next(iter(self._attempts))]
        return True

    def end(self) -> None:
        self.ended.set()
        self._something.set()

    async def next(self, seconds: float) -> DeltaBody | Next:
        """What there is to do, within that time."""
        if not self._todo and not self.ended.is_set():
            self._something.clear()
            # A timer of its own, not asyncio.timeout(): five hundred readers wait anew with every entry.
            timer = asyncio.get_running_loop().call_later(seconds, self._something.set)
            try:
                await self._something.wait()
            finally:
                timer.cancel()
        if self.ended.is_set():
            return Next.STOP
        if not self._todo:
            return Next.NOTHING
        return self._todo.popleft() or Next.LOOK

    def attend(self, principal: Principal | None, head: Head | None) -> None:
        """By the rules that admitted it: `access.call.admit`."""
        if (
            principal is None
            or head is None
            or not sees_session(principal, self.session_id, head.workspace_id, self._named, own_token=True)
            or not principal.may(Permission.WORKSPACE_READ)
        ):
            self.end()
        elif head.last_id > self.position:
            self.look()


class Feed:
    def __init__(self, url: str, database: DatabaseSettings, stream: StreamSettings) -> None:
        self._url = url
        self._database = database
        self._check_seconds = stream.check_seconds
        self._readers: dict[UUID, set[Reader]] = {}
        self._stopped = False
        self._keeper: asyncio.Task[None] | None = None

    async def open(self) -> None:
        self._keeper = asyncio.create_task(self._keep_listening())

    async def close(self) -> None:
        self.stop()
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)

    def stop(self) -> None:
        """End every stream, and each that would begin: their readers go on elsewhere from where they are."""
        self._stopped = True
        for reader in self._all():
            reader.end()

    @contextmanager
    def watching(self, reader: Reader) -> Iterator[None]:
        together = self._readers.setdefault(reader.session_id, set())
        together.add(reader)
        if self._stopped:
            reader.end()
        try:
            yield
        finally:
            together.discard(reader)
            if not together:
                self._readers.pop(reader.session_id, None)

    async def _keep_listening(self) -> None:
        pause_seconds = _FIRST_PAUSE_SECONDS
        while True:
            try:
                async with await self._connect() as connection:
                    await store.listen(connection)
                    pause_seconds = _FIRST_PAUSE_SECONDS
                    await self._attend(connection)
            except (psycopg.Error, OSError, TimeoutError) as fault:
                log.debug("the connection that listens was lost and will be made again", exc_info=fault)
            except Exception as fault:
                log.error("looking after the open streams failed and will be tried again", exc_info=fault)
            await asyncio.sleep(pause_seconds)
            pause_seconds = min(2 * pause_seconds, _LONGEST_PAUSE_SECONDS)

    async def _connect(self) -> Connection:
        options = connection_options(self._database)
        return await AsyncConnection.connect(
            self._url, autocommit=True, options=options, connect_timeout=_CONNECT_SECONDS
        )

    async def _attend(self, connection: Connection) -> None:
        # The first check comes after LISTEN: what was signalled to nobody is found by it.
        while True:
            # A server that vanished without a word is noticed by the check that gets no answer.
            async with asyncio.timeout(self._database.statement_seconds + 0.5):
                await self._check(connection)
            async for notification in connection.notifies(timeout=self._check_seconds):
                self._dispatch(notification.payload)

    async def _check(self, connection: Connection) -> None:
        readers = self._all()
        if not readers:
            return
        principals = await find_principals(connection, {reader.credential for reader in readers})
        heads = await store.heads(connection, {reader.session_id for reader in readers})
        # What was said before these heads were read comes before what they make a reader look for: text goes before the
        # message it belongs to.
        async for notification in connection.notifies(timeout=0):
            self._dispatch(notification.payload)
        for reader in readers:
            reader.attend(principals.get(reader.credential), heads.get(reader.session_id))

    def _dispatch(self, payload: str) -> None:
        signal = parse(payload)
        if signal is None:
            return
        for session_id in signal.s:
            for reader in self._readers.get(session_id, ()):
                reader.look()
        if signal.d is not None:
            for reader in self._readers.get(signal.d.session_id, ()):
                reader.hand(signal.d)

    def _all(self) -> list[Reader]:
        return [reader for together in self._readers.values() for reader in together]
