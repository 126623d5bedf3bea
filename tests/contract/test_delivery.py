"""Inputs that are queued or interrupt the active run, and retries. The test is the worker: it begins and ends runs
itself, so the order of all writes is known."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any
from uuid import UUID, uuid4

import pytest

from quarterdeck.core.actors import Permission
from quarterdeck.core.settings import DatabaseSettings
from quarterdeck.db.database import Database
from quarterdeck.events.model import EventType, NewEvent
from quarterdeck.runs import lifecycle
from quarterdeck.runs.lifecycle import Lease
from quarterdeck.runs.model import Superseded
from tests.fault.stand_in import Brake
from tests.workers import STEP, begin_demo_run, check_log, log_of
from tests.world import Server, World, app_url, error_of, serving

_JOBS = "SELECT run_id::text FROM run_jobs WHERE session_id = %s AND NOT taken"


class Runs:
    """The runs of one session, and a worker that does what the test says."""

    def __init__(self, world: World, database: Database, session_id: str) -> None:
        self.world = world
        self.database = database
        self.session_id = session_id

    async def send(self, text: str, delivery: str | None = None, outcome: str = "new_run") -> str:
        answer = await self.world.submit(self.session_id, text, delivery=delivery)
        assert answer.status_code == 200, answer.text
        assert answer.json()["outcome"] == outcome
        run_id: str = answer.json()["run_id"]
        return run_id

    async def begin(self, run_id: str) -> Lease:
        await self.take_job(run_id)
        lease = await begin_demo_run(self.database, UUID(run_id))
        assert lease is not None
        return lease

    async def take_job(self, run_id: str) -> None:
        await self.world.execute("DELETE FROM run_jobs WHERE run_id = %s", run_id)

    async def finish(self, lease: Lease) -> bool:
        return await lifecycle.finish(self.database, lease)

    async def complete(self, run_id: str) -> None:
        assert await self.finish(await self.begin(run_id))

    async def states(self) -> dict[str, str]:
        """Of those that have not failed, succeeded or been cancelled."""
        answer = await self.world.get(f"/v1/sessions/{self.session_id}/runs?order=asc")
        assert answer.status_code == 200, answer.text
        runs = answer.json()["items"]
        states = {run["id"]: run["state"] for run in runs if run["finished_at"] is None}
        active = [run_id for run_id, state in states.items() if state != "pending"]
        jobs = await self.world.fetch(_JOBS, self.session_id)
        assert [(run_id,) for run_id in active if states[run_id] == "queued"] == jobs, "queued runs have a job"
        listed = (await self.world.get("/v1/sessions")).json()["items"]
        shown = [one["active_run"] for one in listed if one["id"] == self.session_id]
        # Archived sessions are not listed.
        assert shown in ([], [{"id": active[0], "state": states[active[0]]} if active else None])
        return states

    async def consumed(self) -> dict[str, list[str]]:
        """The texts of inputs by the run that consumed them. None: discarded."""
        entries = await log_of(self.world, self.session_id)
        check_log(entries, all_ended=False)
        texts = {one["data"]["input_id"]: one["data"]["text"] for one in entries if one["type"] == "input.accepted"}
        found: dict[str, list[str]] = {}
        for entry in entries:
            if entry["type"] in ("input.consumed", "input.discarded"):
                owner = "discarded" if entry["type"] == "input.discarded" else entry["run_id"]
                found.setdefault(owner, []).append(texts[entry["data"]["input_id"]])
        return found

    async def work_off(self) -> None:
        """Drive all runs to their end and check that every input has ended once."""
        while states := await self.states():
            [active] = [run_id for run_id, state in states.items() if state != "pending"]
            await self.complete(active)
        check_log(await log_of(self.world, self.session_id))


@pytest.fixture
async def database(server: Server) -> AsyncIterator[Database]:
    database = Database(app_url(server.database_url), DatabaseSettings(lock_wait_seconds=60, statement_seconds=80))
    await database.open()
    yield database
    await database.close()


@pytest.fixture
async def runs(world: World, database: Database) -> Runs:
    return Runs(world, database, await world.new_session())


async def test_pending_runs_start_in_order_and_consume_only_their_own_inputs(runs: Runs) -> None:
    first = await runs.send("one", "queue")
    assert await runs.states() == {first: "queued"}, "nothing to wait for"
    lease = await runs.begin(first)
    second, third = await runs.send("two", "queue"), await runs.send("three", "queue")
    assert await runs.send("one more", "steer", "steered") == first
    assert await runs.states() == {first: "running", second: "pending", third: "pending"}
    assert not await runs.finish(lease), "an input waits"
    taken = await lifecycle.take(runs.database, lease, 2, 10**6)
    assert [one.text for one in taken] == ["one more"]
    assert await runs.finish(lease)
    assert await runs.states() == {second: "queued", third: "pending"}
    # Its range now holds the input of the third run.
    assert await runs.send("two more", outcome="steered") == second
    await runs.work_off()
    assert await runs.consumed() == {first: ["one", "one more"], second: ["two", "two more"], third: ["three"]}
    entries = [
        one["data"].get("delivery") for one in await log_of(runs.world, runs.session_id) if "text" in one["data"]
    ]
    assert entries == ["queue", "queue", "queue", None, None]


async def test_an_interrupt_cancels_the_active_run_and_goes_before_pending_ones(runs: Runs) -> None:
    world = runs.world
    webhook = await world.new_webhook("https://example.com/hook", "run.cancelled")
    first = await runs.send("one")
    lease = await runs.begin(first)
    second = await runs.send("two", "queue")
    await runs.send("too late", outcome="steered")
    third = await runs.send("three", "interrupt")
    assert await runs.states() == {second: "pending", third: "queued"}
    with pytest.raises(Superseded):
        await lifecycle.record(runs.database, lease, [], "demo", STEP)
    cancelled = (await world.get(f"/v1/runs/{first}")).json()
    assert cancelled["state"] == "cancelled"
    entries = await log_of(world, runs.session_id)
    [discarded] = [one for one in entries if one["type"] == "input.discarded"]
    [ended] = [one for one in entries if one["type"] == "run.cancelled"]
    assert ended["data"] == {"discarded_input_ids": [discarded["data"]["input_id"]]}
    assert (discarded["run_id"], ended["run_id"]) == (first, first)
    deliveries = (await world.get(f"/v1/webhooks/{webhook}/deliveries")).json()["items"]
    assert [one["event"] for one in deliveries] == ["run.cancelled"]
    audited = (await world.get("/v1/audit-events?action=cancel_run")).json()["items"]
    assert [(one["object_id"], one["detail"]["interrupted_by"]) for one in audited] == [(first, third)]
    # Another one, before it has begun: its input is discarded too.
    fourth = await runs.send("four", "interrupt")
    assert await runs.states() == {second: "pending", fourth: "queued"}
    await runs.work_off()
    expected = {first: ["one"], "discarded": ["too late", "three"], fourth: ["four"], second: ["two"]}
    assert await runs.consumed() == expected
    # Without an active run it only starts one.
    fifth = await runs.send("five", "interrupt")
    assert await runs.states() == {fifth: "queued"}


async def test_a_failed_run_hands_its_inputs_on_before_pending_ones(runs: Runs) -> None:
    first = await runs.send("one")
    lease = await runs.begin(first)
    second = await runs.send("two", "queue")
    await runs.send("one more", outcome="steered")
    await lifecycle.fail(runs.database, lease, "told to fail")
    states = await runs.states()
    [next_run] = states.keys() - {second}
    assert states == {next_run: "queued", second: "pending"}
    # It fails as well, before it takes anything: the chain is handed on, and what was steered to it.
    await runs.send("and this", outcome="steered")
    await runs.world.execute("UPDATE runs SET started_at = now() - interval '2 hours' WHERE id = %s", next_run)
    await runs.take_job(next_run)
    assert await begin_demo_run(runs.database, UUID(next_run)) is None
    [last_run] = (await runs.states()).keys() - {second}
    await runs.work_off()
    assert await runs.consumed() == {first: ["one"], last_run: ["one more", "and this"], second: ["two"]}


async def test_pending_runs_end_by_cancel_and_with_their_session(runs: Runs) -> None:
    world = runs.world
    webhook = await world.new_webhook("https://example.com/hook", "run.cancelled")
    first, second = await runs.send("one"), await runs.send("two", "queue")
    third = await runs.send("three", "queue")
    answer = (await world.post(f"/v1/runs/{second}/cancel", None)).json()
    assert (answer["state"], len(answer["discarded_input_ids"])) == ("cancelled", 1)
    assert await runs.states() == {first: "queued", third: "pending"}
    # Cancelling the active run starts the next one.
    assert len((await world.post(f"/v1/runs/{first}/cancel", None)).json()["discarded_input_ids"]) == 1
    assert await runs.states() == {third: "queued"}
    fourth = await runs.send("four", "queue")
    # An archived session works off what it has accepted.
    await world.patch(f"/v1/sessions/{runs.session_id}", {"archived": True})
    await world.patch(f"/v1/sessions/{runs.session_id}", {"archived": False})
    activity = (await world.get("/v1/activity?minutes=60")).json()["runs_by_state"]
    assert (activity["pending"], activity["queued"], activity["cancelled"]) == (1, 1, 2)
    await world.delete(f"/v1/sessions/{runs.session_id}")
    assert error_of(await world.get(f"/v1/runs/{fourth}")) == (404, "not_found")
    deliveries = await world.fetch("SELECT run_id::text FROM webhook_deliveries WHERE webhook_id = %s", webhook)
    assert {run_id for (run_id,) in deliveries} == {first, second, third, fourth}


async def test_the_delivery_is_part_of_the_idempotency_key(runs: Runs) -> None:
    world, session_id = runs.world, runs.session_id
    first = await world.submit(session_id, "one", idempotency_key="a")
    assert (await world.submit(session_id, "one", idempotency_key="a", delivery="steer")).content == first.content
    for key, delivery in (("b", "queue"), ("c", "interrupt")):
        made = await world.submit(session_id, "two", idempotency_key=key, delivery=delivery)
        assert made.content == b'{"outcome":"new_run","run_id":"%s"}' % made.json()["run_id"].encode()
        again = await world.submit(session_id, "two", idempotency_key=key, delivery=delivery)
        assert (again.content, again.headers["Idempotency-Replayed"]) == (made.content, "true")
        for other in {"queue", "interrupt", "steer", None} - {delivery}:
            refused = await world.submit(session_id, "two", idempotency_key=key, delivery=other)
            assert error_of(refused) == (409, "conflict")
        assert error_of(await world.submit(session_id, "two", idempotency_key="a", delivery=delivery)) == (
            409,
            "conflict",
        )
    both = await asyncio.gather(
        *(
            world.submit(session_id, "x", idempotency_key="d", delivery=one)
            for one in ("queue", "steer", "interrupt") * 3
        )
    )
    accepted = {answer.content for answer in both if answer.status_code == 200}
    assert len(accepted) == 1, "one effect, whichever was first"
    await runs.work_off()


@pytest.mark.parametrize("delivery", ["queue", "interrupt"])
async def test_order_of_checks(runs: Runs, delivery: str) -> None:
    world, session_id = runs.world, runs.session_id
    active = await runs.send("one")
    reader, foreign = await world.new_key(Permission.WORKSPACE_READ), await world.new_token(await world.new_session())
    path, body = f"/v1/sessions/{session_id}/events", {"type": "input", "text": "x", "delivery": delivery}
    bad = {"type": "input", "text": 1, "delivery": delivery}
    for sent in (body, bad):
        assert error_of(await world.post(path, sent, key="wrong")) == (401, "unauthorized")
        assert error_of(await world.post(path, sent, key=foreign)) == (404, "not_found")
        assert error_of(await world.post(path, sent, key=reader)) == (403, "forbidden")
    absent = await world.post(f"/v1/sessions/{uuid4()}/events", body)
    assert absent.content == (await world.post(path, body, key=foreign)).content
    for refused in (bad, body | {"delivery": "later"}, body | {"delivery": None}):
        assert error_of(await world.post(path, refused)) == (400, "invalid_request")
    await world.post(path, body | {"text": "y"}, headers={"Idempotency-Key": "k"})
    await world.patch(f"/v1/sessions/{session_id}", {"archived": True})
    before = await runs.states()
    assert error_of(await world.post(path, body, headers={"Idempotency-Key": "k"})) == (409, "conflict")
    replayed = await world.post(path, body | {"text": "y"}, headers={"Idempotency-Key": "k"})
    assert replayed.status_code == 200
    assert error_of(await world.post(path, body)) == (409, "conflict")
    assert await runs.states() == before
    assert (active in before) is (delivery == "queue"), "only the accepted interrupt had an effect"


@pytest.mark.long
async def test_too_many_pending_runs_are_429(
    server: Server, world: World, database: Database, tmp_path_factory: pytest.TempPathFactory
) -> None:
    settings = {"SUBMIT_SESSION_PENDING_RUNS": 2, "SUBMIT_RUN_WAITING_INPUTS": 2, "SUBMIT_RUN_WAITING_BYTES": 10}
    with serving(server.database_url, tmp_path_factory.mktemp("small"), **settings) as small:
        world.http.base_url = small.url
        runs = Runs(world, database, await world.new_session())
        first = await runs.send("one")
        for text in ("two", "three"):
            await runs.send(text, "queue")
        refused = await world.submit(runs.session_id, "four", delivery="queue")
        assert error_of(refused) == (429, "too_many_requests")
        assert refused.headers["Retry-After"] == "5"
        await runs.complete(first)
        await runs.send("four", "queue")
        await runs.work_off()
        # A run consumes more over its life than may wait at once. Such a run is not repeated.
        for texts, expected in ((["12", "34", "56"], 409), (["123456", "1234567"], 409), (["12", "34"], 201)):
            run_id = await runs.send(texts[0])
            lease = await runs.begin(run_id)
            for number, text in enumerate(texts[1:], 2):
                await runs.send(text, outcome="steered")
                await lifecycle.take(database, lease, number, 10**6)
            await lifecycle.fail(database, lease, "told to fail")
            assert (await world.post(f"/v1/runs/{run_id}/retry", None)).status_code == expected
        await runs.work_off()


async def test_retry_repeats_the_inputs_of_a_failed_or_cancelled_run(runs: Runs) -> None:
    world = runs.world
    first = await runs.send("one")
    lease = await runs.begin(first)
    await runs.send("two", outcome="steered")
    await lifecycle.take(runs.database, lease, 1, 10**6)
    await runs.send("handed on", outcome="steered")
    assert error_of(await world.post(f"/v1/runs/{first}/retry", None)) == (409, "conflict"), "active"
    await lifecycle.fail(runs.database, lease, "told to fail")
    assert error_of(await world.post(f"/v1/runs/{first}/retry", None)) == (409, "conflict"), "another is active"
    [successor] = await runs.states()
    pending = await runs.send("three", "queue")
    assert error_of(await world.post(f"/v1/runs/{pending}/retry", None)) == (409, "conflict"), "pending"
    lease = await runs.begin(successor)
    await runs.send("not read", outcome="steered")
    await world.post(f"/v1/runs/{pending}/cancel", None)
    await world.post(f"/v1/runs/{successor}/cancel", None)

    key = {"Idempotency-Key": "k"}
    answer = await world.post(f"/v1/runs/{first}/retry", None, headers=key)
    assert answer.status_code == 201, answer.text
    retried = answer.json()["id"]
    assert (answer.json()["state"], answer.json()["inputs_accepted"]) == ("queued", 2)
    again = await world.post(f"/v1/runs/{first}/retry", None, headers=key)
    assert (again.content, again.headers["Idempotency-Replayed"]) == (answer.content, "true")
    assert await runs.states() == {retried: "queued"}
    await runs.complete(retried)
    assert error_of(await world.post(f"/v1/runs/{retried}/retry", None)) == (409, "conflict"), "succeeded"
    # What the cancellation discarded is part of it.
    token = await world.new_token(runs.session_id)
    last = (await world.post(f"/v1/runs/{successor}/retry", None, key=token)).json()["id"]
    await runs.complete(last)
    queued = (await world.post(f"/v1/runs/{pending}/retry", None)).json()["id"]
    await runs.complete(queued)
    entries = await log_of(world, runs.session_id)
    check_log(entries)
    consumed = await runs.consumed()
    assert [consumed[run_id] for run_id in (retried, last, queued)] == [
        ["one", "two"],
        ["handed on", "not read"],
        ["three"],
    ]
    sources = [one["data"]["retried_from"] for one in entries if "retried_from" in one["data"]]
    assert sources == [first, first, successor, successor, pending]
    accepted = [one["data"] for one in entries if one["type"] == "input.accepted"]
    texts = {data["input_id"]: data["text"] for data in accepted}
    copies = [data for data in accepted if "copy_of" in data]
    assert [texts[data["copy_of"]] for data in copies] == [data["text"] for data in copies]
    assert len(copies) == len(sources)
    audited = (await world.get("/v1/audit-events?action=retry_run&order=asc")).json()["items"]
    assert [(one["object_id"], one["detail"]["retried_from"]) for one in audited] == [
        (retried, first),
        (last, successor),
        (queued, pending),
    ]
    await world.patch(f"/v1/sessions/{runs.session_id}", {"archived": True})
    assert error_of(await world.post(f"/v1/runs/{first}/retry", None)) == (409, "conflict"), "archived"


async def test_retry_leaves_out_inputs_that_a_person_dropped(runs: Runs) -> None:
    world = runs.world
    run_id = await runs.send("bad")
    lease = await runs.begin(run_id)
    await runs.send("good", outcome="steered")
    await lifecycle.take(runs.database, lease, 1, 10**6)
    await lifecycle.fail(runs.database, lease, "told to fail")
    inputs = [one for one in await log_of(world, runs.session_id) if one["type"] == "input.accepted"]

    async def drop(entry: dict[str, Any]) -> None:
        await world.execute(
            "INSERT INTO session_events (session_id, run_id, type, data) VALUES (%s, %s, %s,"
            " jsonb_build_object('input_id', %s::text, 'reason', 'dropped'))",
            runs.session_id,
            run_id,
            EventType.INPUT_DISCARDED,
            entry["data"]["input_id"],
        )

    await drop(inputs[0])
    retried = (await world.post(f"/v1/runs/{run_id}/retry", None)).json()
    assert retried["inputs_accepted"] == 1
    lease = await runs.begin(retried["id"])
    await lifecycle.fail(runs.database, lease, "told to fail")
    await drop(inputs[1])
    assert error_of(await world.post(f"/v1/runs/{run_id}/retry", None)) == (409, "conflict"), "nothing is left"


Race = Callable[[Runs, Lease], Awaitable[Any]]


async def _submit(runs: Runs, _: Lease) -> None:
    assert (await runs.world.submit(runs.session_id, "submitted")).status_code == 200


async def _queue(runs: Runs, _: Lease) -> None:
    await runs.send("queued", "queue")


async def _interrupt(runs: Runs, _: Lease) -> None:
    await runs.send("interrupting", "interrupt")


async def _finish(runs: Runs, lease: Lease) -> None:
    with suppress(Superseded):
        await runs.finish(lease)


async def _fail(runs: Runs, lease: Lease) -> None:
    with suppress(Superseded):
        await lifecycle.fail(runs.database, lease, "told to fail")


async def _record(runs: Runs, lease: Lease) -> None:
    with suppress(Superseded):
        answer = NewEvent(EventType.MESSAGE, {"role": "assistant", "text": "x"})
        await lifecycle.record(runs.database, lease, [answer], "demo", STEP)


RACES: list[tuple[Race, Race]] = [
    (_queue, _finish),
    (_queue, _fail),
    (_interrupt, _finish),
    (_interrupt, _fail),
    (_interrupt, _record),
    (_interrupt, _interrupt),
    (_interrupt, _queue),
    (_interrupt, _submit),
    (_queue, _submit),
]


@pytest.mark.long
@pytest.mark.parametrize(("one", "other"), RACES, ids=lambda race: race.__name__[1:])
async def test_races_lose_nothing(runs: Runs, one: Race, other: Race) -> None:
    """In both orders, with and without a pending run: each stands before the session's lock while the other passes."""
    for racers in ((one, other), (other, one)):
        for before in ((), ("earlier",)):
            lease = await runs.begin(await runs.send("first"))
            for text in before:
                await runs.send(text, "queue")
            async with Brake(runs.world, runs.session_id) as brake:
                racing: list[asyncio.Future[Any]] = []
                for count, racer in enumerate(racers, 1):
                    racing.append(asyncio.ensure_future(racer(runs, lease)))
                    await brake.waiting(count)
            await asyncio.gather(*racing)
            states = await runs.states()
            assert sum(state != "pending" for state in states.values()) == bool(states), "one active run"
            await runs.work_off()


