"""The hub of all open event streams of a process. It holds one database connection that listens for notifications.

Through the same connection it checks periodically, for all subscriptions at once, whether their callers may still read
and whether their logs have grown. So a lost notification only delays an event, and a stream whose permission cannot be
checked receives nothing.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

import psycopg
from psycopg import AsyncConnection

from quarterdeck.auth.access import find_principals
from quarterdeck.core.logging import log
from quarterdeck.core.settings import DatabaseSettings, StreamSettings
from quarterdeck.db.database import Connection, connection_options
from quarterdeck.events import notifications, store
from quarterdeck.events.subscription import Subscription

_MIN_PAUSE_SECONDS = 0.05
_MAX_PAUSE_SECONDS = 1.0
_CONNECT_SECONDS = 3


class EventHub:
    def __init__(self, url: str, database: DatabaseSettings, stream: StreamSettings) -> None:
        self._url = url
        self._database = database
        self._check_seconds = stream.check_seconds
        self._subscriptions: dict[UUID, set[Subscription]] = {}
        self._is_stopped = False
        self._listener: asyncio.Task[None] | None = None

    async def open(self) -> None:
        self._listener = asyncio.create_task(self._listen_forever())

    async def close(self) -> None:
        self.stop()
        if self._listener is not None:
            self._listener.cancel()
            await asyncio.gather(self._listener, return_exceptions=True)

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
                async with await self._connect() as connection:
                    await store.listen(connection)
                    pause_seconds = _MIN_PAUSE_SECONDS
                    await self._listen(connection)
            except (psycopg.Error, OSError, TimeoutError) as fault:
                log.debug("the listening connection was lost; reconnecting", exc_info=fault)
            except Exception as fault:
                log.error("the event hub failed; restarting it", exc_info=fault)
            await asyncio.sleep(pause_seconds)
            pause_seconds = min(2 * pause_seconds, _MAX_PAUSE_SECONDS)

    async def _connect(self) -> Connection:
        options = connection_options(self._database)
        return await AsyncConnection.connect(
            self._url, autocommit=True, options=options, connect_timeout=_CONNECT_SECONDS
        )

    async def _listen(self, connection: Connection) -> None:
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

    def _dispatch(self, payload: str) -> None:
        notification = notifications.parse(payload)
        if notification is None:
            return
        for session_id in notification.session_ids:
            for subscription in self._subscriptions.get(session_id, ()):
                subscription.request_read()
        if notification.delta is not None:
            for subscription in self._subscriptions.get(notification.delta.session_id, ()):
                subscription.add_delta(notification.delta)
        if notification.retry is not None:
            for subscription in self._subscriptions.get(notification.retry.session_id, ()):
                subscription.add_retry(notification.retry)

    def _all(self) -> list[Subscription]:
        return [subscription for of_session in self._subscriptions.values() for subscription in of_session]
