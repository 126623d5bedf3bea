"""The client behind a faulty proxy: calls succeed after retries, and nothing takes effect twice."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from types import SimpleNamespace
from typing import Any

import pytest

from quarterdeck.client import (
    Conflict,
    ConnectionFailed,
    Internal,
    NotFound,
    SecretLost,
    TooManyRequests,
    Unauthorized,
    UnexpectedAnswer,
    async_connection,
    calls,
    connection,
)
from tests.client import faulty_proxy as bad
from tests.client.both_clients import KINDS, Both, opened
from tests.client.faulty_proxy import Behaviour, Proxy, refuses
from tests.world import Server, World, bundle

BROKEN: list[Behaviour] = [
    bad.resets_at_once,
    bad.resets_after_the_effect,
    bad.closes_after_the_effect,
    bad.cuts_the_head,
    bad.cuts_the_body,
    bad.cuts_a_body_without_length,
    bad.cuts_a_chunk,
    bad.sends_garbage,
    bad.sends_html,
    bad.hangs,
    bad.drips,
]
HANGING = (bad.hangs, bad.drips)
both = pytest.mark.parametrize("kind", KINDS)
broken = pytest.mark.parametrize("behaviour", BROKEN, ids=lambda each: each.__name__)
# The other operations share the code of the first test: every behaviour with each of them is for `make test-all`.
FEW = (bad.resets_after_the_effect, bad.cuts_the_body)
mostly_long = pytest.mark.parametrize(
    "behaviour",
    [pytest.param(each, marks=() if each in FEW else pytest.mark.long) for each in BROKEN],
    ids=lambda each: each.__name__,
)


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "_FIRST_SECONDS", 0.01)


@asynccontextmanager
async def faulty_connection(
    server: Server, world: World, kind: str, behaviour: Behaviour, script: list[Behaviour]
) -> AsyncIterator[tuple[Proxy, Both]]:
    """A short timeout where the proxy hangs. Elsewhere the default, because the machine may be busy."""
    options: dict[str, Any] = {"timeout": 0.5} if behaviour in HANGING else {}
    async with Proxy(server, script).running() as proxy, opened(kind, proxy.url, world.key, **options) as client:
        yield proxy, client


def is_sent(proxy: Proxy, behaviour: Behaviour, times: int) -> bool:
    """With a short timeout a busy machine may cause further attempts."""
    return len(proxy.requests) == times or (behaviour in HANGING and len(proxy.requests) > times)


async def count(world: World, table: str) -> int:
    found: int = (await world.fetch(f"SELECT count(*) FROM {table} WHERE workspace_id = %s", world.workspace_id))[0][0]
    return found


async def inputs(world: World, session_id: object) -> int:
    query = "SELECT count(*) FROM session_events WHERE session_id = %s AND type = 'input.accepted'"
    found: int = (await world.fetch(query, session_id))[0][0]
    return found


@pytest.mark.long
@both
@broken
async def test_a_create_takes_effect_once(server: Server, world: World, kind: str, behaviour: Behaviour) -> None:
    script = [behaviour, refuses(503, "Retry-After: 0", after_the_effect=True), behaviour]
    async with faulty_connection(server, world, kind, behaviour, script) as (proxy, client):
        session = await client.call("create_session", title="once")
    assert session.title == "once"
    assert await count(world, "sessions") == 1
    assert is_sent(proxy, behaviour, 4)
    assert len(set(proxy.headers("Idempotency-Key"))) == 1
    assert proxy.headers("Idempotency-Key")[0] != ""


@both
@mostly_long
async def test_an_input_is_stored_once(server: Server, world: World, kind: str, behaviour: Behaviour) -> None:
    session_id = await world.new_session()
    script = [behaviour, behaviour]
    async with faulty_connection(server, world, kind, behaviour, script) as (_, client):
        submitted = await client.call("submit_input", session_id, text="hello")
        again = await client.call("submit_input", session_id, text="hello")
    assert (submitted.outcome, again.outcome) == ("new_run", "steered")
    assert await inputs(world, session_id) == 2


@both
@mostly_long
async def test_a_version_is_pushed_once(server: Server, world: World, kind: str, behaviour: Behaviour) -> None:
    skill_id = await world.new_skill()
    seen: list[tuple[int, int]] = []
    archive = bundle(notes="x" * 300_000)
    async with faulty_connection(server, world, kind, behaviour, [behaviour]) as (proxy, client):
        version = await client.call(
            "push_skill", skill_id, archive, progress=lambda sent, total: seen.append((sent, total))
        )
    assert version.version == 1
    assert version.bundle_bytes == len(archive)
    assert seen[-1] == (len(archive), len(archive))
    assert is_sent(proxy, behaviour, 2)


@both
@pytest.mark.parametrize("has_effect", [False, True])
async def test_a_push_whose_body_was_too_slow_is_retried(
    server: Server, world: World, kind: str, has_effect: bool
) -> None:
    """The server has no effect before a 408; a proxy that answers by itself might forward the request."""
    skill_id = await world.new_skill()
    script = [refuses(408, code="invalid_request", after_the_effect=has_effect)]
    async with Proxy(server, script).running() as proxy, opened(kind, proxy.url, world.key) as client:
        version = await client.call("push_skill", skill_id, bundle())
    assert version.version == 1
    assert await world.fetch("SELECT count(*) FROM skill_versions WHERE skill_id = %s", skill_id) == [(1,)]
    assert len(proxy.requests) == 2
    assert len(set(proxy.headers("Idempotency-Key"))) == 1


@both
@mostly_long
async def test_a_delete_that_took_effect_succeeds(
    server: Server, world: World, kind: str, behaviour: Behaviour
) -> None:
    session_id = await world.new_session()
    async with faulty_connection(server, world, kind, behaviour, [behaviour]) as (_, client):
        assert await client.call("delete_session", session_id) is None
    async with opened(kind, server.url, world.key) as client:
        with pytest.raises(NotFound):
            await client.call("delete_session", session_id)
    assert await count(world, "sessions") == 0


@both
@mostly_long
async def test_a_read_is_retried(server: Server, world: World, kind: str, behaviour: Behaviour) -> None:
    session_id = await world.new_session()
    async with faulty_connection(server, world, kind, behaviour, [behaviour]) as (_, client):
        assert str((await client.call("get_session", session_id)).id) == session_id


@both
async def test_a_lost_secret_raises(server: Server, world: World, kind: str) -> None:
    script = [bad.resets_after_the_effect]
    async with Proxy(server, script).running() as proxy, opened(kind, proxy.url, world.key) as client:
        with pytest.raises(SecretLost, match="Revoke this id and create another") as lost:
            await client.call("create_api_key", label="lost", permissions=[])
        assert str(lost.value.id) in str(lost.value)
        assert lost.value.record.label == "lost"
        await client.call("revoke_api_key", lost.value.id)
        fresh = await client.call("create_api_key", label="found", permissions=[])
    assert fresh.secret.startswith("qd_")


@both
async def test_a_secret_arrives_if_the_first_attempt_had_no_effect(server: Server, world: World, kind: str) -> None:
    session_id = await world.new_session()
    script = [bad.resets_at_once, refuses(503)]
    async with Proxy(server, script).running() as proxy, opened(kind, proxy.url, world.key) as client:
        made = await client.call("create_session_token", session_id)
    assert made.token.startswith("qds_")


def in_seconds(seconds: float) -> str:
    return format_datetime(datetime.now(UTC) + timedelta(seconds=seconds), usegmt=True)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses of both clients, which are recorded instead of made."""
    found: list[float] = []

    async def sleep(seconds: float) -> None:
        found.append(seconds)

    monkeypatch.setattr(async_connection, "asyncio", SimpleNamespace(sleep=sleep))
    monkeypatch.setattr(connection, "time", SimpleNamespace(sleep=found.append, monotonic=time.monotonic))
    return found


