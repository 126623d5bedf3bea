"""Writes to a session's log, and notifications (NOTIFY of PostgreSQL) to open streams: about new events, and with text
that a model is writing. Every writer holds the session's lock.

Notifications may be lost or duplicated. New events are also found by the periodic check of the hub in `streams.py`, and
lost text is asked for again: see `live_text.py`.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import TypeVar
from uuid import UUID

import msgspec
from msgspec import Struct
from psycopg.types.json import Jsonb

from quarterdeck.core.logging import log
from quarterdeck.db.database import Connection, Database, Given, WorkWith
from quarterdeck.db.pool import PooledConnection
from quarterdeck.events import store
from quarterdeck.events.live_text import LiveRetry, TextPiece
from quarterdeck.events.model import NewEvent

T = TypeVar("T")

# Taken first by every writer of a session, in a separate statement: the statements that follow must see what the
# previous holder committed. Event ids are assigned under it, so they are in commit order.
_LOCK = "SELECT pg_advisory_xact_lock(session_lock(%s))"
_APPEND = "INSERT INTO session_events (session_id, run_id, type, data, record) VALUES (%s, %s, %s, %s, %s)"


async def lock_session(connection: Connection, session_id: UUID) -> None:
    await connection.execute(_LOCK, (session_id,))


async def append(connection: Connection, session_id: UUID, run_id: UUID | None, *events: NewEvent) -> None:
    """Also announces them."""
    rows = [
        (session_id, run_id, event.type, Jsonb(event.data), None if event.record is None else Jsonb(event.record))
        for event in events
    ]
    await connection.cursor().executemany(_APPEND, rows)
    await announce_events(connection, [session_id])


# PostgreSQL limits a payload to 7,999 bytes. A session id takes 39 bytes in JSON.
_SESSIONS_PER_PAYLOAD = 200
# Limits the load by notifications: a NOTIFY for each batch of inputs would cost more than the streams need.
_PAUSE_SECONDS = 0.01


_SHORT_NAMES = {"session_ids": "s", "live": "l", "asks_who_reads": "w"}


class Notification(Struct, frozen=True, omit_defaults=True, rename=_SHORT_NAMES):
    """The payload: the sessions that have new events, what is sent live, or the question of a worker that has just
    begun to listen."""

    session_ids: tuple[UUID, ...] = ()
    live: tuple[TextPiece | LiveRetry, ...] = ()
    asks_who_reads: bool = False


_decoder = msgspec.json.Decoder(Notification)


def event_payloads(session_ids: Iterable[UUID]) -> list[str]:
    """Payloads which say that these sessions have new events."""
    ids = tuple(session_ids)
    parts = (ids[start : start + _SESSIONS_PER_PAYLOAD] for start in range(0, len(ids), _SESSIONS_PER_PAYLOAD))
    return [_encoded(Notification(session_ids=part)) for part in parts]


async def ask_who_reads(connection: Connection) -> None:
    await notify(connection, [_encoded(Notification(asks_who_reads=True))])


def parse(payload: str) -> Notification | None:
    """None for foreign payloads: any user of the database can send to the channel."""
    try:
        return _decoder.decode(payload)
    except msgspec.DecodeError:
        return None


async def announce_events(connection: Connection, session_ids: Iterable[UUID]) -> None:
    """Streams of these sessions are told after the commit of the current transaction, by the process's `Notifier`. In a
    process without one, they are told by the commit itself."""
    if isinstance(connection, PooledConnection) and connection.announced is not None:
        connection.announced.update(session_ids)
    else:
        await notify(connection, event_payloads(session_ids))


def announcing(write: WorkWith[*Given, T | None], session_id: UUID) -> WorkWith[*Given, T | None]:
    """A statement that adds events to the session's log, unless its result is None."""

    async def work(connection: Connection, *given: *Given) -> T | None:
        result = await write(connection, *given)
        if result is not None:
            await announce_events(connection, [session_id])
        return result

    return work


async def notify(connection: Connection, payloads: Sequence[str]) -> None:
    if payloads:
        await store.notify(connection, payloads)


def _encoded(notification: Notification) -> str:
    return msgspec.json.encode(notification).decode()


class Notifier:
    """Sends notifications about new events in the background, after their commit. Sessions added while a notification
    is being sent go into the next one.

    PostgreSQL lets only one transaction at a time commit with a notification, and that one waits for the disk and for a
    synchronous replica. A transaction that does nothing but notify waits for neither."""

    def __init__(self, database: Database) -> None:
        self._database = database
        database.on_commit = self.add
        self._session_ids: set[UUID] = set()
        self._sender: asyncio.Task[None] | None = None

    def add(self, session_ids: Iterable[UUID]) -> None:
        self._session_ids.update(session_ids)
        if self._session_ids and self._sender is None:
            self._sender = asyncio.create_task(self._send())

    async def close(self) -> None:
        if self._sender is not None:
            self._sender.cancel()
            await asyncio.gather(self._sender, return_exceptions=True)

    async def _send(self) -> None:
        try:
            while self._session_ids:
                session_ids, self._session_ids = self._session_ids, set()
                await self._notify(event_payloads(session_ids))
                await asyncio.sleep(_PAUSE_SECONDS)
        finally:
            self._sender = None

    async def _notify(self, payloads: list[str]) -> None:
        try:
            await self._database.read(notify, payloads)
        except Exception as fault:
            log.debug("notification failed; streams find the new events by their periodic check", exc_info=fault)
