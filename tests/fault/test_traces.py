"""Traces over API and workers, as a collector receives them."""

import asyncio
import json
import os
import secrets
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from unittest.mock import patch

import pytest

from tests.contract.provider_server import OPENAI, refuses, streams
from tests.fault.mcp_sessions import ECHO, LOCAL, new_mcp_server
from tests.fault.mcp_sessions import new_session as mcp_session
from tests.fault.stand_in import StandIn, asking
from tests.fault.waiting import open_actions, resolve
from tests.mcp_server import mcp_server
from tests.otlp_receiver import Collector, ReceivedSpan, collecting
from tests.workers import ended, log_of, working
from tests.world import PATIENT, Server, World, clone_database, drop_database, serving

SUBMIT = "POST /v1/sessions/{session_id}/events"
JOB = "process runs"
CALLERS_SPAN = "00f067aa0ba902b7"
SAID = "planted: the words of the user"
TOLD = "planted: the instructions"
PROVIDER_KEY = "sk-planted-key-of-the-provider"
# More than a worker fetches by one statement.
_AT_ONCE = 12


def exporting(collector: Collector, **more: str) -> dict[str, str]:
    """Environment of a process that sends its spans to the collector."""
    return {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_BSP_SCHEDULE_DELAY": "100"} | more


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with collecting() as collector:
        yield collector


@pytest.fixture(scope="module")
def server(
    postgres_url: str, template: str, collector: Collector, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    url = clone_database(postgres_url, template)
    with ExitStack() as stack:
        with patch.dict(os.environ, exporting(collector)):
            server = stack.enter_context(serving(url, tmp_path_factory.mktemp("api"), **PATIENT, **LOCAL))
        yield server
    drop_database(postgres_url, url)


@pytest.fixture
def traced(world: World) -> "Traced":
    return Traced(world)


class Traced:
    """A caller that traces its own requests."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.trace_id = secrets.token_hex(16)

    def headers(self, *, sampled: bool = True) -> dict[str, str]:
        return {"traceparent": f"00-{self.trace_id}-{CALLERS_SPAN}-0{int(sampled)}"}

    async def submit(self, session_id: str, text: str = SAID, *, sampled: bool = True, **fields: str) -> str:
        body = {"type": "input", "text": text} | fields
        path = f"/v1/sessions/{session_id}/events"
        answer = await self.world.post(path, body, headers=self.headers(sampled=sampled))
        assert answer.status_code == 200, answer.text
        run_id: str = answer.json()["run_id"]
        return run_id


def below(spans: list[ReceivedSpan], parent: str) -> list[ReceivedSpan]:
    return [span for span in spans if span.parent_id == parent]


async def new_session(world: World, model: str, **fields: object) -> str:
    body = {"model": f"openai-chat:{model}", "sandbox": None, "instructions": TOLD} | fields
    answer = await world.post("/v1/sessions", body)
    assert answer.status_code == 201, answer.text
    session_id: str = answer.json()["id"]
    return session_id


@pytest.mark.long
async def test_a_run_is_in_the_trace_of_its_request(traced: Traced, server: Server, collector: Collector) -> None:
    """Over two jobs: the run waits for a person in between. Nothing of the conversation leaves the service."""
    world = traced.world
    session_id = await new_session(world, "traced", tool_policy={"current_time": "ask"}, settings={"temperature": 0.25})
    with socket.create_server(("127.0.0.1", 0)) as door:
        async with StandIn.running(door) as stand_in:
            stand_in.replies["traced"] = [
                streams(OPENAI.calls("planted: thinking", ("call_1", "current_time", "{}"))),
                refuses(400, {"error": {"message": f"{SAID} with {PROVIDER_KEY}"}}),
            ]
            settings = {**asking(door), "MODEL_OPENAI_API_KEY": PROVIDER_KEY}
            with (
                patch.dict(os.environ, exporting(collector)),
                working(server.database_url, server.data_dir, **settings),
            ):
                run_id = await traced.submit(session_id)
                [action] = await open_actions(world, run_id)
                await resolve(world, action, decision="allow")
                assert (await ended(world, run_id))["state"] == "failed"
    agent = ["invoke_agent", "chat traced", "execute_tool current_time"]
    spans = await collector.wait_for(traced.trace_id, SUBMIT, JOB, *agent, JOB, "invoke_agent", "chat traced")

    assert len(spans) == 8
    [request] = below(spans, CALLERS_SPAN)
    assert (request.name, request.kind, request.service) == (SUBMIT, "SERVER", "quarterdeck-api")
    assert request.attributes["http.response.status_code"] == 200
    assert request.attributes["url.path"] == f"/v1/sessions/{session_id}/events"
    first_job, second_job = below(spans, request.span_id)
    assert {(job.name, job.kind, job.service) for job in (first_job, second_job)} == {
        (JOB, "CONSUMER", "quarterdeck-worker")
    }
    [first], [second] = below(spans, first_job.span_id), below(spans, second_job.span_id)
    assert first.attributes["gen_ai.conversation.id"] == session_id
    assert [span.attributes["quarterdeck.run.attempt"] for span in (first, second)] == [1, 2]
    [asked] = below(spans, first.span_id)
    called, refused = below(spans, second.span_id)
    assert (asked.name, asked.kind, asked.is_error) == ("chat traced", "CLIENT", False)
    assert (
        asked.attributes.items()
        >= {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "openai",
            "gen_ai.request.model": "traced",
            "gen_ai.request.temperature": 0.25,
        }.items()
    )
    assert asked.attributes["gen_ai.usage.input_tokens"] > 0
    assert asked.attributes["gen_ai.response.finish_reasons"] == ["tool_call"]
    assert (called.name, called.attributes["gen_ai.tool.call.id"]) == ("execute_tool current_time", "call_1")
    assert (refused.is_error, refused.attributes["error.type"]) == (True, "ContentRefused")
    assert (second.is_error, second.attributes["error.type"]) == (True, "ContentRefused")

    starts = [event["data"] for event in await log_of(world, session_id) if event["type"] == "run.started"]
    assert [start["trace_id"] for start in starts] == [traced.trace_id] * 2
    sent = b"".join(collector.bodies)
    assert [planted for planted in ("planted", world.key) if planted.encode() in sent] == []


@pytest.mark.long
async def test_content_is_recorded_if_the_operator_wants_it(
    traced: Traced, server: Server, collector: Collector
) -> None:
    """And MCP servers get the trace."""
    content = {"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "true", "OTEL_SERVICE_NAME": "my-agents"}
    # Spans that wait are sent when the worker ends, and it waits until they are.
    late, waiting = {"OTEL_BSP_SCHEDULE_DELAY": "3600000"}, {"SERVER_SHUTDOWN_SECONDS": 240}
    with (
        mcp_server() as mcp,
        patch.dict(os.environ, exporting(collector, **content, **late)),
        working(server.database_url, server.data_dir, **LOCAL, **waiting),
    ):
        server_id = await new_mcp_server(traced.world, mcp.url)
        session_id = await mcp_session(traced.world, server_id, tool_policy={"files__*": "allow"})
        for text in ("a long input " * 10_000, f"call: {ECHO}"):
            await ended(traced.world, await traced.submit(session_id, text))
    agent = ["invoke_agent", "chat demo", "chat demo"]
    calls = ["execute_tool current_time", "execute_tool files__echo"]
    spans = await collector.wait_for(traced.trace_id, *[SUBMIT, JOB, *agent] * 2, *calls)
    assert {span.service for span in spans} == {"quarterdeck-api", "my-agents"}

    attributes = [span.attributes for span in spans if span.name == "chat demo"][-1]
    asked = json.loads(attributes["gen_ai.input.messages"])
    # The newest messages that fit: the long one does not.
    assert [message["role"] for message in asked] == ["assistant", "tool", "assistant", "user", "assistant", "tool"]
    *_, said, calling, result = [message["parts"][-1] for message in asked]
    assert said == {"type": "text", "content": f"call: {ECHO}"}
    assert (calling["name"], result["response"]) == ("files__echo", "hello")
    [answer] = json.loads(attributes["gen_ai.output.messages"])
    assert "> files__echo: hello" in answer["parts"][0]["content"]
    assert "files__echo" in [tool["name"] for tool in json.loads(attributes["gen_ai.tool.definitions"])]
    [called] = [span for span in spans if span.name == "execute_tool files__echo"]
    assert called.attributes["gen_ai.tool.call.arguments"] == '{"text":"hello"}'
    assert called.attributes["gen_ai.tool.call.result"] == "hello"
    assert [span.name for span in below(spans, called.span_id)] == ["MCP send tools/call echo"]


@pytest.mark.long
async def test_runs_at_the_same_time_have_their_own_traces(world: World, server: Server, collector: Collector) -> None:
    """Although one call stores their inputs, and the worker fetches their jobs together."""
    callers = [Traced(world) for _ in range(_AT_ONCE)]
    sessions = [await world.new_session() for _ in callers]
    pairs = zip(callers, sessions, strict=True)
    runs = await asyncio.gather(*[caller.submit(session_id) for caller, session_id in pairs])
    with patch.dict(os.environ, exporting(collector)), working(server.database_url, server.data_dir):
        for run_id in runs:
            assert (await ended(world, run_id))["state"] == "succeeded"
    for caller, session_id in zip(callers, sessions, strict=True):
        spans = await collector.wait_for(caller.trace_id, SUBMIT, JOB, "invoke_agent", "chat demo")
        [request] = below(spans, CALLERS_SPAN)
        assert request.attributes["url.path"] == f"/v1/sessions/{session_id}/events"
        [job] = below(spans, request.span_id)
        [attempt] = below(spans, job.span_id)
        assert attempt.attributes["gen_ai.conversation.id"] == session_id
        assert {span.parent_id for span in spans if span not in (request, job, attempt)} == {attempt.span_id}


@pytest.mark.long
async def test_every_way_to_start_a_run_keeps_the_trace(traced: Traced, collector: Collector) -> None:
    """And a caller that does not sample its request has no spans here either."""
    world = traced.world
    session_id = await world.new_session()
    started = [await traced.submit(session_id, delivery=delivery) for delivery in ("steer", "queue", "interrupt")]
    assert (await world.post(f"/v1/runs/{started[1]}/cancel", {})).status_code == 200
    assert (await world.post(f"/v1/runs/{started[2]}/cancel", {})).status_code == 200
    retried = await world.http.post(f"/v1/runs/{started[2]}/retry", headers=world.headers() | traced.headers())
    assert retried.status_code == 201, retried.text
    other = await world.new_session()
    unsampled = await traced.submit(other, sampled=False)
    spans = await collector.wait_for(traced.trace_id, *[SUBMIT] * 3, "POST /v1/runs/{run_id}/retry")
    assert len(spans) == 4
    rows = await world.fetch("SELECT id::text, traceparent FROM runs WHERE workspace_id = %s", world.workspace_id)
    requests = [*started, retried.json()["id"]]
    wanted = {run_id: f"00-{traced.trace_id}-{span.span_id}-01" for run_id, span in zip(requests, spans, strict=True)}
    stored = dict(rows)
    assert stored.pop(unsampled).endswith("-00")
    assert stored == wanted


async def test_requests_that_are_no_part_of_the_api_are_not_traced(
    traced: Traced, server: Server, collector: Collector
) -> None:
    """Streams end their span when they begin. Calls over /mcp are below it."""
    world, given = traced.world, traced.headers()
    session_id = await world.new_session()
    for path in ("/healthz", "/readyz", "/", "/openapi.json"):
        assert (await world.http.get(path, headers=given)).status_code == 200
    assert (await world.get("/v1/nothing", headers=given)).status_code == 404
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    both = {"Accept": "application/json, text/event-stream"}
    assert (await world.post("/mcp", call, headers=given | both)).status_code == 200
    stream = {"Accept": "text/event-stream"} | world.headers() | given
    async with world.http.stream("GET", f"/v1/sessions/{session_id}/events", headers=stream):
        names = ["GET", "POST /mcp", "GET /v1/whoami", "GET /v1/sessions/{session_id}/events"]
        spans = await collector.wait_for(traced.trace_id, *names, "tools/list")
    assert len(spans) == 5
    [mcp] = [span for span in spans if span.name == "POST /mcp"]
    assert [span.name for span in below(spans, mcp.span_id)] == ["GET /v1/whoami", "tools/list"]


@pytest.mark.long
async def test_a_collector_that_does_not_answer_delays_nothing(server: Server, world: World) -> None:
    """Neither runs nor the end of the worker, although the library would wait for the answer."""
    session_id = await world.new_session()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        variables = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{silent.getsockname()[1]}",
            "OTEL_EXPORTER_OTLP_TIMEOUT": "3600",
            "OTEL_BSP_SCHEDULE_DELAY": "100",
        }
        with patch.dict(os.environ, variables), working(server.database_url, server.data_dir) as worker:
            run_id = (await world.submit(session_id)).json()["run_id"]
            assert (await ended(world, run_id))["state"] == "succeeded"
            connection, _ = await asyncio.to_thread(silent.accept)
    connection.close()
    assert worker.process.returncode == 0
