"""Answers that a provider cut off: the run goes on or fails, by a setting."""

from typing import Any

import pytest

from tests.workers import check_log, ended, log_of, working
from tests.world import Server, World


async def run_of(world: World, session_id: str, text: str) -> dict[str, Any]:
    return await ended(world, (await world.submit(session_id, text)).json()["run_id"])


@pytest.mark.parametrize(("setting", "state"), [(None, "succeeded"), ("keep", "succeeded"), ("fail", "failed")])
async def test_the_answer_is_marked(world: World, server: Server, setting: str | None, state: str) -> None:
    session_id = await world.new_session()
    settings = {} if setting is None else {"RUN_CUT_OFF_ANSWER": setting}
    with working(server.database_url, server.data_dir, **settings):
        run = await run_of(world, session_id, "demo: cut")
        assert run["state"] == state
        failure = "The answer was cut off. It reached the limit of output tokens."
        assert run["failure"] == (failure if state == "failed" else None)
        # Earlier answers do not matter.
        assert (await run_of(world, session_id, "Hello"))["state"] == "succeeded"
    log = await log_of(world, session_id)
    check_log(log)
    marks = [entry["data"].get("cut_off") for entry in log if entry["type"] == "message"]
    assert marks == [None, "length", None, None]


async def test_json_that_was_cut_off(world: World, server: Server) -> None:
    """The model is corrected as for any other answer that does not match, unless the run is to fail."""
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    for setting, requests in (("keep", 3), ("fail", 1)):
        session = (await world.post("/v1/sessions", {"output_schema": schema, "sandbox": None})).json()
        with working(server.database_url, server.data_dir, RUN_CUT_OFF_ANSWER=setting):
            run = await run_of(world, session["id"], "demo: cut\ndemo: steps 0")
        assert run["state"] == "failed"
        assert run["failure"].startswith("The answer was cut" if setting == "fail" else "The answer does not match")
        log = await log_of(world, session["id"])
        assert [entry["data"]["cut_off"] for entry in log if entry["type"] == "message"] == ["length"] * requests
