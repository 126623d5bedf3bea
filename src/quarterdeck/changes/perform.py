"""How changes are made: the checks in their promised order, the effect, its entry in the audit log and the receipt, all
in one transaction. (Two do the same in one SQL function each, in `db/functions/`: inputs, without the audit log, and
pushes.)
"""

import hashlib
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar
from uuid import UUID

import msgspec
from msgspec import Struct

from quarterdeck.audit.model import Change, ObjectType
from quarterdeck.audit.service import record_change
from quarterdeck.auth.access import Access, Hold, Lookup
from quarterdeck.changes import store
from quarterdeck.changes.store import Claim
from quarterdeck.core import errors
from quarterdeck.core.actors import Permission, Principal
from quarterdeck.core.call import Answer, Call
from quarterdeck.db.database import Connection, Database

Body = TypeVar("Body")
Subject = TypeVar("Subject")


class Made(Struct, frozen=True, kw_only=True):
    """What an effect produced: what the caller is shown now, and what a replay shows."""

    shown: Struct | None
    kept: Struct | None
    # What the audit log says of it. An effect that found everything as wanted has changed nothing.
    object_id: UUID
    detail: dict[str, Any] = {}
    changed: bool = True

    @classmethod
    def plain(cls, shown: Struct, object_id: UUID, **detail: object) -> "Made":
        return cls(shown=shown, kept=shown, object_id=object_id, detail=detail)


Effect = Callable[[Connection, Principal, Subject, Body], Awaitable[Made]]


class Changes:
    def __init__(self, database: Database, access: Access) -> None:
        self._database = database
        self._access = access

    async def perform(
        self,
        call: Call[Body],
        *,
        operation: str,
        lookup: Lookup[Subject],
        permission: Permission,
        resource: tuple[UUID, ...],
        about: ObjectType,
        effect: Effect[Subject, Body],
        hold: Hold = Hold.SHARED,
    ) -> Answer:
        mine: tuple[bytes, bytes] | None = None

        async def work(connection: Connection) -> Answer:
            nonlocal mine
            principal, subject = await self._access.admit(connection, call, lookup, permission, hold=hold)
            body = call.read_body()
            claim = None
            if call.idempotency_key is not None:
                claim = Claim(principal.scope_id, operation, call.idempotency_key, fingerprint(resource, body))
                await store.lock(connection, claim)
                receipt = await store.find(connection, claim)
                if receipt is not None:
                    if receipt.fingerprint != claim.fingerprint:
                        raise errors.key_reused()
                    # Our own first try was committed and only its answer was lost: the caller may still see the secret.
                    if mine is not None and mine[1] == receipt.body:
                        return Answer(mine[0])
                    return Answer(receipt.body, replayed=True)
            made = await effect(connection, principal, subject, body)
            if made.changed:
                change = Change(operation, about, made.object_id, made.detail)
                await record_change(connection, principal, call.origin, change)
            mine = _encoded(made.shown), _encoded(made.kept)
            if claim is not None:
                await store.save(connection, claim, mine[1])
            return Answer(mine[0])

        return await self._database.transaction(work, repeatable=call.idempotency_key is not None)


def _encoded(record: Struct | None) -> bytes:
    return b"" if record is None else msgspec.json.encode(record)


def fingerprint(resource: tuple[UUID, ...], body: object) -> bytes:
    """Of what was meant, not of how it was written: the decoded body, encoded one way."""
    digest = hashlib.sha256()
    for identifier in resource:
        digest.update(identifier.bytes)
    digest.update(msgspec.json.encode(body))
    return digest.digest()


async def sweep_receipts(database: Database, keep_days: int, batch: int) -> int:
    async def delete(connection: Connection) -> int:
        return await store.delete_old(connection, keep_days, batch)

    return await database.in_batches(delete, batch)
