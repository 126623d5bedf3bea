"""The open event streams of a process: subscriptions, the hub that serves them, limits, and shared pages of logs.

The hub holds one database connection that listens for notifications. Through the same connection it checks
periodically, for all subscriptions at once, whether their callers may still read and whether their logs have grown. So
a lost notification only delays an event, and a stream whose permission cannot be checked receives nothing. It also
tells workers which sessions are read: see `live_text.py`.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from enum import Enum
from uuid import UUID
from weakref import WeakValueDictionary

import psycopg
from msgspec import Struct

from quarterdeck.auth.access import find_principals, is_session_visible
from quarterdeck.core import errors
from quarterdeck.core.actors import Credential, Permission, Principal
from quarterdeck.core.errors import ServiceError
from quarterdeck.core.logging import log
from quarterdeck.core.settings import DatabaseSettings, StreamSettings
from quarterdeck.core.slots import Slots
from quarterdeck.db.database import Connection, Database, connect
from quarterdeck.events import store
from quarterdeck.events.live_text import LiveRetry, TextPiece, reader_payloads
from quarterdeck.events.log import parse
from quarterdeck.events.model import DeltaBody, EventBody, EventType, Head, RetryBody

# One open event stream: its position in the log, and the work that is queued for it.

# A session has one active run; deltas of the runs before it may still arrive late.
_REMEMBERED_RUNS = 8
# The message and the tool calls of a run that are under way. A text that is forgotten too early is sent once more.
_REMEMBERED_TEXTS = 64


class Signal(Enum):
    READ_LOG = "the log has events after the position"
    TIMEOUT = "nothing arrived in time"
    CLOSED = "the subscription was closed"


class _TextPosition(Struct, frozen=True):
    # Attempt and number of the text: both grow.
    number: tuple[int, int]
    end: int


class Subscription:
    def __init__(
        self, session_id: UUID, credential: Credential, workspace_id: UUID | None, after: int, max_deltas: int
    ) -> None:
        """`workspace_id` is the caller's Service-Workspace. `after` is the id of the last event that the client has."""
        self.session_id = session_id
        self.credential = credential
        # Id of the last event that was handed to the stream.
        self.position = after
        self.closed = asyncio.Event()
        self._workspace_id = workspace_id
        self._max_deltas = max_deltas
        # Deltas and requests to read the log share one queue, so that text is sent before the message it belongs to.
        # READ_LOG is never queued twice in a row, so the number of deltas bounds the queue.
        self._queue: deque[DeltaBody | RetryBody | Signal] = deque([Signal.READ_LOG])
        self._attempts: dict[UUID, int] = {}
        # How far each text of a run (None: a message, otherwise a call) was handed to the stream.
        self._texts: dict[tuple[UUID, str | None], _TextPosition] = {}
        # Text that a worker has sent earlier is missing. Perhaps from the start: a model may just be writing.
        self.lacks_text = True
        self._wake = asyncio.Event()

    def request_read(self) -> None:
        if not self._queue or self._queue[-1] is not Signal.READ_LOG:
            self._queue.append(Signal.READ_LOG)
        self._wake.set()

    def add(self, item: TextPiece | LiveRetry) -> None:
        """Dropped if the queue is full. A later piece of the text then finds the gap, once the client has caught up."""
        if len(self._queue) >= 2 * self._max_deltas:
            return
        delta = item.body if isinstance(item, LiveRetry) else self._next_part(item)
        if delta is not None:
            self._queue.append(delta)
            self._wake.set()

    def _next_part(self, piece: TextPiece) -> DeltaBody | None:
        """Of a piece, what follows the text that the stream has. None: nothing, or text before it is missing."""
        if not self.note_attempt(piece.run_id, piece.attempt):
            return None
        key, number = (piece.run_id, piece.call_id), (piece.attempt, piece.text_number)
        known = self._texts.get(key)
        if known is not None and number < known.number:
            return None
        end = known.end if known is not None and number == known.number else 0
        if piece.offset > end and not piece.is_earliest:
            self.lacks_text = True
            return None
        delta = piece.after(end)
        if not delta.text:
            return None
        self._texts[key] = _TextPosition(number, delta.offset + len(delta.text))
        if len(self._texts) > _REMEMBERED_TEXTS:
            del self._texts[next(iter(self._texts))]
        return delta

    def run_started(self, run_id: UUID, attempt: int) -> None:
        """The log says so. Clients then forget live text of the run: what came too early is sent once more."""
        self.note_attempt(run_id, attempt)
        for key in [key for key in self._texts if key[0] == run_id]:
            del self._texts[key]
            self.lacks_text = True

    def note_attempt(self, run_id: UUID, attempt: int) -> bool:
        """False if a later attempt at the run is known: deltas of a worker that lost its lease are not sent."""
        if attempt < self._attempts.get(run_id, 0):
            return False
        self._attempts[run_id] = attempt
        if len(self._attempts) > _REMEMBERED_RUNS:
            del self._attempts[next(iter(self._attempts))]
        return True

    def close(self) -> None:
        self.closed.set()
        self._wake.set()

    async def next(self, timeout_seconds: float) -> DeltaBody | RetryBody | Signal:
        if not self._queue and not self.closed.is_set():
            self._wake.clear()
            # Cheaper than asyncio.timeout(): hundreds of subscriptions wait again after every event.
            timer = asyncio.get_running_loop().call_later(timeout_seconds, self._wake.set)
            try:
                await self._wake.wait()
            finally:
                timer.cancel()
        if self.closed.is_set():
            return Signal.CLOSED
        return self._queue.popleft() if self._queue else Signal.TIMEOUT

    def update(self, principal: Principal | None, head: Head | None) -> None:
        """Close the subscription if its caller may no longer read the session, as checked by `Access.admit` when it was
        opened. Request a read if the log has grown. `principal` and `head` are None if they no longer exist."""
        if (
            principal is None
            or head is None
            or not is_session_visible(principal, self.session_id, head.workspace_id, self._workspace_id, own_token=True)
            or not principal.may(Permission.WORKSPACE_READ)
        ):
            self.close()
        elif head.last_id > self.position:
            self.request_read()


