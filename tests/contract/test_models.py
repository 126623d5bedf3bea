"""GET /v1/models, and what a session asks of its model."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from quarterdeck.core.actors import Permission
from tests.contract.provider_server import OPENAI, RESPONSES, provider, streams
from tests.workers import ended, log_of, working
from tests.world import Server, World, clone_database, drop_database, error_of, serving

NOT_SET = {"temperature": None, "max_output_tokens": None, "reasoning_effort": None}


async def test_configured_models_are_listed(postgres_url: str, template: str, tmp_path: Path) -> None:
    url = clone_database(postgres_url, template)
    settings = {
        "MODEL_DEFAULT": "anthropic:claude-a",
        "MODEL_ANTHROPIC_API_KEY": "k",
        "MODEL_OPENAI_BASE_URL": "",
        "MODEL_NAMES": "anthropic:claude-b, openai:not-configured,anthropic:claude-a",
    }
    with serving(url, tmp_path, **settings) as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=30) as http:
            world = await World.create(url, http)
            reader = await world.new_key(Permission.WORKSPACE_READ)
            assert (await world.get("/v1/models", key=reader)).json() == {
                "default": "anthropic:claude-a",
                "providers": ["demo", "anthropic"],
                "items": [
                    {"model": "anthropic:claude-a", "provider": "anthropic"},
                    {"model": "anthropic:claude-b", "provider": "anthropic"},
                    {"model": "demo", "provider": "demo"},
                ],
            }
            session = (await world.post("/v1/sessions", {})).json()
            assert (session["model"], session["effective_model"]) == (None, "anthropic:claude-a")
            session = (await world.patch(f"/v1/sessions/{session['id']}", {"model": "demo"})).json()
            assert (session["model"], session["effective_model"]) == ("demo", "demo")
            refused = await world.post("/v1/sessions", {"model": "openai:gpt"})
            assert error_of(refused) == (400, "invalid_request")
            assert refused.json()["error"]["message"] == (
                'Unknown model "openai:gpt". QUARTERDECK_MODEL_OPENAI_API_KEY is not set on the server. '
                "Use anthropic:NAME or demo."
            )
    drop_database(postgres_url, url)


async def test_a_model_without_a_provider_is_400(world: World) -> None:
    session = (await world.post("/v1/sessions", {"model": "openai:whatever"})).json()
    path = f"/v1/sessions/{session['id']}"
    for name in ("gpt", "demo:x", "anthropic:claude", "openai:", "Openai:x"):
        for answer in (await world.post("/v1/sessions", {"model": name}), await world.patch(path, {"model": name})):
            assert error_of(answer) == (400, "invalid_request")
            assert answer.json()["error"]["message"].startswith(f'Unknown model "{name}". ')
    assert (await world.get(path)).json() == session
    # One that was configured once may stay.
    await world.execute("UPDATE sessions SET model = 'anthropic:claude' WHERE id = %s", session["id"])
    kept = await world.patch(path, {"model": "anthropic:claude", "title": "kept"})
    assert (kept.status_code, kept.json()["effective_model"]) == (200, "anthropic:claude")


async def test_settings_are_changed_one_by_one(world: World) -> None:
    plain = (await world.post("/v1/sessions", {})).json()
    assert plain["settings"] == NOT_SET
    session = (await world.post("/v1/sessions", {"settings": {"temperature": 0.5, "max_output_tokens": 100}})).json()
    path = f"/v1/sessions/{session['id']}"
    change = {"settings": {"temperature": None, "reasoning_effort": "low"}}
    changed = (await world.patch(path, change)).json()
    assert changed["settings"] == {"temperature": None, "max_output_tokens": 100, "reasoning_effort": "low"}
    assert changed["revision"] == 2
    assert (await world.get(path)).json() == changed
    assert (await world.patch(path, change)).json()["revision"] == 2
    ((detail,),) = await world.fetch(
        "SELECT detail FROM audit_events WHERE action = 'change_session' AND object_id = %s", session["id"]
    )
    assert detail == {"fields": ["settings"]}
    bad: tuple[Any, ...] = (
        {"temperature": 2.1},
        {"temperature": -0.1},
        {"temperature": "hot"},
        {"max_output_tokens": 0},
        {"max_output_tokens": 1_000_001},
        {"max_output_tokens": 1.5},
        {"reasoning_effort": "extreme"},
        [],
    )
    for settings in bad:
        assert error_of(await world.patch(path, {"settings": settings})) == (400, "invalid_request")
        assert error_of(await world.post("/v1/sessions", {"settings": settings})) == (400, "invalid_request")


@pytest.mark.long
async def test_a_run_with_settings(world: World, server: Server) -> None:
    """What reaches the provider, what the session has used, and where its words are found."""
    settings = {"temperature": 0.25, "max_output_tokens": 77, "reasoning_effort": "high"}
    session = (await world.post("/v1/sessions", {"model": "openai:m", "settings": settings})).json()
    path = f"/v1/sessions/{session['id']}"
    answers = [streams(OPENAI.text("The harbour ", "is quiet."))] * 2
    async with provider(*answers) as served:
        with working(server.database_url, server.data_dir, MODEL_OPENAI_BASE_URL=f"{served.url}/v1"):
            for text in ("Where do we moor?", "And tomorrow?"):
                run = await ended(world, (await world.submit(session["id"], text)).json()["run_id"])
                assert run["state"] == "succeeded", run
                await world.patch(path, {"settings": NOT_SET})
    first, second = (request.body for request in served.requests)
    sent = {name: first.get(name) for name in ("temperature", "max_completion_tokens", "reasoning_effort")}
    assert sent == {"temperature": 0.25, "max_completion_tokens": 77, "reasoning_effort": "high"}
    assert not {"temperature", "max_tokens", "max_completion_tokens", "reasoning_effort"} & set(second)
    assert (await world.get(path)).json()["usage"] == {
        "input_tokens": 22,
        "cached_tokens": 8,
        "cache_write_tokens": 0,
        "output_tokens": 14,
        "cost_usd": None,
    }
    for words, found in (("MOOR", 1), ("quiet harbour", 1), ('"harbour is quiet"', 1), ('"quiet harbour"', 0)):
        page = (await world.get(f"/v1/sessions?search={words}&in=conversations")).json()
        assert len(page["items"]) == found, words


@pytest.mark.long
async def test_settings_that_the_model_does_not_take_are_in_the_log(world: World, server: Server) -> None:
    body = {"model": "openai:o3", "settings": {"temperature": 0.25, "max_output_tokens": 77}}
    session = (await world.post("/v1/sessions", body)).json()
    calls = RESPONSES.calls("", ("call_1", "current_time", "{}"))
    async with provider(streams(calls), streams(RESPONSES.text("Noon."))) as served:
        settings = {"MODEL_OPENAI_BASE_URL": f"{served.url}/v1", "MODEL_OPENAI_API": "responses"}
        with working(server.database_url, server.data_dir, **settings):
            run = await ended(world, (await world.submit(session["id"], "What time is it?")).json()["run_id"])
    assert run["state"] == "succeeded", run
    log = await log_of(world, session["id"])
    ignored = [entry["data"] for entry in log if entry["type"] == "settings.ignored"]
    assert ignored == [{"model": "openai:o3", "settings": ["temperature"]}], "once for each run"
    for request in served.requests:
        assert (request.body["max_output_tokens"], "temperature" in request.body) == (77, False)
