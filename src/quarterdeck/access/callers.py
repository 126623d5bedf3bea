"""Whose the credentials are that come with reads, looked up for many callers at once.

Who comes while a look-up is under way is looked up in the next one, together with all others who came. Nobody waits for
a batch to fill: a caller who finds none under way makes its own, on the connection that it reads with. Nothing is
remembered: each look-up begins after its callers came, so that a revocation reaches everybody who comes after it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from quarterdeck.access import store
from quarterdeck.access.model import Credential, Principal
from quarterdeck.db.database import Connection, Database
from quarterdeck.db.together import Together

T = TypeVar("T")
# None: the credential is nobody's, or no longer alive.
Work = Callable[[Connection, Principal | None], Awaitable[T]]

# A revocation takes effect within a second. Who waits longer than this for a connection is looked up again.
_FRESH_SECONDS = 0.5


class Callers:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._look_ups = Together(self._look_up)

    async def read(self, credential: Credential, work: Work[T]) -> T:
        """Statements outside a transaction, done for whoever this is."""
        turn = self._look_ups.begin_alone()
        if turn is None:
            return await self._after_others(credential, work)

        async def alone(connection: Connection) -> T:
            principal = await _find(connection, credential)
            self._look_ups.end(turn)
            return await work(connection, principal)

        return await self._database.read(alone)

    async def _after_others(self, credential: Credential, work: Work[T]) -> T:
        principal = await self._look_ups.ask(credential)
        loop = asyncio.get_running_loop()
        stale_at = loop.time() + _FRESH_SECONDS

        async def known(connection: Connection) -> T:
            is_fresh = loop.time() < stale_at
            return await work(connection, principal if is_fresh else await _find(connection, credential))

        return await self._database.read(known)

    async def _look_up(self, credentials: Sequence[Credential]) -> list[Principal | None]:
        async def find(connection: Connection) -> dict[Credential, Principal]:
            return await store.find_principals(connection, set(credentials))

        found = await self._database.read(find)
        return [found.get(credential) for credential in credentials]


async def _find(connection: Connection, credential: Credential) -> Principal | None:
    return (await store.find_principals(connection, [credential])).get(credential)
