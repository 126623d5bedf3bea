"""Batches of inputs: how they are formed, that a locked session delays only its own inputs, and what callers are told
when a call fails."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from quarterdeck.core import errors
from quarterdeck.core.actors import Credential, CredentialKind, Permission
from quarterdeck.core.errors import ServiceError
from quarterdeck.core.settings import DatabaseSettings, SubmitSettings
from quarterdeck.db.database import Connection
from quarterdeck.runs import store
from quarterdeck.runs.input_batcher import InputBatcher
from quarterdeck.runs.model import AttachmentRequest, Submission, Submitted, Verdict
from tests.workers import held_up
from tests.world import World

# For calls that must not wait for anything. They take milliseconds; a busy machine may need more.
SOON_SECONDS = 10.0
ACCEPTED, UNAUTHORIZED, NOT_FOUND = Verdict.ACCEPTED, Verdict.UNAUTHORIZED, Verdict.NOT_FOUND


@asynccontextmanager
async def batching(
    world: World, calls: list[set[UUID]] | None = None, submit: SubmitSettings | None = None, **settings: object
) -> AsyncIterator[InputBatcher]:
    """`calls` collects the sessions whose inputs were accepted, one set for each call that ended."""

    def tell_readers(session_ids: Iterable[UUID]) -> None:
        if calls is not None:
            calls.append(set(session_ids))

    # Nothing here is meant to end by a timeout unless a test says so.
    patient = {"lock_wait_seconds": 60.0, "lock_attempt_seconds": 60.0, "statement_seconds": 80.0}
    patient["pool_wait_seconds"] = 30.0
    database = DatabaseSettings(**(patient | settings))  # type: ignore[arg-type]
    batcher = InputBatcher(world.database_url, database, submit or SubmitSettings(), tell_readers)
    await batcher.open()
    try:
        yield batcher
    finally:
        await batcher.close()


@asynccontextmanager
async def locked(world: World, session_id: UUID) -> AsyncIterator[None]:
    async with await world.connect() as holder, holder.transaction():
        await holder.execute("SELECT pg_advisory_xact_lock(session_lock(%s))", (session_id,))
        yield


def submission(
    world: World,
    session_id: UUID,
    secret: str | None = None,
    text: str = "x",
    *,
    key: str | None = None,
    workspace_id: UUID | None = None,
    attachments: AttachmentRequest | None = None,
) -> Submission:
    secret = secret or world.key
    kind = CredentialKind.SESSION_TOKEN if secret.startswith("qds_") else CredentialKind.API_KEY
    return Submission(
        credential=Credential(kind, sha256(secret.encode()).digest()),
        session_id=session_id,
        workspace_id=workspace_id,
        text=text,
        idempotency_key=key,
        fingerprint=None if key is None else sha256(text.encode()).digest(),
        owner=world.workspace_id,
        attachments=attachments,
    )


async def stored_texts(world: World, session_id: UUID) -> list[str]:
    rows = await world.fetch("SELECT data->>'text' FROM session_events WHERE session_id = %s ORDER BY id", session_id)
    return [text for (text,) in rows]


async def outcome(submitting: Awaitable[Submitted]) -> Verdict | str:
    try:
        return (await submitting).verdict
    except ServiceError as error:
        return error.message


# --- batches ---


async def test_inputs_that_arrive_during_a_call_share_the_next_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quarterdeck.runs.input_batcher._SLOW_CALL_SECONDS", 60.0)
    sessions = [UUID(await world.new_session()) for _ in range(21)]
    calls: list[set[UUID]] = []
    async with batching(world, calls) as batcher, await world.connect() as holder:
        async with holder.transaction():
            # Holds up the first call, whichever session it is for.
            await holder.execute("LOCK TABLE session_events IN EXCLUSIVE MODE")
            first = asyncio.create_task(batcher.submit(submission(world, sessions[0])))
            await held_up(world)
            others = [asyncio.create_task(batcher.submit(submission(world, session))) for session in sessions[1:]]
            await asyncio.sleep(0)
        for submitted in await asyncio.gather(first, *others):
            assert submitted.verdict is ACCEPTED
    assert calls == [set(sessions[:1]), set(sessions[1:])]


async def test_workspaces_take_turns_in_the_queue(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quarterdeck.runs.input_batcher._SLOW_CALL_SECONDS", 60.0)
    other = await World.create(world.database_url, world.http)
    greedy, modest = UUID(await world.new_session()), UUID(await other.new_session())
    calls: list[set[UUID]] = []
    async with batching(world, calls) as batcher, await world.connect() as holder:
        async with holder.transaction():
            # Holds up the first call, whichever session it is for.
            await holder.execute("LOCK TABLE session_events IN EXCLUSIVE MODE")
            inputs = [asyncio.create_task(batcher.submit(submission(world, greedy))) for _ in range(200)]
            await held_up(world)
            inputs.append(asyncio.create_task(batcher.submit(submission(other, modest))))
            await asyncio.sleep(0)
        await asyncio.gather(*inputs)
    assert calls == [{greedy}, {greedy, modest}, {greedy}, {greedy}]


async def test_a_workspace_fills_only_its_part_of_the_queue(world: World) -> None:
    other = await World.create(world.database_url, world.http)
    stuck, free = UUID(await world.new_session()), UUID(await other.new_session())
    text = "x" * 1000
    async with batching(world, submit=SubmitSettings(workspace_waiting_bytes=2000)) as batcher:
        async with locked(world, stuck):
            waiting = [asyncio.create_task(batcher.submit(submission(world, stuck, text=text))) for _ in range(2)]
            await held_up(world)
            refused = await outcome(batcher.submit(submission(world, stuck)))
            assert refused == "Too many inputs are waiting. Try again shortly."
            assert (await batcher.submit(submission(other, free, text=text))).verdict is ACCEPTED
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
        assert (await batcher.submit(submission(world, stuck))).verdict is ACCEPTED
        assert not batcher._pending_bytes_of


async def test_a_slow_call_does_not_hold_up_the_next(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = UUID(await world.new_session()), UUID(await world.new_session())
    submit, started, release = store.submit, asyncio.Event(), asyncio.Event()

    async def slow(connection: Connection, batch: list[Submission], **options: Any) -> list[Submitted]:
        if batch[0].session_id == first:
            started.set()
            await release.wait()
        return await submit(connection, batch, **options)

    monkeypatch.setattr(store, "submit", slow)
    async with batching(world) as batcher, asyncio.timeout(SOON_SECONDS):
        waiting = asyncio.create_task(batcher.submit(submission(world, first)))
        await started.wait()
        assert (await batcher.submit(submission(world, second))).verdict is ACCEPTED
        assert not waiting.done()
        release.set()
        assert (await waiting).verdict is ACCEPTED


async def test_inputs_in_one_batch_keep_their_order(world: World) -> None:
    """Between batches no order is promised: two inputs that are sent at the same time may be in either."""
    session_id = UUID(await world.new_session())
    texts = [str(number) for number in range(SubmitSettings().batch_inputs)]
    async with batching(world) as batcher:
        await asyncio.gather(*(batcher.submit(submission(world, session_id, text=text)) for text in texts))
    assert await stored_texts(world, session_id) == texts


async def test_a_batch_may_mix_all_kinds_of_callers_and_absent_values(world: World) -> None:
    """Each input is judged by its own credential. Without keys, or without workspaces, whole columns are NULL."""
    session_id, other = UUID(await world.new_session()), await World.create(world.database_url, world.http)
    reader, token = await world.new_key(Permission.WORKSPACE_READ), await world.new_token(str(session_id))
    revoked, expired = await world.revoked_key(), await world.expired_key()
    cases: list[tuple[Submission, Verdict]] = [
        (submission(world, session_id, text="0"), ACCEPTED),
        (submission(world, session_id, "qd_nobody"), UNAUTHORIZED),
        (submission(world, session_id, "qds_nobody"), UNAUTHORIZED),
        (submission(world, session_id, revoked), UNAUTHORIZED),
        (submission(world, session_id, expired), UNAUTHORIZED),
        (submission(world, session_id, reader), Verdict.FORBIDDEN),
        (submission(world, session_id, other.key), NOT_FOUND),
        (submission(world, uuid4()), NOT_FOUND),
        (submission(world, session_id, token, "1"), ACCEPTED),
        (submission(world, session_id, text="2"), ACCEPTED),
    ]
    with_absent_values = [
        (submission(world, session_id, text="3", key="k"), ACCEPTED),
        (submission(world, session_id, text="3", key="k"), Verdict.REPLAYED),
        (submission(world, session_id, text="4", key="k"), Verdict.CONFLICT),
        (submission(world, session_id, text="5", workspace_id=world.workspace_id), ACCEPTED),
        (submission(world, session_id, workspace_id=other.workspace_id), NOT_FOUND),
    ]
    for batch in (cases, cases + with_absent_values):
        calls: list[set[UUID]] = []
        async with batching(world, calls) as batcher:
            results = await asyncio.gather(*(batcher.submit(given) for given, _ in batch))
        assert [result.verdict for result in results] == [expected for _, expected in batch]
        assert len(calls) == 1, "one batch"
    assert await stored_texts(world, session_id) == [*"012", *"01235"]


# --- locked sessions ---


async def test_a_locked_session_delays_only_its_own_inputs(world: World) -> None:
    stuck, free = UUID(await world.new_session()), UUID(await world.new_session())
    async with batching(world) as batcher:
        async with locked(world, stuck), asyncio.timeout(SOON_SECONDS):
            # In one batch, and later.
            waiting = [asyncio.create_task(batcher.submit(submission(world, stuck, text=text))) for text in "ab"]
            assert (await batcher.submit(submission(world, free))).verdict is ACCEPTED
            await held_up(world)
            waiting += [asyncio.create_task(batcher.submit(submission(world, stuck, text=text))) for text in "cd"]
            assert (await batcher.submit(submission(world, free))).verdict is ACCEPTED
            assert not any(task.done() for task in waiting)
        assert [(await task).verdict for task in waiting] == [ACCEPTED] * 4
    assert await stored_texts(world, stuck) == [*"abcd"]


async def test_locked_sessions_leave_a_connection_for_the_others(world: World) -> None:
    stuck, free = [UUID(await world.new_session()) for _ in range(5)], UUID(await world.new_session())
    async with batching(world, submit_connections=2) as batcher, await world.connect() as holder:
        async with holder.transaction(), asyncio.timeout(SOON_SECONDS):
            for session_id in stuck:
                await holder.execute("SELECT pg_advisory_xact_lock(session_lock(%s))", (session_id,))
            waiting = [asyncio.create_task(batcher.submit(submission(world, session_id))) for session_id in stuck]
            await held_up(world)
            assert (await batcher.submit(submission(world, free))).verdict is ACCEPTED
        assert [(await task).verdict for task in waiting] == [ACCEPTED] * 5


async def test_locked_sessions_of_one_workspace_leave_a_connection_to_those_of_others(world: World) -> None:
    """Connections are given back between the attempts, and the workspaces take turns."""
    other = await World.create(world.database_url, world.http)
    stuck, busy = [UUID(await world.new_session()) for _ in range(5)], UUID(await other.new_session())
    async with batching(world, submit_connections=2, lock_attempt_seconds=0.05) as batcher:
        async with await world.connect() as holder, holder.transaction():
            for session_id in stuck:
                await holder.execute("SELECT pg_advisory_xact_lock(session_lock(%s))", (session_id,))
            waiting = [asyncio.create_task(batcher.submit(submission(world, session_id))) for session_id in stuck]
            async with locked(other, busy):
                locked_for_a_moment = asyncio.create_task(batcher.submit(submission(other, busy)))
                await held_up(world)
            assert (await locked_for_a_moment).verdict is ACCEPTED
            assert not any(task.done() for task in waiting)
        assert [(await task).verdict for task in waiting] == [ACCEPTED] * 5


async def test_a_stranger_neither_takes_nor_waits_for_the_lock_of_a_session(world: World) -> None:
    stuck, other = UUID(await world.new_session()), await World.create(world.database_url, world.http)
    strangers = {
        other.key: NOT_FOUND,
        await world.new_key(Permission.WORKSPACE_READ): Verdict.FORBIDDEN,
        "qd_nobody": UNAUTHORIZED,
        await world.revoked_key(): UNAUTHORIZED,
    }
    async with batching(world) as batcher:
        async with locked(world, stuck), asyncio.timeout(SOON_SECONDS):

            async def check_strangers() -> None:
                for secret, expected in strangers.items():
                    assert (await batcher.submit(submission(world, stuck, secret))).verdict is expected

            await check_strangers()
            # Not even in the batch of a caller that does wait, or behind it.
            waiting = asyncio.create_task(batcher.submit(submission(world, stuck)))
            await check_strangers()
            await held_up(world)
            await check_strangers()
            assert not waiting.done()
        assert (await waiting).verdict is ACCEPTED
    async with await world.connect() as connection, connection.transaction():
        inputs = [submission(world, stuck, secret) for secret in strangers]
        refused = await store.submit(connection, inputs, settings=SubmitSettings(), wait_for_locks=True)
        assert [result.verdict for result in refused] == list(strangers.values())
        held = await connection.execute("SELECT FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()")
        assert held.rowcount == 0


async def test_a_key_that_is_revoked_during_the_wait_stores_nothing(world: World) -> None:
    session_id = UUID(await world.new_session())
    secret, key_id = await world.new_key_record((Permission.SESSION_MANAGE,))
    async with batching(world) as batcher:
        async with locked(world, session_id):
            waiting = asyncio.create_task(batcher.submit(submission(world, session_id, secret)))
            await held_up(world)
            await world.execute("UPDATE api_keys SET revoked_at = now() WHERE id = %s", key_id)
        assert (await waiting).verdict is UNAUTHORIZED
    assert await stored_texts(world, session_id) == []


async def test_a_session_that_stays_locked_is_a_conflict(world: World) -> None:
    session_id = UUID(await world.new_session())
    async with batching(world, lock_wait_seconds=0.2) as batcher:
        async with locked(world, session_id):
            told = await asyncio.gather(*(outcome(batcher.submit(submission(world, session_id))) for _ in range(3)))
        assert told == [errors.contended().message] * 3
        assert (await batcher.submit(submission(world, session_id, text="later"))).verdict is ACCEPTED
    assert await stored_texts(world, session_id) == ["later"]


# --- timeouts ---


async def test_timeout_error_says_whether_the_input_may_be_stored(world: World) -> None:
    stuck = UUID(await world.new_session())
    async with batching(world) as batcher:
        async with locked(world, stuck):
            batcher._timeout_seconds = 1.0
            sent = asyncio.create_task(outcome(batcher.submit(submission(world, stuck, text="sent"))))
            keyed = asyncio.create_task(outcome(batcher.submit(submission(world, stuck, text="keyed", key="k"))))
            await held_up(world)
            # These two wait for the call that is under way.
            unsent = asyncio.create_task(outcome(batcher.submit(submission(world, stuck, text="unsent"))))
            cancelled = asyncio.create_task(batcher.submit(submission(world, stuck, text="cancelled")))
            assert await sent == errors.outcome_unknown().message
            assert await keyed == errors.unavailable().message
            assert await unsent == errors.unavailable().message
            cancelled.cancel()
            batcher._timeout_seconds = 80.0
        assert batcher._pending_bytes == 0
        assert (await batcher.submit(submission(world, stuck, text="later"))).verdict is ACCEPTED
    assert sorted(await stored_texts(world, stuck)) == ["keyed", "later", "sent"], "unsent inputs are never stored"


# --- failures ---


async def test_one_input_that_postgresql_refuses_fails_alone(world: World) -> None:
    sessions = [UUID(await world.new_session()) for _ in range(3)]
    # PostgreSQL has no U+0000 in texts.
    given = [submission(world, sessions[n % 3], text="bad\0" if n == 4 else str(n)) for n in range(9)]
    async with batching(world) as batcher:
        told = await asyncio.gather(*(outcome(batcher.submit(each)) for each in given))
    assert told == [errors.internal().message if n == 4 else ACCEPTED for n in range(9)]


Call = Callable[..., Awaitable[list[Submitted]]]


@pytest.mark.parametrize("committed", [True, False])
async def test_a_connection_lost_during_a_call(world: World, monkeypatch: pytest.MonkeyPatch, committed: bool) -> None:
    """Inputs with a key are sent again, and their receipts tell. For the others nobody knows the outcome."""
    session_id = UUID(await world.new_session())
    submit: Call = store.submit

    async def break_once(connection: Connection, batch: list[Submission], **options: Any) -> list[Submitted]:
        monkeypatch.setattr(store, "submit", submit)
        if committed:
            await submit(connection, batch, **options)
        await connection.close()
        raise psycopg.OperationalError("the connection is lost")

    monkeypatch.setattr(store, "submit", break_once)
    async with batching(world) as batcher:
        given = (
            submission(world, session_id, text="keyed", key="k"),
            submission(world, session_id, text="plain"),
        )
        told = await asyncio.gather(*(outcome(batcher.submit(each)) for each in given))
        assert told == [Verdict.REPLAYED if committed else ACCEPTED, errors.outcome_unknown().message]
    assert await stored_texts(world, session_id) == (["keyed", "plain"] if committed else ["keyed"])


async def test_connections_that_died_while_idle_cost_no_unknown_outcome(world: World) -> None:
    session_id = UUID(await world.new_session())
    async with batching(world) as batcher:
        assert (await batcher.submit(submission(world, session_id))).verdict is ACCEPTED
        # Those of the batcher: the shared server of the tests logs in as another role.
        killed = await world.fetch(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND query LIKE '%%submit_inputs%%' AND usename = current_user"
            "   AND pid <> pg_backend_pid()"
        )
        assert killed
        for _ in range(8):
            assert (await batcher.submit(submission(world, session_id))).verdict is ACCEPTED