@both
@pytest.mark.parametrize("form", ["seconds", "date", "date by the server's clock"])
async def test_429_waits_for_retry_after(
    server: Server, world: World, kind: str, form: str, pauses: list[float]
) -> None:
    headers = {
        "seconds": ["Retry-After: 7"],
        "date": [f"Retry-After: {in_seconds(20)}"],
        "date by the server's clock": [
            "Date: Sun, 06 Nov 1994 08:49:37 GMT",
            "Retry-After: Sun, 06 Nov 1994 08:49:44 GMT",
        ],
    }[form]
    script = [refuses(429, *headers, code="too_many_requests")]
    async with Proxy(server, script).running() as proxy, opened(kind, proxy.url, world.key) as client:
        await client.call("create_session")
    (pause,) = pauses
    # A date that is 20 seconds ahead comes closer while the test runs.
    assert 7 <= pause <= (21 if form == "date" else 7.25)
    assert await count(world, "sessions") == 1


@both
async def test_a_pause_beyond_the_time_limit_raises_at_once(server: Server, world: World, kind: str) -> None:
    script = [refuses(429, "Retry-After: 3600", code="too_many_requests")]
    async with Proxy(server, script).running() as proxy, opened(kind, proxy.url, world.key) as client:
        with pytest.raises(TooManyRequests) as refused:
            await client.call("create_session")
    assert refused.value.retry_after == 3600
    assert len(proxy.requests) == 1


