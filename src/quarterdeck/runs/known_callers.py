"""Who was seen to have access, as a hint: whoever is known is let into the queue and judged again by the database.

Newcomers are asked about together, since most sessions are new to a process when their first input comes.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Iterable
from functools import partial
from uuid import UUID

from msgspec import Struct

from quarterdeck import errors
from quarterdeck.access.model import Credential, CredentialKind
from quarterdeck.db.database import Database
from quarterdeck.errors import ServiceError
from quarterdeck.runs import store
from quarterdeck.runs.model import Caller

_AT_ONCE = 256


class _Newcomer(Struct, frozen=True, eq=False):
    caller: Caller
    is_admitted: "asyncio.Future[bool]"


class KnownCallers:
    def __init__(self, database: Database, most: int) -> None:
        self._database = database
        self._most = most
        # Bytes and not tuples: tens of thousands of those would be looked through by the garbage collector.
        self._known: OrderedDict[bytes, None] = OrderedDict()
        self._newcomers: list[_Newcomer] = []
        self._asking: asyncio.Task[None] | None = None

    async def know(self, credential: Credential, session_id: UUID, workspace_id: UUID | None) -> bool:
        """False tells nothing: whoever is not known has to be looked at by itself. Tokens always are, since each has a
        session of its own."""
        if _key(credential.secret_hash, session_id, workspace_id) in self._known:
            return True
        if credential.kind is not CredentialKind.API_KEY:
            return False
        caller = Caller(credential.secret_hash, session_id, workspace_id)
        newcomer = _Newcomer(caller, asyncio.get_running_loop().create_future())
        self._newcomers.append(newcomer)
        if self._asking is None:
            self._asking = asyncio.create_task(self._ask())
        return await newcomer.is_admitted

    def add(self, credential: Credential, session_id: UUID, workspace_id: UUID | None) -> None:
        self._add(Caller(credential.secret_hash, session_id, workspace_id))

    def _add(self, caller: Caller) -> None:
        self._known[_key(caller.secret_hash, caller.session_id, caller.workspace_id)] = None
        if len(self._known) > self._most:
            # The one that came first. It is asked for once more when it comes again.
            self._known.popitem(last=False)

    async def _ask(self) -> None:
        try:
            while self._newcomers:
                batch, self._newcomers = self._newcomers[:_AT_ONCE], self._newcomers[_AT_ONCE:]
                callers = [newcomer.caller for newcomer in batch]
                try:
                    admitted = await self._database.read(partial(store.admitted, callers=callers))
                except Exception as fault:
                    # Those who came meanwhile too: they have waited as long as anybody should for a database.
                    waiting, self._newcomers = [*batch, *self._newcomers], []
                    _fail(waiting, fault)
                    continue
                for place, newcomer in enumerate(batch):
                    if place in admitted:
                        self._add(newcomer.caller)
                    # Its caller may have lost patience.
                    if not newcomer.is_admitted.done():
                        newcomer.is_admitted.set_result(place in admitted)
        finally:
            self._asking = None


def _fail(newcomers: Iterable[_Newcomer], cause: Exception) -> None:
    for newcomer in newcomers:
        error = errors.unavailable() if isinstance(cause, ServiceError) else errors.internal()
        error.__cause__ = cause
        if not newcomer.is_admitted.done():
            newcomer.is_admitted.set_exception(error)


def _key(secret_hash: bytes, session_id: UUID, workspace_id: UUID | None) -> bytes:
    return secret_hash + session_id.bytes + (b"" if workspace_id is None else workspace_id.bytes)
