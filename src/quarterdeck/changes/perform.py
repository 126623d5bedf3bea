"""Makes a change: the checks in their promised order, the effect, the entry in the audit log and the receipt, all in
one transaction. Inputs do the same in `db/functions/submit_inputs.sql`, without the audit log.
"""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

import msgspec
from msgspec import Struct

from quarterdeck.auth.access import Access, Hold, Lookup
from quarterdeck.changes import store
from quarterdeck.changes.audit_log import record_change
from quarterdeck.changes.model import Change, ObjectType
from quarterdeck.changes.store import Claim
from quarterdeck.core import errors
from quarterdeck.core.actors import Principal, without_emails
from quarterdeck.core.call import Answer, Call, fingerprint
from quarterdeck.db.database import Connection, Database
from quarterdeck.db.walks import walk

Body = TypeVar("Body")
Subject = TypeVar("Subject")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Made(Struct, frozen=True, kw_only=True):
    """The result of an effect. `shown` is the response; `kept` is what the receipt stores, without secrets."""

    shown: Struct | None
    kept: Struct | None
    # For the audit log. `changed` is False if everything was as requested already.
    object_id: UUID
    object_name: str | None = None
    detail: dict[str, Any] = {}
    changed: bool = True

    @classmethod
    def plain(
        cls, shown: Struct | None, object_id: UUID, name: str | None = None, changed: bool = True, /, **detail: Any
    ) -> "Made":
        return cls(shown=shown, kept=shown, object_id=object_id, object_name=name, detail=detail, changed=changed)


Effect = Callable[[Connection, Principal, Subject, Body], Awaitable[Made]]


class Changes:
    def __init__(self, database: Database, access: Access) -> None:
        self._database = database
        self._access = access

    async def perform(
        self,
        call: Call[Body],
        lookup: Lookup[Subject],
        about: ObjectType,
        effect: Effect[Subject, Body],
        *,
        hold: Hold = Hold.SHARED,
        locks_workspace: bool = False,
        lock: Callable[[Connection], Awaitable[None]] | None = None,
        compared: Callable[[Body], Body] | None = None,
    ) -> Answer[Any]:
        """`lock` is for receipts that others write under a lock of their own: it is taken before the receipt is looked
        up. `compared` is for bodies with secrets: the receipt has a hash of what it returns."""
        # Response and receipt of our first attempt, if `work` runs a second time.
        first_attempt: tuple[bytes, bytes] | None = None
        name = call.operation.name

        async def work(connection: Connection) -> Answer[Any]:
            nonlocal first_attempt
            principal, subject = await self._access.admit(
                connection, call, lookup, hold=hold, locks_workspace=locks_workspace
            )
            body = call.read_body()
            if lock is not None:
                await lock(connection)
            claim = None
            if call.idempotency_key is not None:
                seen = body if compared is None else compared(body)
                claim = Claim(principal.scope_id, name, call.idempotency_key, fingerprint(call.resource, seen))
                await store.lock_receipt(connection, claim)
                receipt = await store.find_receipt(connection, claim)
                if receipt is not None:
                    if receipt.fingerprint != claim.fingerprint:
                        raise errors.conflict(errors.KEY_REUSED)
                    # Our first attempt was committed and only the answer was lost: the caller may still see the secret.
                    if first_attempt is not None and first_attempt[1] == receipt.body:
                        return Answer(first_attempt[0])
                    return Answer(receipt.body, replayed=True)
            made = await effect(connection, principal, subject, body)
            if made.changed:
                change = Change(name, about, made.object_id, made.detail, made.object_name)
                await record_change(connection, principal, call.origin, change)
            first_attempt = _encoded(made.shown, principal), _encoded(made.kept, principal)
            if claim is not None:
                await store.save_receipt(connection, claim, first_attempt[1])
            return Answer(first_attempt[0])

        return await self._database.transaction(work, repeatable=call.idempotency_key is not None, owner=call.owner)


def _encoded(record: Struct | None, principal: Principal) -> bytes:
    if record is None:
        return b""
    return msgspec.json.encode(record if principal.may_see_emails else without_emails(record))


async def sweep_receipts(database: Database, days: int, shortest_days: int, batch: int) -> int:
    """`days`: the retention of the server. `shortest_days`: of all workspaces."""
    delete = partial(store.delete_old_receipts, days=days, shortest_days=shortest_days, batch=batch)
    return await walk(database, delete, _EPOCH, batch)
