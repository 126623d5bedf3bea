"""Bugs that the fault run must catch, each a plausible way to write the code. They are planted in the processes and in
the database of a fleet; the product has no switch for them.

A bug that needs a race holds one side at the critical moment, so that the race happens each time.
"""

import asyncio
import io
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import IO, Any
from uuid import UUID

from msgspec import Struct

from quarterdeck.blobs.blob_store import BlobStore
from quarterdeck.blobs.model import Blob
from quarterdeck.changes import store as receipts
from quarterdeck.changes.store import Claim
from quarterdeck.db.database import Connection, Database
from quarterdeck.events import log
from quarterdeck.events.model import NewEvent
from quarterdeck.runs import action_rules, calls, lifecycle, lifecycle_store
from quarterdeck.runs.lifecycle import Lease
from quarterdeck.sandbox.manifest import FileChanges
from quarterdeck.session_files import service as session_files
from quarterdeck.skills import store as skills
from quarterdeck.worker import tool_calls

_SAVE_IF_FIRST = """
INSERT INTO receipts (scope_id, operation, key, fingerprint, body) VALUES (%s, %s, %s, %s, %s) ON CONFLICT DO NOTHING
"""

_NO_INPUT = """NOT EXISTS (SELECT FROM session_events e WHERE e.session_id = runs.session_id
    AND e.type = 'input.accepted' AND e.id > runs.consumed_through)"""


class SqlChange(Struct, frozen=True):
    function: str
    text: str
    replacement: str = ""


class Bug(Struct, frozen=True):
    # The wrong assumption behind it.
    assumption: str
    # Pattern of the violations that it causes. No other violation counts.
    violation: str
    plant: Callable[[], None] = lambda: None
    # Executed in the database as its owner.
    sql: str | None = None
    # Texts to replace in SQL functions.
    changes: tuple[SqlChange, ...] = ()
    # Faults that it needs to cause a violation. Most need only the load.
    faults: tuple[str, ...] = ()

    def is_caught(self, violations: Sequence[str]) -> bool:
        return any(re.search(self.violation, violation) for violation in violations)


def _receipt_in_a_second_transaction() -> None:
    unsaved_claims: ContextVar[list[tuple[Claim, bytes]] | None] = ContextVar("unsaved_claims", default=None)
    transaction_once = Database.transaction

    async def save_later(connection: Connection, claim: Claim, body: bytes) -> None:
        unsaved = unsaved_claims.get()
        assert unsaved is not None
        unsaved.append((claim, body))

    async def transaction(self: Database, work: Callable[..., Awaitable[Any]], *given: Any, **options: Any) -> Any:
        unsaved: list[tuple[Claim, bytes]] = []
        unsaved_claims.set(unsaved)
        result = await transaction_once(self, work, *given, **options)

        async def save(connection: Connection) -> None:
            for claim, body in unsaved:
                await _save_if_first(connection, claim, body)

        if unsaved:
            await transaction_once(self, save, repeatable=True)
        return result

    _replace(receipts, "save_receipt", save_later)
    _replace(Database, "transaction", transaction)


def _check_then_act() -> None:
    async def lock(connection: Connection, claim: Claim) -> None:
        pass

    _replace(receipts, "lock_receipt", lock)
    _replace(receipts, "save_receipt", _save_if_first)


async def _save_if_first(connection: Connection, claim: Claim, body: bytes) -> None:
    await connection.execute(_SAVE_IF_FIRST, (claim.scope_id, claim.operation, claim.key, claim.fingerprint, body))


def _finish_by_not_exists() -> None:
    record = lifecycle.record

    async def late_record(database: Database, lease: Lease, *given: Any, **options: Any) -> bool:
        await _wait_until_steered(database, lease.run_id)
        return await record(database, lease, *given, **options)

    _replace(lifecycle, "record", late_record)


async def _wait_until_steered(database: Database, run_id: UUID) -> None:
    """Wait a while for a transaction that holds the row of this run: an input that is being committed."""

    async def is_locked(connection: Connection) -> bool:
        query = "SELECT FROM runs WHERE id = %s FOR NO KEY UPDATE SKIP LOCKED"
        return await (await connection.execute(query, (run_id,))).fetchone() is None

    deadline = time.monotonic() + 1.0
    while time.monotonic() < deadline and not await database.transaction(is_locked, repeatable=True):
        await asyncio.sleep(0.002)


def _hold_commits(table: str, condition: str = "true") -> str:
    """A trigger that holds the commit of a transaction that inserts such a row, with all its locks."""
    return f"""
        CREATE FUNCTION app.hold_commit() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN PERFORM pg_sleep(0.05); RETURN NULL; END $$;
        CREATE CONSTRAINT TRIGGER hold_commit AFTER INSERT ON app.{table} DEFERRABLE INITIALLY DEFERRED
            FOR EACH ROW WHEN ({condition}) EXECUTE FUNCTION app.hold_commit();
    """


def hold_results(seconds: float) -> str:
    """A trigger that holds the note of a call, and the result of a call with effects, before they are stored."""
    return f"""
        CREATE OR REPLACE FUNCTION app.hold_result() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN PERFORM pg_sleep({seconds}); RETURN NEW; END $$;
        CREATE OR REPLACE TRIGGER hold_result BEFORE INSERT ON app.session_events FOR EACH ROW
            WHEN (NEW.type = 'note' OR NEW.type = 'tool.result' AND NEW.data->>'name' IN ('add_note', 'bash'))
            EXECUTE FUNCTION app.hold_result();
    """


