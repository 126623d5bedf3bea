"""Connections and transactions. All database access of an API process, except for inputs, goes through `Database`.

A caller is told within five seconds that the database is not available. Work that takes longer is not cancelled,
because the outcome of a cancelled commit is unknown: it ends by PostgreSQL's timeouts, and the caller is told that the
outcome is unknown.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from secrets import SystemRandom
from typing import TypeVar, TypeVarTuple
from uuid import UUID

import psycopg
from msgspec import Struct
from psycopg import AsyncConnection

from quarterdeck.core import errors
from quarterdeck.core.errors import ServiceError
from quarterdeck.core.settings import DatabaseSettings
from quarterdeck.db import driver_errors, pool
from quarterdeck.db.pool import app_settings, as_options

T = TypeVar("T")
# Arguments of the work after the connection.
Given = TypeVarTuple("Given")
Connection = pool.Connection
Work = Callable[[Connection], Awaitable[T]]
WorkWith = Callable[[Connection, *Given], Awaitable[T]]

_CONNECT_SECONDS = 3
_random = SystemRandom()


class Database:
    """All callers share the connections, so nobody waits long for a lock with a connection in hand: the work is rolled
    back, its connection goes back to the pool, and the work is repeated after a pause. Work for a request names its
    `owner`, the workspace, which holds at most a share of the connections. Work without an owner is the process's own.
    """

    def __init__(self, url: str, settings: DatabaseSettings) -> None:
        self._settings = settings
        self._pool = make_pool(url, settings, settings.pool_connections, settings.workspace_share)
        # Called after each commit with the ids that its work has announced, if there are any.
        self.on_commit: Callable[[set[UUID]], None] | None = None
        # asyncio keeps no reference to running tasks.
        self._running: set[asyncio.Task[object]] = set()

    async def open(self) -> None:
        await self._pool.open()

    async def close(self) -> None:
        await self._pool.close(self._settings.statement_seconds)

    async def read(self, work: WorkWith[*Given, T], *given: *Given, owner: Hashable | None = None) -> T:
        """Statements outside a transaction. Repeated once if the connection is lost."""
        attempts = _Attempts(owner, in_transaction=False, repeatable=True, when_locked=errors.unavailable())
        return await self._bounded(self._run(lambda c: work(c, *given), attempts), errors.unavailable())

    async def statement(
        self, work: WorkWith[*Given, T], *given: *Given, repeatable: bool, owner: Hashable | None = None
    ) -> T:
        """One statement that changes something. It is a transaction by itself, without BEGIN and COMMIT."""
        attempts = _Attempts(owner, in_transaction=False, repeatable=repeatable, when_locked=errors.locked())
        return await self._bounded(self._run(lambda c: work(c, *given), attempts), _overdue(repeatable=repeatable))

    async def transaction(
        self, work: WorkWith[*Given, T], *given: *Given, repeatable: bool, owner: Hashable | None = None
    ) -> T:
        """One transaction. `work` may run several times: what it keeps outside the database must not count if its
        transaction is rolled back. `repeatable`: doing `work` twice has one effect. If the connection is lost during
        the commit, repeatable work is done again; otherwise the caller is told that the outcome is unknown."""
        attempts = _Attempts(owner, in_transaction=True, repeatable=repeatable, when_locked=errors.locked())
        return await self._bounded(self._run(lambda c: work(c, *given), attempts), _overdue(repeatable=repeatable))

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

    async def _run(self, work: Work[T], attempts: "_Attempts") -> T:
        """Repeats work that waits for a lock until `lock_wait_seconds` have passed, and other failures once."""
        deadline = time.monotonic() + self._settings.lock_wait_seconds
        wait_seconds: float | None = None
        locked: psycopg.Error | None = None
        is_repeated = False
        while True:
            try:
                return await self._once(work, attempts, wait_seconds)
            except driver_errors.LOCKED as fault:
                locked = fault
            except (_Retry, *driver_errors.CONTENTION) as fault:
                if is_repeated:
                    raise _translated(fault) from fault
                is_repeated = True
                continue
            except pool.ShareTaken:
                # Without a cause, which would be logged: one caller could fill the log.
                if locked is None or time.monotonic() < deadline:
                    raise errors.unavailable() from None
            except driver_errors.NO_CONNECTION as fault:
                if locked is None or time.monotonic() < deadline:
                    raise driver_errors.translate(fault) from fault
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise attempts.when_locked from locked
            await asyncio.sleep(min(remaining, lock_pause_seconds(self._settings)))
            wait_seconds = max(deadline - time.monotonic(), self._settings.lock_attempt_seconds)

    async def _once(self, work: Work[T], attempts: "_Attempts", wait_seconds: float | None) -> T:
        committing = False
        try:
            in_transaction = attempts.in_transaction
            async with self._pool.lease(attempts.owner, wait_seconds, in_transaction=in_transaction) as connection:
                # New for each attempt: what was rolled back is not announced.
                announced = connection.announced = None if self.on_commit is None else set()
                # A statement outside a transaction commits by itself.
                committing = not in_transaction
                result = await work(connection)
                committing = True
            if announced and self.on_commit is not None:
                self.on_commit(announced)
            return result
        except (*driver_errors.CONTENTION, *driver_errors.NO_CONNECTION):
            raise
        except psycopg.Error as fault:
            if driver_errors.connection_lost(fault):
                if committing and not attempts.repeatable:
                    raise errors.outcome_unknown() from fault
                raise _Retry from fault
            raise driver_errors.translate(fault) from fault


class _Attempts(Struct, frozen=True):
    """How work is done, and what its caller is told if a lock stays taken."""

    owner: Hashable | None
    in_transaction: bool
    repeatable: bool
    when_locked: ServiceError


class _Retry(Exception):
    """The connection was lost. Nothing was stored, or storing it again is harmless."""


def _overdue(*, repeatable: bool) -> ServiceError:
    return errors.unavailable() if repeatable else errors.outcome_unknown()


def _translated(fault: _Retry | psycopg.Error) -> ServiceError:
    return errors.unavailable() if isinstance(fault, _Retry) else driver_errors.translate(fault)


def lock_pause_seconds(settings: DatabaseSettings) -> float:
    """The pause after an attempt that waited for a lock. Random, so that those who wait do not return together."""
    return settings.lock_attempt_seconds * _random.uniform(0.5, 1.5)


def make_pool(
    url: str, settings: DatabaseSettings, size: int, owner_share: float = 1.0, name: str = "main"
) -> pool.Pool:
    """Its connections wait for a lock only for the time of one attempt."""
    lock_seconds = min(settings.lock_attempt_seconds, settings.lock_wait_seconds)
    values = app_settings(settings, lock_seconds)
    return pool.Pool(
        url, size, values, settings.pool_wait_seconds, owner_share, has_pooler=settings.has_pooler, name=name
    )


def connection_options(settings: DatabaseSettings) -> str:
    """For a connection to PostgreSQL itself."""
    return as_options(app_settings(settings))


async def connect(url: str, settings: DatabaseSettings) -> Connection:
    """To PostgreSQL itself, for notifications: a pooler in transaction mode does not deliver them."""
    options = connection_options(settings)
    return await AsyncConnection.connect(url, autocommit=True, options=options, connect_timeout=_CONNECT_SECONDS)
