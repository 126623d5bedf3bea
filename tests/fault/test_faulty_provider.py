"""A run whose provider fails in every step, each time in another way: it ends right, and nothing is doubled or lost."""

import socket
from collections.abc import Iterator
from itertools import pairwise

import pytest

from tests.contract.provider_server import (
    ANTHROPIC,
    RESPONSES,
    Dialect,
    Reply,
    dribbles,
    halves,
    refuses,
    resets,
    streams,
)
from tests.contract.provider_talk import all_three
from tests.contract.test_prompt_caches import assert_begins_with, without_marks
from tests.fault.stand_in import StandIn
from tests.workers import check_log, ended, log_of, working
from tests.world import PATIENT, Server, World, clone_database, drop_database, serving

KEYS = {"MODEL_OPENAI_API_KEY": "k", "MODEL_ANTHROPIC_API_KEY": "k"}
STEPS = 6


@pytest.fixture(scope="module")
def server(postgres_url: str, template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """With a database that only the workers of these tests look into."""
    url = clone_database(postgres_url, template)
    with serving(url, tmp_path_factory.mktemp("api"), **PATIENT, **KEYS) as server:
        yield server
    drop_database(postgres_url, url)


def faults(dialect: Dialect) -> list[list[Reply]]:
    """What goes before the answer of each step."""
    half = dialect.text("Half an", " answer")[: -dialect.closing - (dialect is RESPONSES)]
    busy = dialect.error("rate_limit_error", "Slow down")
    return [
        [resets(half), resets([])],
        [halves(half, "ends")],
        [halves(half, "resets"), streams(half)],
        # Limits that change: for seconds, for a fraction of one, without a number, and as an overload in the stream.
        [refuses(429, busy, retry_after="1"), refuses(429, busy, retry_after="0.2"), refuses(429, busy)],
        [refuses(503, busy, retry_after="0"), refuses(529, busy, retry_after_ms="100")],
        [refuses(500, b"<html>"), *([streams([*half, ("error", busy)])] if dialect is ANTHROPIC else [])],
    ]


@pytest.mark.long
@all_three
async def test_nothing_is_doubled_or_lost(world: World, server: Server, dialect: Dialect) -> None:
    model = dialect.model.partition(":")[2]
    before = faults(dialect)
    answers = [dialect.calls(f"Step {n}.", (f"call_{n}", "current_time", "{}")) for n in range(STEPS - 1)]
    answers.append(dialect.text("So ", "it ", "is."))
    body = {"model": dialect.model, "sandbox": None}
    session_id = (await world.post("/v1/sessions", body)).json()["id"]
    with socket.create_server(("127.0.0.1", 0)) as door:
        url = f"http://127.0.0.1:{door.getsockname()[1]}"
        settings = KEYS | {
            "MODEL_OPENAI_BASE_URL": f"{url}/v1",
            "MODEL_ANTHROPIC_BASE_URL": url,
            "MODEL_RETRY_BASE_SECONDS": 0.05,
            **{f"MODEL_{name.upper()}": value for name, value in dialect.settings.items()},
        }
        async with StandIn.running(door) as stand_in:
            for failing, answer in zip(before, answers, strict=True):
                stand_in.replies[model] += [*failing, dribbles(answer, 50)]
            with working(server.database_url, server.data_dir, **settings):
                run = await ended(world, (await world.submit(session_id, "Go.")).json()["run_id"])
        bodies = [without_marks(body) for body in stand_in.bodies[model]]
    assert (run["state"], run["steps"]) == ("succeeded", STEPS)
    # Only answers that were stored count.
    assert (run["usage"]["input_tokens"], run["usage"]["output_tokens"]) == (11 * STEPS, 7 * STEPS)
    usage = (await world.get(f"/v1/sessions/{session_id}")).json()["usage"]
    assert (usage["cached_tokens"], usage["input_tokens"]) == (4 * STEPS, 11 * STEPS), "the hit rate of the session"
    log = await log_of(world, session_id)
    check_log(log)
    texts = [event["data"]["text"] for event in log if event["type"] == "message"]
    assert texts == [*(f"Step {n}." for n in range(STEPS - 1)), "So it is."]
    assert len(bodies) == STEPS + sum(map(len, before)), "each fault costs one request"
    for earlier, later in pairwise(bodies):
        assert_begins_with(later, earlier)