_MIN_PAUSE_SECONDS = 0.05
_MAX_PAUSE_SECONDS = 1.0
# How often all sessions with streams are announced. Workers forget a session after more than three times as long.
_ANNOUNCE_SECONDS = 3.0
# Streams that are opened within this time are announced together.
_OPENING_SECONDS = 0.01


class EventHub:
    def __init__(self, url: str, pool: Database, database: DatabaseSettings, stream: StreamSettings) -> None:
        """`url` is where notifications can be received."""
        self._url = url
        self._pool = pool
        self._database = database
        self._check_seconds = stream.check_seconds
        self._subscriptions: dict[UUID, set[Subscription]] = {}
        self._is_stopped = False
        self._listener: asyncio.Task[None] | None = None
        self._announcer: asyncio.Task[None] | None = None
        self._announced_at: float | None = None

    async def open(self) -> None:
        self._listener = asyncio.create_task(self._listen_forever())

    async def close(self) -> None:
        self.stop()
        tasks = [task for task in (self._listener, self._announcer) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def stop(self) -> None:
        """Close all subscriptions, and every new one at once. Clients reconnect elsewhere and resume."""
        self._is_stopped = True
        for subscription in self._all():
            subscription.close()

    @contextmanager
    def subscribed(self, subscription: Subscription) -> Iterator[None]:
        of_session = self._subscriptions.setdefault(subscription.session_id, set())
        of_session.add(subscription)
        if self._is_stopped:
            subscription.close()
        self._announce_soon()
        try:
            yield
        finally:
            of_session.discard(subscription)
            if not of_session:
                self._subscriptions.pop(subscription.session_id, None)

    async def _listen_forever(self) -> None:
        pause_seconds = _MIN_PAUSE_SECONDS
        while True:
            try:
                async with await connect(self._url, self._database) as connection:
                    await store.listen(connection)
                    pause_seconds = _MIN_PAUSE_SECONDS
                    await self._listen(connection)
            except (psycopg.Error, OSError, TimeoutError) as fault:
                log.debug("the listening connection was lost; reconnecting", exc_info=fault)
            except Exception as fault:
                log.error("the event hub failed; restarting it", exc_info=fault)
            await asyncio.sleep(pause_seconds)
            pause_seconds = min(2 * pause_seconds, _MAX_PAUSE_SECONDS)

    async def _listen(self, connection: Connection) -> None:
        # Text may have been sent before.
        for subscription in self._all():
            subscription.lacks_text = True
        # The first check follows LISTEN: it finds events whose notifications came before.
        while True:
            # The timeout detects a database server that vanished without closing the connection.
            async with asyncio.timeout(self._database.statement_seconds + 0.5):
                await self._check(connection)
            async for notification in connection.notifies(timeout=self._check_seconds):
                self._dispatch(notification.payload)

    async def _check(self, connection: Connection) -> None:
        subscriptions = self._all()
        if not subscriptions:
            return
        principals = await find_principals(connection, {each.credential for each in subscriptions})
        heads = await store.heads(connection, {each.session_id for each in subscriptions})
        # Deltas received up to now go into the queues before the log is read: they precede the messages in it.
        async for notification in connection.notifies(timeout=0):
            self._dispatch(notification.payload)
        for subscription in subscriptions:
            subscription.update(principals.get(subscription.credential), heads.get(subscription.session_id))
        await self._announce(connection)

    def _announce_soon(self) -> None:
        if self._announcer is None:
            self._announcer = asyncio.create_task(self._announce_new())

    async def _announce_new(self) -> None:
        """If it fails, the next check does it."""
        await asyncio.sleep(_OPENING_SECONDS)
        self._announcer = None
        with suppress(ServiceError):
            await self._pool.read(self._announce)

    async def _announce(self, connection: Connection) -> None:
        """Tells workers which sessions are read, now and then, and which of them lack text, at once."""
        lacking = [subscription for subscription in self._all() if subscription.lacks_text]
        now = time.monotonic()
        is_due = self._announced_at is None or now - self._announced_at >= _ANNOUNCE_SECONDS
        session_ids = self._subscriptions.keys() if is_due else ()
        payloads = reader_payloads(session_ids, {subscription.session_id for subscription in lacking})
        if not payloads:
            return
        await store.notify_readers(connection, payloads)
        if is_due:
            self._announced_at = now
        for subscription in lacking:
            subscription.lacks_text = False

    def _dispatch(self, payload: str) -> None:
        notification = parse(payload)
        if notification is None:
            return
        for session_id in notification.session_ids:
            for subscription in self._subscriptions.get(session_id, ()):
                subscription.request_read()
        if notification.asks_who_reads:
            self._announced_at = None
            self._announce_soon()
        for item in notification.live:
            for subscription in self._subscriptions.get(item.session_id, ()):
                subscription.add(item)

    def _all(self) -> list[Subscription]:
        return [subscription for of_session in self._subscriptions.values() for subscription in of_session]


# Limits on the event streams that a process has open: for each credential, for each workspace, and in total.
#
# A stream keeps its connection for as long as its client likes. Without limits one credential could take every
# connection of a process, and nobody else would get an answer.


class StreamSlots:
    def __init__(self, settings: StreamSettings, connections: int) -> None:
        """`connections` is the largest number of open connections. A quarter of them is kept for requests."""
        total = max(1, connections * 3 // 4)
        self._settings = settings
        self._all = Slots(total, total)
        self._of_credentials = Slots(total, settings.per_credential)
        self._of_workspaces = Slots(total, settings.per_workspace)

    @contextmanager
    def opening(self, credential: Credential) -> Iterator[None]:
        """A slot for the time in which the caller is checked. Raises if there is none, before the database is asked:
        a client that opens stream after stream then costs little."""
        with ExitStack() as held:
            if not self._all.take_now(None):
                raise errors.unavailable("This server has too many open event streams. Try again shortly.")
            held.callback(self._all.release, None)
            if not self._of_credentials.take_now(credential):
                raise errors.too_many_streams("credential", self._settings.per_credential)
            held.callback(self._of_credentials.release, credential)
            yield

    @contextmanager
    def hold(self, credential: Credential, workspace_id: UUID) -> Iterator[None]:
        """A slot for one stream, until the `with` block ends. Raises if there is none."""
        with self.opening(credential):
            if not self._of_workspaces.take_now(workspace_id):
                raise errors.too_many_streams("workspace", self._settings.per_workspace)
            try:
                yield
            finally:
                self._of_workspaces.release(workspace_id)


# Loads pages of session logs for open streams. Streams at the same position share one query and one encoding.

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