@both
async def test_the_last_attempt_raises(server: Server, world: World, kind: str) -> None:
    script = [refuses(503)] * 10
    async with Proxy(server, script).running() as proxy, opened(kind, proxy.url, world.key, retries=2) as client:
        with pytest.raises(Internal) as refused:
            await client.call("create_session")
    assert (refused.value.status, refused.value.code) == (503, "internal")
    assert len(proxy.requests) == 3


@both
async def test_only_a_conflict_with_retry_after_is_retried(server: Server, world: World, kind: str) -> None:
    script = [refuses(409, "Retry-After: 0", code="conflict"), bad.passes, refuses(409, code="conflict")]
    async with Proxy(server, script).running() as proxy, opened(kind, proxy.url, world.key) as client:
        await client.call("create_session")
        assert len(proxy.requests) == 2
        with pytest.raises(Conflict):
            await client.call("create_session")
    assert len(proxy.requests) == 3


@both
@pytest.mark.parametrize(("status", "code"), [(400, "invalid_request"), (401, "unauthorized"), (403, "forbidden"),
                                              (404, "not_found"), (412, "precondition_failed"),
                                              (426, "client_outdated")])  # fmt: skip
async def test_permanent_errors_are_not_retried(
    server: Server, world: World, kind: str, status: int, code: str
) -> None:
    script = [refuses(status, code=code)]
    async with Proxy(server, script).running() as proxy, opened(kind, proxy.url, world.key) as client:
        with pytest.raises(Exception, match="Not now") as refused:
            await client.call("create_session")
    assert refused.value.code == code  # type: ignore[attr-defined]
    assert len(proxy.requests) == 1


@both
async def test_redirects_are_not_followed(server: Server, world: World, kind: str) -> None:
    async def redirects(exchange: bad.Exchange) -> None:
        await exchange.send(b"HTTP/1.1 307 X\r\nLocation: http://elsewhere.example/\r\nContent-Length: 0\r\n\r\n")

    async with Proxy(server, [redirects]).running() as proxy, opened(kind, proxy.url, world.key) as client:
        with pytest.raises(UnexpectedAnswer, match=r"redirects to http://elsewhere\.example/"):
            await client.call("create_session")
    assert len(proxy.requests) == 1


@both
async def test_an_html_error_has_the_type_of_its_status(server: Server, world: World, kind: str) -> None:
    async def forbids(exchange: bad.Exchange) -> None:
        await exchange.send(b"HTTP/1.1 401 X\r\nContent-Type: text/html\r\nContent-Length: 6\r\n\r\n<html>")

    async with Proxy(server, [forbids]).running() as proxy, opened(kind, proxy.url, world.key) as client:
        with pytest.raises(Unauthorized):
            await client.call("create_session")


@both
async def test_no_server(kind: str) -> None:
    async with opened(kind, "http://127.0.0.1:9", "qd_test_x", retries=1) as client:
        with pytest.raises(ConnectionFailed, match=r"^Cannot connect \(http://127.0.0.1:9\): .+") as failed:
            await client.call("create_session")
    assert "\n" not in str(failed.value)
    assert not failed.value.sent
