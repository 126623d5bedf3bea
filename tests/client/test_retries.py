"""The client against a server that breaks, hangs and lies: it comes to the right end, and nothing is done twice."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
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
    bad.says_nothing_that_is_http,
    bad.says_html,
    bad.hangs,
    bad.drips,
]
HANGING = (bad.hangs, bad.drips)
both = pytest.mark.parametrize("kind", KINDS)
broken = pytest.mark.parametrize("behaviour", BROKEN, ids=lambda each: each.__name__)


@asynccontextmanager
async def broken_line(
    server: Server, world: World, kind: str, behaviour: Behaviour, script: list[Behaviour]
) -> AsyncIterator[tuple[Proxy, Both]]:
    """With little patience where something hangs. Elsewhere a machine that is busy is waited for."""
    options: dict[str, Any] = {"timeout": 1.0} if behaviour in HANGING else {}
    async with Proxy(server, script).running() as proxy, opened(kind, proxy.url, world.key, **options) as client:
        yield proxy, client


def is_sent(proxy: Proxy, behaviour: Behaviour, times: int) -> bool:
    """More often only where what passes may be given up too."""
    return len(proxy.requests) == times or (behaviour in HANGING and len(proxy.requests) > times)


async def count(world: World, table: str) -> int:
    found: int = (await world.fetch(f"SELECT count(*) FROM {table} WHERE workspace_id = %s", world.workspace_id))[0][0]
    return found


async def inputs(world: World, session_id: object) -> int:
    query = "SELECT count(*) FROM session_events WHERE session_id = %s AND type = 'input.accepted'"
    found: int = (await world.fetch(query, session_id))[0][0]
    return found


@both
@broken
async def test_a_creation_takes_effect_once(server: Server, world: World, kind: str, behaviour: Behaviour) -> None:
    script = [behaviour, refuses(503, "Retry-After: 0", after_the_effect=True), behaviour]
    async with broken_line(server, world, kind, behaviour, script) as (proxy, client):
        session = await client.call("create_session", title="once")
    assert session.title == "once"
    assert await count(world, "sessions") == 1
    assert is_sent(proxy, behaviour, 4)
    assert len(set(proxy.headers("Idempotency-Key"))) == 1
    assert proxy.headers("Idempotency-Key")[0] != ""


@both
@broken
async def test_an_input_is_taken_once(server: Server, world: World, kind: str, behaviour: Behaviour) -> None:
    session_id = await world.new_session()
    script = [behaviour, behaviour]
    async with broken_line(server, world, kind, behaviour, script) as (_, client):
        submitted = await client.call("submit_input", session_id, text="hello")
        again = await client.call("submit_input", session_id, text="hello")
    assert (submitted.outcome, again.outcome) == ("new_run", "steered")
    assert await inputs(world, session_id) == 2


@both
@broken
async def test_a_version_is_pushed_once(server: Server, world: World, kind: str, behaviour: Behaviour) -> None:
    skill_id = await world.new_skill()
    seen: list[tuple[int, int]] = []
    archive = bundle(notes="x" * 300_000)
    async with broken_line(server, world, kind, behaviour, [behaviour]) as (proxy, client):
        version = await client.call(
            "push_skill", skill_id, archive, progress=lambda sent, total: seen.append((sent, total))
        )
    assert version.version == 1
    assert version.bundle_bytes == len(archive)
    assert seen[-1] == (len(archive), len(archive))
    assert is_sent(proxy, behaviour, 2)


@both
@broken
async def test_a_deletion_that_was_done_is_done(server: Server, world: World, kind: str, behaviour: Behaviour) -> None:
    session_id = await world.new_session()
    async with broken_line(server, world, kind, behaviour, [behaviour]) as (_, client):
        assert await client.call("delete_session", session_id) is None
    async with opened(kind, server.url, world.key) as client:
        with pytest.raises(NotFound):
            await client.call("delete_session", session_id)
    assert await count(world, "sessions") == 0


@both
@broken
async def test_reading_is_repeated(server: Server, world: World, kind: str, behaviour: Behaviour) -> None:
    session_id = await world.new_session()
    async with broken_line(server, world, kind, behaviour, [behaviour]) as (_, client):
        assert str((await client.call("get_session", session_id)).id) == session_id


@both
async def test_a_lost_secret_is_said_to_be_lost(server: Server, world: World, kind: str) -> None:
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
async def test_a_secret_whose_first_answer_was_never_made_arrives(server: Server, world: World, kind: str) -> None:
    session_id = await world.new_session()
    script = [bad.resets_at_once, refuses(503)]
    async with Proxy(server, script).running() as proxy, opened(kind, proxy.url, world.key) as client:
        made = await client.call("create_session_token", session_id)
    assert made.token.startswith("qds_")


def in_seconds(seconds: float) -> str:
    return format_datetime(datetime.now(UTC) + timedelta(seconds=seconds), usegmt=True)


@both
@pytest.mark.parametrize("form", ["seconds", "date", "date by the server's clock"])
async def test_429_waits_as_long_as_the_server_says(server: Server, world: World, kind: str, form: str) -> None:
    async def refuses_for_a_second(exchange: bad.Exchange) -> None:
        headers = {
            "seconds": ["Retry-After: 1"],
            # Whole seconds: this is more than one and at most two from now.
            "date": [f"Retry-After: {in_seconds(2)}"],
            "date by the server's clock": [
                "Date: Sun, 06 Nov 1994 08:49:37 GMT",
                "Retry-After: Sun, 06 Nov 1994 08:49:38 GMT",
            ],
        }[form]
        await refuses(429, *headers, code="too_many_requests")(exchange)

    script = [refuses_for_a_second]
    async with Proxy(server, script).running() as proxy, opened(kind, proxy.url, world.key) as client:
        began = time.monotonic()
        await client.call("create_session")
        waited = time.monotonic() - began
    assert waited >= 0.95
    assert await count(world, "sessions") == 1


@both
async def test_a_wait_beyond_the_budget_is_not_begun(server: Server, world: World, kind: str) -> None:
    script = [refuses(429, "Retry-After: 3600", code="too_many_requests")]
    async with Proxy(server, script).running() as proxy, opened(kind, proxy.url, world.key) as client:
        with pytest.raises(TooManyRequests) as refused:
            await client.call("create_session")
    assert refused.value.retry_after == 3600
    assert len(proxy.requests) == 1


@both
async def test_gives_up_after_the_last_try(server: Server, world: World, kind: str) -> None:
    script = [refuses(503)] * 10
    async with Proxy(server, script).running() as proxy, opened(kind, proxy.url, world.key, retries=2) as client:
        with pytest.raises(Internal) as refused:
            await client.call("create_session")
    assert (refused.value.status, refused.value.code) == (503, "internal")
    assert len(proxy.requests) == 3


@both
async def test_only_the_conflict_that_says_so_is_sent_again(server: Server, world: World, kind: str) -> None:
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
async def test_what_would_be_refused_again_is_not_sent_again(
    server: Server, world: World, kind: str, status: int, code: str
) -> None:
    script = [refuses(status, code=code)]
    async with Proxy(server, script).running() as proxy, opened(kind, proxy.url, world.key) as client:
        with pytest.raises(Exception, match="Not now") as refused:
            await client.call("create_session")
    assert refused.value.code == code  # type: ignore[attr-defined]
    assert len(proxy.requests) == 1


@both
async def test_a_redirect_is_not_followed_with_the_key(server: Server, world: World, kind: str) -> None:
    async def redirects(exchange: bad.Exchange) -> None:
        await exchange.send(b"HTTP/1.1 307 X\r\nLocation: http://elsewhere.example/\r\nContent-Length: 0\r\n\r\n")

    async with Proxy(server, [redirects]).running() as proxy, opened(kind, proxy.url, world.key) as client:
        with pytest.raises(UnexpectedAnswer, match=r"points to http://elsewhere\.example/"):
            await client.call("create_session")
    assert len(proxy.requests) == 1


@both
async def test_a_proxy_that_answers_html(server: Server, world: World, kind: str) -> None:
    async def forbids(exchange: bad.Exchange) -> None:
        await exchange.send(b"HTTP/1.1 401 X\r\nContent-Type: text/html\r\nContent-Length: 6\r\n\r\n<html>")

    async with Proxy(server, [forbids]).running() as proxy, opened(kind, proxy.url, world.key) as client:
        with pytest.raises(Unauthorized):
            await client.call("create_session")


@both
async def test_no_server(kind: str) -> None:
    async with opened(kind, "http://127.0.0.1:9", "qd_test_x", retries=1) as client:
        with pytest.raises(ConnectionFailed, match=r"^No connection \(http://127.0.0.1:9\): .+") as failed:
            await client.call("create_session")
    assert "\n" not in str(failed.value)
    assert not failed.value.sent
