"""Carrying out the calls of client tools: every call is answered once, whatever happens to the connection."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from quarterdeck.client import AsyncClient, Client, InvalidArgument, NotFound, Unauthorized
from tests.client import faulty_proxy as bad
from tests.client.both_clients import KINDS, Both, opened
from tests.client.faulty_proxy import Exchange, Proxy, refuses
from tests.client.test_events import streams
from tests.workers import ended, eventually, log_of, working
from tests.world import Server, World

both = pytest.mark.parametrize("kind", KINDS)
TIMEOUT_SECONDS = 60.0


def tool(name: str) -> dict[str, Any]:
    return {"name": name, "description": f"Does {name}.", "parameters": {"type": "object"}}


async def new_session(world: World, *names: str) -> str:
    answer = await world.post("/v1/sessions", {"client_tools": [tool(name) for name in names]})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


async def call(world: World, session_id: str, *lines: str) -> str:
    """Makes the model call tools. Returns the run."""
    text = "\n".join(f"call: {line}" for line in lines)
    return str((await world.submit(session_id, text)).json()["run_id"])


async def open_actions(world: World, session_id: str, count: int) -> list[dict[str, Any]]:
    async def look() -> list[dict[str, Any]]:
        answer = await world.get(f"/v1/actions?state=open&session_id={session_id}")
        found: list[dict[str, Any]] = answer.json()["items"]
        return found if len(found) == count else []

    found: list[dict[str, Any]] = await eventually(look)
    return found


async def results(world: World, session_id: str) -> dict[str, str]:
    log = await log_of(world, session_id)
    return {entry["data"]["name"]: entry["data"]["text"] for entry in log if entry["type"] == "tool.result"}


def serve(client: Both, *arguments: Any, **options: Any) -> "asyncio.Task[None]":
    async def work() -> None:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await client.call("serve_tools", *arguments, **options)

    return asyncio.create_task(work())


def fails(**arguments: Any) -> None:
    raise ValueError("No such city.")


async def is_async(city: str) -> dict[str, Any]:
    await asyncio.sleep(0)
    return {"city": city}


@both
async def test_every_call_gets_its_result(server: Server, world: World, kind: str) -> None:
    """Calls from before and after the start, with a token of the session. A tool of somebody else is left alone."""
    tools: dict[str, Callable[..., Any]] = {
        "weather": lambda city, days=1: f"{city}: rain for {days} days",
        "data": is_async if kind == "async" else (lambda city: {"city": city}),
        "fails": fails,
        "odd": lambda: object(),
        "long": lambda: "x" * 20_000_000,
    }
    session_id = await new_session(world, *tools, "theirs")
    body = {"may_resolve": True, "label": "tools"}
    token = (await world.post(f"/v1/sessions/{session_id}/tokens", body)).json()["token"]
    with working(server.database_url, server.data_dir):
        first = await call(world, session_id, 'weather {"city": "Oslo", "days": 2}', 'data {"city": "Rome"}', "theirs")
        await open_actions(world, session_id, 3)
        async with opened(kind, server.url, token) as client:
            serving = serve(client, session_id, tools, run_id=first)
            (theirs,) = await open_actions(world, session_id, 1)
            assert theirs["tool"] == "theirs"
            assert not serving.done()
            await world.post(f"/v1/actions/{theirs['id']}/resolve", {"result": "done elsewhere"})
            await serving
            found = await results(world, session_id)
            assert found["weather"] == "Oslo: rain for 2 days"
            assert found["data"] == '{"city":"Rome"}'
            assert found["theirs"] == "done elsewhere"
            # The run has ended.
            await serve(client, session_id, tools, run_id=first)
            second = await call(world, session_id, "fails", "odd", 'weather {"town": "Oslo"}', "long")
            await serve(client, session_id, tools, run_id=second)
    found = await results(world, session_id)
    assert found["fails"] == "Error: No such city."
    assert "neither text nor JSON" in found["odd"]
    assert "unexpected keyword argument 'town'" in found["weather"]
    assert found["long"].startswith("Error: The result of long was not accepted:")
    assert "Traceback" not in "".join(found.values())
    callers = {
        entry["data"]["resolved_by"]["label"]
        for entry in await log_of(world, session_id)
        if entry["type"] == "action.resolved" and entry["data"]["tool"] != "theirs"
    }
    assert callers == {"tools"}


def by_request(*answers: bad.Behaviour) -> Callable[[Exchange], Coroutine[Any, Any, None]]:
    """Answers to a tool call meet these behaviours, one after the other. Everything else passes."""
    left = list(answers)

    async def behave(exchange: Exchange) -> None:
        if b"/resolve " in exchange.request.split(b"\r\n")[0] and left:
            await left.pop(0)(exchange)
        else:
            await (streams if b"text/event-stream" in exchange.request else bad.passes)(exchange)

    return behave


@pytest.mark.long
@both
async def test_a_call_is_carried_out_once_however_often_its_answer_is_sent(
    server: Server, world: World, kind: str
) -> None:
    calls: list[int] = []

    def count(number: int) -> int:
        calls.append(number)
        return number

    session_id = await new_session(world, "count")
    behave = by_request(
        bad.resets_at_once,
        refuses(503, "Retry-After: 0"),
        refuses(429, "Retry-After: 1", code="too_many_requests"),
        bad.resets_after_the_effect,
        # The second call.
        bad.cuts_the_body,
    )
    with working(server.database_url, server.data_dir):
        async with Proxy(server, [behave] * 500).running() as proxy, opened(kind, proxy.url, world.key) as client:
            run = await call(world, session_id, 'count {"number": 1}')
            await serve(client, session_id, {"count": count}, run_id=run)
            other = await call(world, session_id, 'count {"number": 2}')
            await serve(client, session_id, {"count": count}, run_id=other)
    assert calls == [1, 2]
    log = await log_of(world, session_id)
    assert [entry["data"]["resolution"]["result"] for entry in log if entry["type"] == "action.resolved"] == [1, 2]
    keys = {key for key in proxy.headers("Idempotency-Key") if key}
    assert len(keys) == 2, "one for each action"


@pytest.mark.long
@both
async def test_another_answer_or_a_cancelled_run_ends_nothing(server: Server, world: World, kind: str) -> None:
    """Somebody else is faster: the function's own result comes too late."""
    session_id = await new_session(world, "slow", "fast")
    loop = asyncio.get_running_loop()

    async def beaten(run_id: str, how: str) -> None:
        if how == "cancel":
            await world.post(f"/v1/runs/{run_id}/cancel", None)
            return
        (action,) = (await world.get(f"/v1/actions?state=open&session_id={session_id}")).json()["items"]
        await world.post(f"/v1/actions/{action['id']}/resolve", {"result": "by hand"})

    runs: list[str] = []

    def slow(how: str) -> str:
        asyncio.run_coroutine_threadsafe(beaten(runs[-1], how), loop).result(TIMEOUT_SECONDS)
        return "too late"

    with working(server.database_url, server.data_dir):
        async with opened(kind, server.url, world.key) as client:
            stop = threading.Event()
            options = {"stop": stop} if kind == "sync" else {}
            serving = serve(client, session_id, {"slow": slow, "fast": lambda: "in time"}, **options)
            for line in ('slow {"how": "answer"}', 'slow {"how": "cancel"}', "fast"):
                runs.append(await call(world, session_id, line))
                await ended(world, runs[-1])
            assert not serving.done()
            if kind == "sync":
                stop.set()
                await serving
            else:
                serving.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await serving
    log = await log_of(world, session_id)
    said = [entry["data"]["text"] for entry in log if entry["type"] == "tool.result"]
    assert said == ["by hand", "in time"]