def _max_plus_one() -> None:
    _replace_text(
        skills,
        "_ADD_VERSION",
        "latest_version = latest_version + 1",
        "latest_version = (SELECT coalesce(max(v.version), 0) + 1 FROM skill_versions v WHERE v.skill_id = skills.id)",
    )


def _unfenced_worker() -> None:
    for name in ("_TAKE", "_PROGRESS", "_WAIT", "_FAIL", "_GIVE_BACK"):
        _replace_text(lifecycle_store, name, "attempt = %s", "attempt + %s > 0")
    _replace_text(lifecycle_store, "_HOLD", "attempt = %s", "attempt + %s > 0")


def _blob_after_row() -> None:
    put_all = BlobStore.put_all
    tasks: set[asyncio.Task[None]] = set()

    async def put_late(self: BlobStore, contents: Mapping[Blob, IO[bytes]]) -> None:
        copies: dict[Blob, IO[bytes]] = {}
        for blob, content in contents.items():
            content.seek(0)
            copies[blob] = io.BytesIO(content.read())
        task = asyncio.create_task(held_put(self, copies))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    async def held_put(self: BlobStore, contents: Mapping[Blob, IO[bytes]]) -> None:
        # Longer than the pause between two checks of the auditor.
        await asyncio.sleep(2.0)
        await put_all(self, contents)

    _replace(BlobStore, "put_all", put_late)


def _repeat_blindly() -> None:
    def repeat(*_: object) -> None:
        """None: it is carried out again."""

    _replace(tool_calls, "_unknown_outcome", repeat)


def _every_answer_is_accepted() -> None:
    def accept(*_: object) -> None:
        pass

    _replace(action_rules, "check_same_answer", accept)


def _files_apart_from_the_result() -> None:
    record_result = calls.record_result

    async def record_both(
        database: Database, lease: Lease, entry: NewEvent, changes: FileChanges | None = None
    ) -> int | None:
        async def apply(connection: Connection) -> int:
            await log.lock_session(connection, lease.session_id)
            assert changes is not None
            return await session_files.apply_changes(connection, lease.session_id, changes)

        revision = None if changes is None else await database.transaction(apply, repeatable=True)
        # Longer than most pauses between two checks of the auditor.
        await asyncio.sleep(0.0 if changes is None else 0.5)
        await record_result(database, lease, entry)
        return revision

    _replace(calls, "record_result", record_both)


_TWICE = r"two answers that|different answers|made \d+ times|stored \d+ times|done again"

BUGS = {
    "receipt-in-a-second-transaction": Bug(
        "the receipt is saved when the work is done", _TWICE, _receipt_in_a_second_transaction
    ),
    "check-then-act": Bug("no receipt was found, so this is the first request", _TWICE, _check_then_act),
    "steer-without-the-lock": Bug(
        "one row is updated, which needs no further lock",
        r"a stream missed|lost",
        changes=(SqlChange("submit_inputs", " AND take_lock(session_lock(session_ids[i]), wait_for_locks)"),),
    ),
    "max-plus-one": Bug(
        "the next version is the highest plus one",
        r"versions given twice",
        _max_plus_one,
        # The constraint would turn the bug into an error.
        sql="ALTER TABLE app.skill_versions DROP CONSTRAINT skill_versions_number CASCADE;"
        + _hold_commits("skill_versions"),
    ),
    "finish-by-not-exists": Bug(
        "the statement looks for inputs itself",
        r"lost: not consumed",
        _finish_by_not_exists,
        sql=_hold_commits("session_events", "NEW.type = 'input.accepted'"),
        changes=(
            SqlChange("record_step", "PERFORM pg_advisory_xact_lock(session_lock(of_session));"),
            SqlChange("finish_run", "consumed_through = last_input", _NO_INPUT),
        ),
    ),
    "unfenced-worker": Bug(
        "only its worker writes to a run",
        r"step \d+ was stored|carried out|took effect \d+ times|after its end|ended \d+ times",
        _unfenced_worker,
        changes=(
            SqlChange("record_step", "r.attempt = by_attempt", "true"),
            SqlChange("finish_run", "attempt = by_attempt", "true"),
        ),
        faults=("pause a worker",),
    ),
    "blob-after-row": Bug(
        "the archive can be written while the row is committed",
        r"has no bundle",
        _blob_after_row,
    ),
    "repeat-blindly": Bug(
        "a call without a result was not carried out",
        r"(started|took effect) \d+ times, and 0 times",
        _repeat_blindly,
        # Longer than in other runs, so that most workers that are killed have a call without a result.
        sql=hold_results(1.0),
        faults=("kill a worker",),
    ),
    "every-answer-is-accepted": Bug(
        "whoever answers an action that has an answer means the same",
        r"answer acknowledged and lost",
        _every_answer_is_accepted,
    ),
    "files-apart-from-the-result": Bug(
        "the files are stored first, so the result can follow",
        r"is not what its \d+ calls wrote",
        _files_apart_from_the_result,
        faults=("kill a worker",),
    ),
}


def _replace(owner: Any, name: str, value: object) -> None:
    assert hasattr(owner, name), f"{owner} no longer has {name}"
    setattr(owner, name, value)


def _replace_text(module: Any, name: str, text: str, replacement: str) -> None:
    statement: str = getattr(module, name)
    assert text in statement, f"{name} no longer contains {text!r}"
    setattr(module, name, statement.replace(text, replacement))
