"""Connections and transactions. Everything that talks to PostgreSQL in an API process goes through `Database`.

A caller hears within five seconds that the database is away. Work that outlives that is not cancelled, since a
cancelled commit is neither done nor undone: it ends by PostgreSQL's own timeouts, and the caller is told that the
outcome is unknown.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import psycopg

from quarterdeck.core import errors
from quarterdeck.core.errors import ServiceError
from quarterdeck.core.settings import DatabaseSettings
from quarterdeck.db import driver_errors, pool

T = TypeVar("T")
Connection = pool.Connection
Work = Callable[[Connection], Awaitable[T]]

SCHEMA = "app"


class Database:
    def __init__(self, url: str, settings: DatabaseSettings) -> None:
        self._settings = settings
        self._pool = make_pool(url, settings, settings.pool_connections)
        # Held here, since a task that nobody holds may be thrown away before it ends.
        self._under_way: set[asyncio.Task[object]] = set()

    async def open(self) -> None:
        await self._pool.open()

    async def close(self) -> None:
        await self._pool.close(self._settings.statement_seconds)

    async def read(self, work: Work[T]) -> T:
        """Statements outside a transaction, repeated once when the connection turns out to be dead."""
        return await self._bounded(self._run(work, in_transaction=False, repeatable=True), errors.unavailable())

    async def statement(self, work: Work[T], *, repeatable: bool) -> T:
        """One statement that changes something, a transaction by itself and without the round trips of one."""
        overdue = errors.unavailable() if repeatable else errors.outcome_unknown()
        return await self._bounded(self._run(work, in_transaction=False, repeatable=repeatable), overdue)

    async def transaction(self, work: Work[T], *, repeatable: bool) -> T:
        """One transaction. `repeatable` says that doing `work` twice has one effect, so that a commit whose answer
        was lost is settled by doing it again; otherwise the caller is told that the outcome is unknown."""
        overdue = errors.unavailable() if repeatable else errors.outcome_unknown()
        return await self._bounded(self._run(work, in_transaction=True, repeatable=repeatable), overdue)

    async def in_batches(self, remove: Work[int], batch: int) -> int:
        """Removes old rows `batch` at a time, each its own transaction: nobody is held up, however many there are."""
        removed = 0
        while True:
            count = await self.transaction(remove, repeatable=True)
            removed += count
            if count < batch:
                return removed

    async def _bounded(self, running: Awaitable[T], overdue: ServiceError) -> T:
        task = asyncio.ensure_future(running)
        self._under_way.add(task)
        task.add_done_callback(self._forget)
        done, _ = await asyncio.wait({task}, timeout=self._settings.statement_seconds + 0.5)
        if done:
            return task.result()
        raise overdue

    def _forget(self, task: "asyncio.Task[object]") -> None:
        self._under_way.discard(task)
        if not task.cancelled():
            # Reading it marks it as seen: its caller may have had its answer, or have been cancelled.
            task.exception()

    async def _run(self, work: Work[T], *, in_transaction: bool, repeatable: bool) -> T:
        try:
            return await self._once(work, in_transaction=in_transaction, repeatable=repeatable)
        except (_Again, *driver_errors.CONTENTION):
            pass
        try:
            return await self._once(work, in_transaction=in_transaction, repeatable=repeatable)
        except _Again as again:
            raise errors.unavailable() from again.__cause__
        except psycopg.Error as fault:
            raise driver_errors.translate(fault) from fault

    async def _once(self, work: Work[T], *, in_transaction: bool, repeatable: bool) -> T:
        committing = False
        try:
            async with self._pool.lease() as connection:
                if not in_transaction:
                    # What changes something here is committed with the statement itself.
                    committing = True
                    return await work(connection)
                async with connection.transaction():
                    result = await work(connection)
                    committing = True
                return result
        except driver_errors.CONTENTION:
            raise
        except psycopg.Error as fault:
            if driver_errors.connection_lost(fault):
                if committing and not repeatable:
                    raise errors.outcome_unknown() from fault
                raise _Again from fault
            raise driver_errors.translate(fault) from fault


class _Again(Exception):
    """Nothing was stored, or storing it again is harmless."""


def make_pool(url: str, settings: DatabaseSettings, size: int) -> pool.Pool:
    return pool.Pool(url, size, connection_options(settings), settings.pool_wait_seconds)


def connection_options(settings: DatabaseSettings) -> str:
    values = {
        "lock_timeout": f"{settings.lock_wait_seconds * 1000:.0f}",
        "statement_timeout": f"{settings.statement_seconds * 1000:.0f}",
        "idle_in_transaction_session_timeout": f"{settings.statement_seconds * 1000:.0f}",
        "TimeZone": "UTC",
    }
    return f"{role_options(settings.role, SCHEMA)} {_written(values)}"


def role_options(role: str, search_path: str) -> str:
    values = {
        # Whoever logs in, from its first statement on.
        "role": role,
        "search_path": search_path,
        # A role can change its own defaults, and they outlast who changed them.
        "synchronous_commit": "on",
        "default_transaction_read_only": "off",
    }
    return _written(values)


def _written(values: dict[str, str]) -> str:
    return " ".join(f"-c {name}={value}" for name, value in values.items())