@both
async def test_errors_that_a_retry_cannot_solve(server: Server, world: World, kind: str) -> None:
    session_id = await new_session(world, "weather")
    tools = {"weather": lambda: "rain"}
    async with opened(kind, server.url, "qd_test_wrong") as client:
        with pytest.raises(Unauthorized):
            await serve(client, session_id, tools)
    token = (await world.post(f"/v1/sessions/{session_id}/tokens", {})).json()["token"]
    async with opened(kind, server.url, token) as client:
        with pytest.raises(NotFound):
            await serve(client, session_id, tools)
        with pytest.raises(InvalidArgument):
            await serve(client, session_id, {"weather": "rain"})
    with Client(server.url, world.key) as sync, pytest.raises(InvalidArgument, match="AsyncClient"):
        sync.serve_tools(session_id, {"data": is_async})


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
async def test_two_servers_of_one_client_share_the_calls(server: Server, world: World, kind: str) -> None:
    calls: list[int] = []

    def count(number: int) -> str:
        calls.append(number)
        return f"counted {number}"

    session_id = await new_session(world, "count")
    with working(server.database_url, server.data_dir):
        async with opened(kind, server.url, world.key) as client:
            run = await call(world, session_id, *(f'count {{"number": {number}}}' for number in range(8)))
            await asyncio.gather(*(serve(client, session_id, {"count": count}, run_id=run) for _ in range(3)))
    assert sorted(calls) == list(range(8))
    assert isinstance(client.inner, AsyncClient if kind == "async" else Client)