@pytest.mark.long
async def test_a_retry_races_with_inputs(runs: Runs) -> None:
    """Whoever is second: an input steers the retry, and a retry is refused."""
    for delivery in (None, "queue", "interrupt"):
        for first in ("retry", "input"):
            run_id = await runs.send("one", "interrupt")
            await runs.world.post(f"/v1/runs/{run_id}/cancel", None)

            def retry(run_id: str = run_id) -> Awaitable[Any]:
                return runs.world.post(f"/v1/runs/{run_id}/retry", None)

            def submit(delivery: str | None = delivery) -> Awaitable[Any]:
                return runs.world.submit(runs.session_id, "two", delivery=delivery)

            async with Brake(runs.world, runs.session_id) as brake:
                tasks = {}
                for count, name in enumerate(("retry", "input") if first == "retry" else ("input", "retry"), 1):
                    tasks[name] = asyncio.ensure_future(retry() if name == "retry" else submit())
                    await brake.waiting(count)
            retried, answer = await tasks["retry"], await tasks["input"]
            assert answer.status_code == 200
            if first == "retry":
                assert retried.status_code == 201
                assert answer.json()["outcome"] == ("steered" if delivery is None else "new_run")
            else:
                assert error_of(retried) == (409, "conflict")
            await runs.work_off()
