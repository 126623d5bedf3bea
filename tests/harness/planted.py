"""Bugs that this service could have had, each the obvious way to write it. The harness must catch every one.

They are planted in processes that the harness starts, and in its database. Nothing of this is reached otherwise.
"""

import asyncio
import io
import re
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from typing import IO, Any
from uuid import UUID

from msgspec import Struct

from quarterdeck.changes import store as receipts
from quarterdeck.changes.store import Claim
from quarterdeck.conversations.events import log
from quarterdeck.conversations.runs import lifecycle, lifecycle_store
from quarterdeck.conversations.runs.lifecycle import Lease
from quarterdeck.db.database import Connection, Database
from quarterdeck.skills.bundle_store import BundleStore

_SAVE_IF_FIRST = """
INSERT INTO receipts (scope_id, operation, key, fingerprint, body) VALUES (%s, %s, %s, %s, %s) ON CONFLICT DO NOTHING
"""


class Bug(Struct, frozen=True):
    # What a reader of the code would have thought.
    says: str
    # What it leads to, as a violation says it.
    shows: str
    plant: Callable[[], None] = lambda: None
    # For the database, as its owner; and what is taken out of one of its functions.
    sql: str | None = None
    function: str = "submit_inputs"
    without: str | None = None
    # The faults that bring it out. None: plain load does.
    needs: tuple[str, ...] = ()

    def is_shown_by(self, violations: Sequence[str]) -> bool:
        return any(re.search(self.shows, violation) for violation in violations)


def _receipt_in_a_second_transaction() -> None:
    waiting: ContextVar[list[tuple[Claim, bytes]] | None] = ContextVar("waiting", default=None)
    once = Database.transaction

    async def save_later(connection: Connection, claim: Claim, body: bytes) -> None:
        unsaved = waiting.get()
        assert unsaved is not None
        unsaved.append((claim, body))

    async def transaction(self: Database, work: Callable[[Connection], Awaitable[Any]], *, repeatable: bool) -> Any:
        unsaved: list[tuple[Claim, bytes]] = []
        waiting.set(unsaved)
        result = await once(self, work, repeatable=repeatable)

        async def save(connection: Connection) -> None:
            for claim, body in unsaved:
                await _save_if_first(connection, claim, body)

        if unsaved:
            await once(self, save, repeatable=True)
        return result

    _replace(receipts, "save", save_later)
    _replace(Database, "transaction", transaction)


def _check_then_act() -> None:
    async def lock(connection: Connection, claim: Claim) -> None:
        pass

    _replace(receipts, "lock", lock)
    _replace(receipts, "save", _save_if_first)


async def _save_if_first(connection: Connection, claim: Claim, body: bytes) -> None:
    await connection.execute(_SAVE_IF_FIRST, (claim.scope_id, claim.operation, claim.key, claim.fingerprint, body))


def _finish_by_not_exists() -> None:
    finishing: ContextVar[bool] = ContextVar("finishing", default=False)
    finish, lock = lifecycle.finish, log.lock_session

    async def unlocked_finish(database: Database, lease: Lease) -> bool:
        token = finishing.set(True)
        try:
            return await finish(database, lease)
        finally:
            finishing.reset(token)

    async def lock_session(connection: Connection, session_id: UUID) -> None:
        if not finishing.get():
            await lock(connection, session_id)

    _replace(lifecycle, "finish", unlocked_finish)
    _replace(log, "lock_session", lock_session)
    _without(
        lifecycle_store,
        "_SUCCEED",
        "consumed_through = last_input",
        """NOT EXISTS (SELECT FROM session_events e WHERE e.session_id = runs.session_id
           AND e.type = 'input.accepted' AND e.id > runs.consumed_through)""",
    )


def _unfenced_worker() -> None:
    for name in ("_TAKE", "_STEP", "_SUCCEED", "_FAIL", "_GIVE_BACK"):
        _without(lifecycle_store, name, "attempt = %s", "%s::integer IS NOT NULL")


def _blob_after_row() -> None:
    put = BundleStore.put
    under_way: set[asyncio.Task[None]] = set()

    async def put_later(self: BundleStore, sha256: str, generation: UUID, archive: IO[bytes]) -> None:
        archive.seek(0)
        task = asyncio.create_task(put(self, sha256, generation, io.BytesIO(archive.read())))
        under_way.add(task)
        task.add_done_callback(_forget)

    def _forget(task: "asyncio.Task[None]") -> None:
        under_way.discard(task)
        if not task.cancelled():
            task.exception()

    _replace(BundleStore, "put", put_later)


_TWICE = r"two answers say|different answers|made \d+ times|stored \d+ times|done again"

BUGS = {
    "receipt-in-a-second-transaction": Bug(
        "the receipt is saved when the work is done", _TWICE, _receipt_in_a_second_transaction
    ),
    "check-then-act": Bug("no receipt was found, so this is the first request", _TWICE, _check_then_act),
    "steer-without-the-lock": Bug(
        "one row is updated, which needs no further lock",
        r"a stream missed|lost",
        without="""        SELECT session_lock(s) FROM unnest(session_ids) AS s
        UNION
""",
    ),
    "max-plus-one": Bug(
        "the next version is the highest plus one",
        r"versions given twice",
        sql="ALTER TABLE app.skill_versions DROP CONSTRAINT skill_versions_number CASCADE",
        function="push_skill_version",
        without="FOR NO KEY UPDATE",
    ),
    "finish-by-not-exists": Bug(
        "the statement looks for inputs itself", r"a stream missed|lost", _finish_by_not_exists
    ),
    "unfenced-worker": Bug(
        "only its worker writes to a run",
        r"step \d+ was stored|carried out|after its end|ended \d+ times",
        _unfenced_worker,
        needs=("pause a worker",),
    ),
    "blob-after-row": Bug(
        "the archive can be written while the row is committed",
        r"has no bundle",
        _blob_after_row,
        needs=("fill the disk", "kill an API process"),
    ),
}


def _replace(owner: Any, name: str, value: object) -> None:
    assert hasattr(owner, name), f"{owner} has no {name} any more"
    setattr(owner, name, value)


def _without(module: Any, name: str, text: str, instead: str = "") -> None:
    statement: str = getattr(module, name)
    assert text in statement, f"{name} does not say {text!r} any more"
    setattr(module, name, statement.replace(text, instead))
