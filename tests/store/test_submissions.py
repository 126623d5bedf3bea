"""How inputs share calls of the database: many go together, and nobody waits behind a call that takes its time."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from hashlib import sha256
from uuid import UUID, uuid4

import msgspec
import pytest

from quarterdeck.conversations.runs.input_batcher import Submissions
from quarterdeck.conversations.runs.model import Submission, Verdict
from quarterdeck.core import errors
from quarterdeck.core.actors import Credential, CredentialKind, Permission
from quarterdeck.core.errors import ServiceError
from quarterdeck.core.settings import DatabaseSettings, SubmitSettings
from tests.workers import eventually
from tests.world import World


@asynccontextmanager
async def submitting(world: World, calls: list[set[UUID]]) -> AsyncIterator[Submissions]:
    """`calls` are the sessions of each call that has ended."""

    def tell(session_ids: Iterable[UUID]) -> None:
        calls.append(set(session_ids))

    submissions = Submissions(world.database_url, DatabaseSettings(), SubmitSettings(), tell)
    await submissions.open()
    try:
        yield submissions
    finally:
        await submissions.close()


def submission(
    world: World, session_id: UUID, secret: str | None = None, text: str = "x", *, known: bool = True
) -> Submission:
    secret = secret or world.key
    kind = CredentialKind.SESSION_TOKEN if secret.startswith("qds_") else CredentialKind.API_KEY
    return Submission(
        credential=Credential(kind, sha256(secret.encode()).digest()),
        session_id=session_id,
        workspace_id=None,
        text=text.encode(),
        idempotency_key=None,
        fingerprint=None,
        is_known=known,
    )


async def test_what_comes_while_a_call_is_under_way_goes_together(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The first call is held for as long as the test wants, and counts as quick all the while.
    monkeypatch.setattr("quarterdeck.conversations.runs.input_batcher._QUICK_SECONDS", 60.0)
    sessions = [UUID(await world.new_session()) for _ in range(21)]
    calls: list[set[UUID]] = []
    async with submitting(world, calls) as submissions, await world.connect() as holding:
        async with holding.transaction():
            await holding.execute("SELECT pg_advisory_xact_lock(session_lock(%s))", (sessions[0],))
            given = []
            for session in sessions:
                given.append(asyncio.create_task(submissions.submit(submission(world, session))))
                await asyncio.sleep(0.005)
            assert submissions._sessions_under_way == {sessions[0]}
        for submitted in await asyncio.gather(*given):
            assert submitted.verdict is Verdict.ACCEPTED
    assert calls == [set(sessions[:1]), set(sessions[1:])]


async def test_each_of_a_batch_is_judged_by_its_own_credential(world: World) -> None:
    session_id = UUID(await world.new_session())
    reader, token = await world.new_key(Permission.WORKSPACE_READ), await world.new_token(str(session_id))
    secrets = [world.key, "qd_nobody", "qd_nobody", world.key, reader, reader, token, token, "qds_nobody", world.key]
    calls: list[set[UUID]] = []
    async with submitting(world, calls) as submissions:
        given = [submissions.submit(submission(world, session_id, secret)) for secret in secrets]
        verdicts = [submitted.verdict for submitted in await asyncio.gather(*given)]
    accepted, unauthorized, forbidden = Verdict.ACCEPTED, Verdict.UNAUTHORIZED, Verdict.FORBIDDEN
    assert verdicts == [
        *(accepted, unauthorized, unauthorized, accepted, forbidden, forbidden),
        *(accepted, accepted, unauthorized, accepted),
    ]
    assert len(calls) == 1, "one batch"


async def test_newcomers_are_judged_like_the_others_of_their_batch(world: World) -> None:
    session_id, other = UUID(await world.new_session()), await World.create(world.database_url, world.http)
    reader, revoked = await world.new_key(Permission.WORKSPACE_READ), await world.new_key(Permission.SESSION_MANAGE)
    await world.execute(
        "UPDATE api_keys SET revoked_at = now() WHERE secret_hash = %s", sha256(revoked.encode()).digest()
    )
    secrets = [world.key, reader, other.key, "qd_nobody", revoked, world.key]
    given = [
        submission(world, session_id, secret, text=str(number), known=False) for number, secret in enumerate(secrets)
    ]
    absent = submission(world, uuid4(), known=False)
    elsewhere = msgspec.structs.replace(given[0], workspace_id=other.workspace_id)
    known = submission(world, session_id, text="known")
    calls: list[set[UUID]] = []
    async with submitting(world, calls) as submissions:
        all_given = [*given, absent, elsewhere, known]
        verdicts = [each.verdict for each in await asyncio.gather(*map(submissions.submit, all_given))]
    accepted, unauthorized, not_found = Verdict.ACCEPTED, Verdict.UNAUTHORIZED, Verdict.NOT_FOUND
    assert verdicts == [
        *(accepted, not_found, not_found, unauthorized, unauthorized, accepted),
        *(not_found, not_found, accepted),
    ]
    assert len(calls) == 1, "one batch"
    rows = await world.fetch("SELECT data->>'text' FROM session_events WHERE session_id = %s ORDER BY id", session_id)
    assert rows == [("0",), ("5",), ("known",)]


async def test_a_stranger_does_not_wait_for_a_session_and_takes_no_lock(world: World) -> None:
    stuck, other = UUID(await world.new_session()), await World.create(world.database_url, world.http)
    reader = await world.new_key(Permission.WORKSPACE_READ)
    async with submitting(world, []) as submissions, await world.connect() as holding:
        async with holding.transaction():
            await holding.execute("SELECT pg_advisory_xact_lock(session_lock(%s))", (stuck,))
            async with asyncio.timeout(1.5):
                for secret in (other.key, reader, "qd_nobody"):
                    refused = await submissions.submit(submission(world, stuck, secret, known=False))
                    assert refused.verdict in (Verdict.NOT_FOUND, Verdict.UNAUTHORIZED)
            waiting = asyncio.create_task(submissions.submit(submission(world, stuck, known=False)))

            async def is_under_way() -> bool:
                return stuck in submissions._sessions_under_way

            await eventually(is_under_way)
            # Whoever is not known does not even wait for a call that is at the session: its own first.
            async with asyncio.timeout(1.5):
                for secret in (other.key, world.key):
                    refused = await submissions.submit(submission(world, stuck, secret, known=False))
                    assert refused.verdict is Verdict.NOT_FOUND
            assert not waiting.done()
            assert submissions._waiting_bytes == 0
        assert (await waiting).verdict is Verdict.ACCEPTED


async def test_nobody_waits_behind_a_call_that_is_stuck(world: World) -> None:
    stuck, free = UUID(await world.new_session()), UUID(await world.new_session())
    calls: list[set[UUID]] = []
    async with submitting(world, calls) as submissions, await world.connect() as holding:
        async with holding.transaction():
            await holding.execute("SELECT pg_advisory_xact_lock(session_lock(%s))", (stuck,))
            waiting = asyncio.create_task(submissions.submit(submission(world, stuck)))

            async def is_under_way() -> bool:
                return stuck in submissions._sessions_under_way

            await eventually(is_under_way)
            async with asyncio.timeout(1.5):
                await submissions.submit(submission(world, free))
            assert not waiting.done()
        assert (await waiting).verdict is Verdict.ACCEPTED
    assert calls == [{free}, {stuck}]


async def test_several_inputs_of_a_session_keep_their_order_whatever_the_calls(world: World) -> None:
    session_id = UUID(await world.new_session())
    async with submitting(world, []) as submissions:
        given = [submission(world, session_id, text=str(number)) for number in range(150)]
        await asyncio.gather(*(submissions.submit(each) for each in given))
    rows = await world.fetch("SELECT data->>'text' FROM session_events WHERE session_id = %s ORDER BY id", session_id)
    assert [text for (text,) in rows] == [str(number) for number in range(150)]


async def test_who_has_waited_too_long_is_told_whether_something_may_have_happened(world: World) -> None:
    stuck, patient = UUID(await world.new_session()), UUID(await world.new_session())
    async with submitting(world, []) as submissions, await world.connect() as holding:
        submissions._patience_seconds = 0.5
        async with holding.transaction():
            await holding.execute("SELECT pg_advisory_xact_lock(session_lock(%s))", (stuck,))
            sent = asyncio.create_task(submissions.submit(submission(world, stuck, text="sent")))
            await asyncio.sleep(0.2)
            kept = asyncio.create_task(submissions.submit(submission(world, stuck, text="kept")))
            await asyncio.sleep(0)
            submissions._patience_seconds = 30.0
            assert (await submissions.submit(submission(world, patient))).verdict is Verdict.ACCEPTED
            with pytest.raises(ServiceError) as unknown:
                await sent
            assert not kept.done(), "it came later"
            with pytest.raises(ServiceError) as refused:
                await kept
        assert (str(unknown.value), str(refused.value)) == (str(errors.outcome_unknown()), str(errors.unavailable()))
        assert submissions._waiting_bytes == 0
        assert (await submissions.submit(submission(world, stuck, text="later"))).verdict is Verdict.ACCEPTED
        assert submissions._patience is not None
    rows = await world.fetch("SELECT data->>'text' FROM session_events WHERE session_id = %s ORDER BY id", stuck)
    assert rows == [("sent",), ("later",)], "what was not sent never is"


async def test_somebody_always_looks_after_those_who_wait(world: World) -> None:
    """The timer is one for all: it must run again for who comes while it ends, and end when nobody waits."""
    session_id = UUID(await world.new_session())
    async with submitting(world, []) as submissions:
        submissions._patience_seconds = 0.2
        for _ in range(5):
            assert (await submissions.submit(submission(world, session_id))).verdict is Verdict.ACCEPTED
            assert submissions._patience is not None
            await asyncio.sleep(0.15)

        async def is_over() -> bool:
            return submissions._patience is None

        await eventually(is_over)
