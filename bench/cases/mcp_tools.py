"""Steps with 50 tools of an MCP server, and steps without: what the tools cost the worker in processor time. A step is
a request to a provider on this machine and a call of `current_time`."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID

import msgspec
from msgspec import Struct

from bench.case import BenchError, Case, Ground, Round, Taken, at_most
from bench.mcp_server import TOOLS, mcp_server, methods_of
from bench.provider import STEP_BY_STEP, STEPS, provider
from bench.resources import cpu_seconds
from bench.server import Caller, Server, serving
from quarterdeck.runs.model import RunState

_RUNS = 3
_LOCAL: dict[str, object] = {"MCP_ALLOWED_ADDRESSES": "127.0.0.0/8"}
# A short conversation: a long one would cost more than the tools, and a summary would be one more step.
_SHORT: dict[str, object] = {"MODEL_CONTEXT_TOKENS": 4000, "MODEL_COMPACTION": "trim"}


class McpStage(Struct, frozen=True):
    server: Server
    worker_id: int
    mcp_port: int
    with_tools: UUID
    without: UUID


@asynccontextmanager
async def with_mcp_server(ground: Ground) -> AsyncIterator[McpStage]:
    async with (
        provider() as url,
        mcp_server(ground) as port,
        serving(ground, MODEL_OPENAI_BASE_URL="http://127.0.0.1:1/v1", **_LOCAL) as server,
    ):
        with server.worker(MODEL_OPENAI_BASE_URL=url, **_SHORT, **_LOCAL) as worker:
            async with server.caller() as caller:
                body = {"name": "bench", "url": f"http://127.0.0.1:{port}/mcp"}
                server_id = (await caller.post("/v1/mcp-servers", msgspec.json.encode(body)))["id"]
                sessions = [await _new_session(caller, servers) for servers in ([server_id], [])]
                for session_id in sessions:
                    # The first run loads the libraries of provider and server, and connects.
                    await _steps(caller, session_id)
            yield McpStage(server, worker.pid, port, *sessions)


async def _new_session(caller: Caller, servers: list[str]) -> UUID:
    body = {"model": "openai-chat:bench", "sandbox": None, "mcp_servers": servers}
    return UUID((await caller.post("/v1/sessions", msgspec.json.encode(body)))["id"])


async def _steps(caller: Caller, session_id: UUID) -> None:
    run = await caller.until_ended((await caller.submit(session_id, STEP_BY_STEP)).run_id)
    if run.state is not RunState.SUCCEEDED or run.steps != STEPS + 1:
        raise BenchError(f"a run with {run.steps} steps is {run.state}: {run.failure}")


async def us(stage: McpStage, one: Round) -> Taken:
    """Runs with and without the tools, in turns."""
    used = {stage.with_tools: 0.0, stage.without: 0.0}
    before = await methods_of(stage.mcp_port)
    async with stage.server.caller() as caller:
        for _ in range(_RUNS):
            for session_id in used:
                began = cpu_seconds(stage.worker_id)
                await _steps(caller, session_id)
                used[session_id] += cpu_seconds(stage.worker_id) - began
    after = await methods_of(stage.mcp_port)
    if after["tools/list"] != before["tools/list"] + _RUNS:
        raise BenchError("the tools were not listed once for each run")
    connects = [sum(counts.get(name, 0) for name in ("initialize", "server/discover")) for counts in (before, after)]
    if connects[0] != connects[1]:
        raise BenchError("the worker connected again")
    steps = _RUNS * (STEPS + 1)
    with_ms, without_ms = (1000 * seconds / steps for seconds in used.values())
    return Taken(with_ms - without_ms, notes={"with the tools, ms": with_ms, "without, ms": without_ms})


CASE = Case(
    title=f"{TOOLS} MCP tools, processor time of the worker for each step",
    unit="ms",
    reach=at_most(5),
    stage=with_mcp_server,
    us=us,
    rounds=3,
)
