"""Whose the credentials are that come with reads, looked up for many callers at once.

Who comes while a look-up is under way is looked up in the next one, together with all others who came. Nobody waits for
a batch to fill: a caller who finds none under way makes its own, on the connection that it reads with. Nothing is
remembered: each look-up begins after its callers came, so that a revocation reaches everybody who comes after it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import TypeVar

from msgspec import Struct

from quarterdeck import errors
from quarterdeck.access import store
from quarterdeck.access.model import Credential, Principal
from quarterdeck.db.database import Connection, Database
from quarterdeck.errors import ServiceError

T = TypeVar("T")
# None: the credential is nobody's, or no longer alive.
Work = Callable[[Connection, Principal | None], Awaitable[T]]

# What comes while a look-up is under way is left to it for so long. One takes a millisecond.
_QUICK_SECONDS = 0.005
_AT_ONCE = 256
# A revocation takes effect within a second. Who waits longer than this for a connection is looked up again.
_FRESH_SECONDS = 0.5


class _Newcomer(Struct, frozen=True, eq=False):
    credential: Credential
    principal: "asyncio.Future[Principal | None]"


class Callers:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._newcomers: list[_Newcomer] = []
        # While it runs, the latest look-up counts as quick.
        self._quick: asyncio.TimerHandle | None = None
        self._look_ups: set[asyncio.Task[None]] = set()

    async def read(self, credential: Credential, work: Work[T]) -> T:
        """Statements outside a transaction, done for whoever this is."""
        if self._quick is not None:
            return await self._after_others(credential, work)
        turn = self._begin()

        async def alone(connection: Connection) -> T:
            principal = await _find(connection, credential)
            self._end(turn)
            return await work(connection, principal)

        return await self._database.read(alone)

    async def _after_others(self, credential: Credential, work: Work[T]) -> T:
        loop = asyncio.get_running_loop()
        newcomer = _Newcomer(credential, loop.create_future())
        self._newcomers.append(newcomer)
        principal = await newcomer.principal
        stale_at = loop.time() + _FRESH_SECONDS

        async def known(connection: Connection) -> T:
            is_fresh = loop.time() < stale_at
            return await work(connection, principal if is_fresh else await _find(connection, credential))

        return await self._database.read(known)

    def _begin(self) -> asyncio.TimerHandle:
        """The timer also goes on in place of a look-up that never comes to its end."""
        self._quick = turn = asyncio.get_running_loop().call_later(_QUICK_SECONDS, self._go_on)
        return turn

    def _end(self, turn: asyncio.TimerHandle) -> None:
        turn.cancel()
        if self._quick is turn:
            self._go_on()

    def _go_on(self) -> None:
        """With who came meanwhile: the look-up has ended, or takes too long for those who are not in it."""
        self._quick = None
        if self._newcomers:
            look_up = asyncio.create_task(self._look_up(self._begin()))
            self._look_ups.add(look_up)
            look_up.add_done_callback(self._look_ups.discard)

    async def _look_up(self, turn: asyncio.TimerHandle) -> None:
        batch, self._newcomers = self._newcomers[:_AT_ONCE], self._newcomers[_AT_ONCE:]
        credentials = {newcomer.credential for newcomer in batch}
        try:
            found = await self._database.read(partial(store.find_principals, credentials=credentials))
        except Exception as fault:
            _fail(batch, fault)
        else:
            for newcomer in batch:
                # Its caller may have lost patience.
                if not newcomer.principal.done():
                    newcomer.principal.set_result(found.get(newcomer.credential))
        self._end(turn)


async def _find(connection: Connection, credential: Credential) -> Principal | None:
    return (await store.find_principals(connection, [credential])).get(credential)


def _fail(newcomers: Iterable[_Newcomer], cause: Exception) -> None:
    for newcomer in newcomers:
        # One each: an exception that is raised in several places gathers the tracebacks of all.
        error = ServiceError(cause.kind, cause.message) if isinstance(cause, ServiceError) else errors.internal()
        error.__cause__ = cause
        if not newcomer.principal.done():
            newcomer.principal.set_exception(error)
