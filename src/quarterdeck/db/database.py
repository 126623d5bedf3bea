"""Connections and transactions. All database access of an API process, except for inputs, goes through `Database`.

A caller is told within five seconds that the database is not available. Work that takes longer is not cancelled,
because the outcome of a cancelled commit is unknown: it ends by PostgreSQL's timeouts, and the caller is told that the
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
        # asyncio keeps no reference to running tasks.
        self._running: set[asyncio.Task[object]] = set()

    async def open(self) -> None:
        await self._pool.open()

    async def close(self) -> None:
        await self._pool.close(self._settings.statement_seconds)

    async def read(self, work: Work[T]) -> T:
        """Statements outside a transaction. Repeated once if the connection is lost."""
        return await self._bounded(self._run(work, in_transaction=False, repeatable=True), errors.unavailable())

    async def statement(self, work: Work[T], *, repeatable: bool) -> T:
        """One statement that changes something. It is a transaction by itself, without BEGIN and COMMIT."""
        overdue = errors.unavailable() if repeatable else errors.outcome_unknown()
        return await self._bounded(self._run(work, in_transaction=False, repeatable=repeatable), overdue)

    async def transaction(self, work: Work[T], *, repeatable: bool) -> T:
        """One transaction. `repeatable`: doing `work` twice has one effect. If the connection is lost during the
        commit, repeatable work is done again; otherwise the caller is told that the outcome is unknown."""
        overdue = errors.unavailable() if repeatable else errors.outcome_unknown()
        return await self._bounded(self._run(work, in_transaction=True, repeatable=repeatable), overdue)

    async def in_batches(self, delete: Work[int], batch: int) -> int:
        """Deletes rows `batch` at a time, each batch in its own transaction, so that no lock is held for long."""
        deleted = 0
        while True:
            count = await self.transaction(delete, repeatable=True)
            deleted += count
            if count < batch:
                return deleted

    async def _bounded(self, running: Awaitable[T], overdue: ServiceError) -> T:
        task = asyncio.ensure_future(running)
        self._running.add(task)
        task.add_done_callback(self._retrieve)
        done, _ = await asyncio.wait({task}, timeout=self._settings.statement_seconds + 0.5)
        if done:
            return task.result()
        raise overdue

    def _retrieve(self, task: "asyncio.Task[object]") -> None:
        self._running.discard(task)
        if not task.cancelled():
            # Marks the exception as retrieved: the caller may have timed out or been cancelled.
            task.exception()

    async def _run(self, work: Work[T], *, in_transaction: bool, repeatable: bool) -> T:
        try:
            return await self._once(work, in_transaction=in_transaction, repeatable=repeatable)
        except (_Retry, *driver_errors.CONTENTION):
            pass
        try:
            return await self._once(work, in_transaction=in_transaction, repeatable=repeatable)
        except _Retry as retry:
            raise errors.unavailable() from retry.__cause__
        except psycopg.Error as fault:
            raise driver_errors.translate(fault) from fault

    async def _once(self, work: Work[T], *, in_transaction: bool, repeatable: bool) -> T:
        committing = False
        try:
            async with self._pool.lease() as connection:
                if not in_transaction:
                    # A statement commits by itself.
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
                raise _Retry from fault
            raise driver_errors.translate(fault) from fault


class _Retry(Exception):
    """The connection was lost. Nothing was stored, or storing it again is harmless."""


def make_pool(url: str, settings: DatabaseSettings, size: int) -> pool.Pool:
    return pool.Pool(url, size, connection_options(settings), settings.pool_wait_seconds)


def connection_options(settings: DatabaseSettings) -> str:
    values = {
        "lock_timeout": f"{settings.lock_wait_seconds * 1000:.0f}",
        "statement_timeout": f"{settings.statement_seconds * 1000:.0f}",
        "idle_in_transaction_session_timeout": f"{settings.statement_seconds * 1000:.0f}",
        "TimeZone": "UTC",
    }
    return f"{role_options(settings.role, SCHEMA)} {_as_options(values)}"


def role_options(role: str, search_path: str) -> str:
    values = {
        # Applies from the first statement on, whichever user logs in.
        "role": role,
        "search_path": search_path,
        # PostgreSQL lets every role change its own defaults for later connections. These options override those that
        # would break what we rely on: durable commits, fresh reads after a lock, open connections, values as psycopg
        # reads them.
        "synchronous_commit": "on",
        "default_transaction_read_only": "off",
        "default_transaction_isolation": r"read\ committed",
        "default_transaction_deferrable": "off",
        "idle_session_timeout": "0",
        "DateStyle": "ISO",
        "IntervalStyle": "postgres",
        "bytea_output": "hex",
        "array_nulls": "on",
        "standard_conforming_strings": "on",
    }
    return _as_options(values)


def _as_options(values: dict[str, str]) -> str:
    return " ".join(f"-c {name}={value}" for name, value in values.items())
