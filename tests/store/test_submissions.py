"""How inputs share calls of the database: many go together, and nobody waits behind a call that takes its time."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from hashlib import sha256
from uuid import UUID

import pytest

from quarterdeck.access.model import Credential, CredentialKind, Permission
from quarterdeck.ids import new_id
from quarterdeck.runs.model import Submission, Verdict
from quarterdeck.runs.submissions import Submissions
from quarterdeck.settings import DatabaseSettings, SubmitSettings
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


def submission(world: World, session_id: UUID, secret: str | None = None) -> Submission:
    secret = secret or world.key
    kind = CredentialKind.SESSION_TOKEN if secret.startswith("qds_") else CredentialKind.API_KEY
    return Submission(
        credential=Credential(kind, sha256(secret.encode()).digest()),
        session_id=session_id,
        workspace_id=None,
        text="x",
        input_id=new_id(),
        fresh_run_id=new_id(),
        idempotency_key=None,
        fingerprint=None,
        bytes=1,
    )


async def test_what_comes_while_a_call_is_under_way_goes_together(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The first call is held for as long as the test wants, and counts as quick all the while.
    monkeypatch.setattr("quarterdeck.runs.submissions._QUICK_SECONDS", 60.0)
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
        given = [submission(world, session_id) for _ in range(150)]
        await asyncio.gather(*(submissions.submit(each) for each in given))
    rows = await world.fetch(
        "SELECT data->>'input_id' FROM session_events WHERE session_id = %s ORDER BY id", session_id
    )
    assert [UUID(input_id) for (input_id,) in rows] == [each.input_id for each in given]
