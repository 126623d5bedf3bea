"""Both clients against the real server."""

import io
import logging
import os
import socket
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import NoneType
from typing import Any
from uuid import UUID, uuid4

import httpx
import msgspec
import pytest
from msgspec import UNSET

from quarterdeck.client import (
    ApiError,
    AsyncClient,
    Client,
    ClientOutdated,
    Conflict,
    Event,
    Forbidden,
    InvalidArgument,
    InvalidBundle,
    InvalidRequest,
    NotFound,
    PreconditionFailed,
    TooManyRequests,
    Unauthorized,
)
from quarterdeck.client.errors import BY_CODE
from quarterdeck.client.models import ApiKeyBody, Permission, SessionBody, SessionSkill
from quarterdeck.client.requests import Operation
from quarterdeck.client.transfers import Download
from quarterdeck.core.errors import ErrorCode
from tests.client import faulty_proxy as bad
from tests.client.both_clients import KINDS, Both, opened
from tests.client.faulty_proxy import Proxy
from tests.world import EVERY_PERMISSION, Server, World, bundle, serving

both = pytest.mark.parametrize("kind", KINDS)
KEY = "qd_live_abcdefghijklmnopqrstuvwxyz"


@both
async def test_sessions(server: Server, world: World, kind: str) -> None:
    async with opened(kind, server.url, world.key) as client:
        session = await client.call("create_session", title="A", instructions="Be brief.")
        assert isinstance(session, SessionBody)
        assert session.workspace_id == world.workspace_id
        changed = await client.call("change_session", session.id, title="B", if_match=session.revision)
        assert (changed.title, changed.instructions) == ("B", "Be brief.")
        with pytest.raises(PreconditionFailed):
            await client.call("change_session", session.id, title="C", if_match=session.revision)
        cleared = await client.call("change_session", str(session.id), instructions=None, if_match='"2"')
        assert (cleared.title, cleared.instructions) == ("B", None)
        await client.call("change_session", session.id, archived=True)
        assert [each.id for each in (await client.call("list_sessions", archived=True)).items] == [session.id]
        assert (await client.call("list_sessions")).items == []
        await client.call("delete_session", session.id)
        with pytest.raises(NotFound):
            await client.call("get_session", session.id)


@both
async def test_keys_and_tokens(server: Server, world: World, kind: str) -> None:
    async with opened(kind, server.url, world.key, workspace_id=world.workspace_id) as client:
        until = datetime.now(UTC) + timedelta(days=3)
        made = await client.call(
            "create_api_key", label="reader", permissions=[Permission.WORKSPACE_READ], expires_at=until
        )
        assert made.expires_at == until
        rotated = await client.call("rotate_api_key", made.id, overlap_seconds=0)
        assert rotated.secret != made.secret
        session = await client.call("create_session")
        token = await client.call("create_session_token", session.id)
        found = await client.all("iter_api_keys")
        assert [each.label for each in found] == ["reader", "reader", "test"]
    async with opened(kind, server.url, made.secret) as client:
        with pytest.raises(Unauthorized):
            await client.call("get_session", session.id)
    async with opened(kind, server.url, rotated.secret) as client:
        assert (await client.call("get_session", session.id)).id == session.id
        with pytest.raises(Forbidden) as refused:
            await client.call("create_session")
        assert (refused.value.code, refused.value.status) == ("forbidden", 403)
        assert "session.manage" in refused.value.message
        assert refused.value.request_id
    async with opened(kind, server.url, token.token) as client:
        submitted = await client.call("submit_input", session.id, text="hello")
        assert submitted.outcome == "new_run"
        run = await client.call("cancel_run", submitted.run_id)
        assert run.state == "cancelled"
        with pytest.raises(NotFound):
            await client.all("iter_sessions")


@both
async def test_pages_are_fetched_as_needed(server: Server, world: World, kind: str) -> None:
    key, key_id = await world.new_key_record(EVERY_PERMISSION)
    async with opened(kind, server.url, key) as client:
        made = [(await client.call("create_session", title=str(n))).id for n in range(7)]
        assert [each.id for each in await client.all("iter_sessions", limit=3)] == made[::-1]
        assert [each.id for each in await client.all("iter_sessions", limit=2, order="asc")] == made
        assert [each.id for each in await client.all("iter_sessions")] == made[::-1]
        page = await client.call("list_sessions", limit=2)
        assert (await client.call("list_sessions", limit=2, after=page.next_cursor)).items[0].id == made[4]
        walk = client.walk("iter_sessions", limit=2)
        assert [(await anext(walk)).id, (await anext(walk)).id] == made[:4:-1]
        # The next page is requested only now.
        await world.execute("UPDATE api_keys SET revoked_at = now() WHERE id = %s", key_id)
        with pytest.raises(Unauthorized):
            await anext(walk)


@both
async def test_the_log_by_pages(server: Server, world: World, kind: str) -> None:
    session_id = await world.new_session()
    async with opened(kind, server.url, world.key) as client:
        for n in range(3):
            await client.call("submit_input", session_id, text=str(n))
        events = await client.all("events", session_id, follow=False)
        assert all(isinstance(event, Event) for event in events)
        assert [event.data["text"] for event in events if event.type == "input.accepted"] == ["0", "1", "2"]
        rest = await client.all("events", session_id, after=events[0].id, follow=False)
        assert rest == events[1:]
        page = await client.call("list_session_events", session_id, limit=1)
        assert page.items == events[:1]


@both
async def test_own_idempotency_key(server: Server, world: World, kind: str) -> None:
    async with opened(kind, server.url, world.key) as client:
        first = await client.call("create_session", title="x", idempotency_key="mine")
        again = await client.call("create_session", title="x", idempotency_key="mine")
        assert first == again
        with pytest.raises(Conflict):
            await client.call("create_session", title="y", idempotency_key="mine")
        other = await client.call("create_session", title="x")
        assert other.id != first.id


@both
async def test_skills(server: Server, world: World, kind: str, tmp_path: Path) -> None:
    archive = bundle()
    (tmp_path / "bundle.tar.gz").write_bytes(archive)
    folder = tmp_path / "skill"
    folder.mkdir()
    (folder / "SKILL.md").write_text("---\nname: demo\ndescription: d\n---\n")
    async with opened(kind, server.url, world.key) as client:
        skill = await client.call("create_skill", name="demo")
        unseekable = io.BytesIO(archive)
        unseekable.seekable = lambda: False  # type: ignore[method-assign]
        beginning = io.BytesIO(b"not this" + archive)
        beginning.seek(8)
        for source in (archive, tmp_path / "bundle.tar.gz", unseekable, beginning):
            version = await client.call("push_skill", skill.id, source)
            assert version.manifest["archive_sha256"]
            assert version.bundle_bytes == len(archive)
        assert not beginning.closed
        packed = await client.call("push_skill", skill.id, str(folder))
        assert packed.version == 5
        assert [file["path"] for file in packed.manifest["files"]] == ["SKILL.md"]
        await client.call("create_session", skills=[SessionSkill(skill.id, 2)])
        with pytest.raises(InvalidRequest):
            await client.call("push_skill", skill.id, b"not an archive")
        with pytest.raises(InvalidBundle, match="no such file or folder"):
            await client.call("push_skill", skill.id, tmp_path / "nothing")


@both
async def test_a_download_is_complete_or_leaves_the_file_alone(
    server: Server, world: World, kind: str, tmp_path: Path
) -> None:
    """Tests `_download`, which the generated methods use, with any content."""
    document = Operation("download_document", "GET", "/openapi.json", NoneType)
    expected = (await world.http.get("/openapi.json")).content
    seen: list[int] = []
    async with opened(kind, server.url, world.key) as client:
        target = tmp_path / "document.json"
        target.write_text("old")
        size = await client.call("_download", document, target, lambda done, total: seen.append(done))
        assert target.read_bytes() == expected
        assert size == len(expected) == seen[-1]
        into = io.BytesIO()
        await client.call("_download", document, into, None)
        assert into.getvalue() == expected
        with pytest.raises(NotFound):
            await client.call("_download", Operation("x", "GET", "/v1/nothing", NoneType), target, None)
    assert target.read_bytes() == expected
    assert list(tmp_path.iterdir()) == [target]


def test_a_link_that_appears_during_a_download_is_replaced_and_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside, target = tmp_path / "outside", tmp_path / "target"
    outside.write_bytes(b"before")
    replace = os.replace

    def replace_later(source: str, path: Path) -> None:
        target.symlink_to(outside)
        replace(source, path)

    monkeypatch.setattr(os, "replace", replace_later)
    with closing(Download()) as download:
        download.start({})
        download.write(b"content")
        assert download.save(target) == 7
    assert outside.read_bytes() == b"before"
    assert not target.is_symlink()
    assert target.read_bytes() == b"content"


@both
async def test_downloads(server: Server, world: World, kind: str, tmp_path: Path) -> None:
    archive = bundle(notes="x" * 200_000)
    async with opened(kind, server.url, world.key) as client:
        skill = await client.call("create_skill", name="demo")
        await client.call("push_skill", skill.id, archive)
        size = await client.call("download_skill_bundle", skill.id, 1, str(tmp_path / "x.tar.gz"))
        assert (tmp_path / "x.tar.gz").read_bytes() == archive
        assert size == len(archive)
        into = io.BytesIO()
        await client.call("download_skill_file", skill.id, 1, into, path="notes")
        assert into.getvalue() == b"x" * 200_000
    async with (
        Proxy(server, [bad.cuts_the_body, _changes_a_byte]).running() as proxy,
        opened(kind, proxy.url, world.key) as client,
    ):
        await client.call("download_skill_bundle", skill.id, 1, tmp_path / "x.tar.gz")
    assert (tmp_path / "x.tar.gz").read_bytes() == archive
    assert len(proxy.requests) == 3


async def _changes_a_byte(exchange: bad.Exchange) -> None:
    answer = await exchange.answer()
    await exchange.send(answer[:-1] + bytes([answer[-1] ^ 1]))


@both
async def test_an_archive_that_is_too_large_is_refused_with_a_message(server: Server, world: World, kind: str) -> None:
    skill_id = await world.new_skill()
    async with opened(kind, server.url, world.key) as client:
        with pytest.raises(InvalidRequest, match="too large") as refused:
            await client.call("push_skill", skill_id, bytes(40 * 1024 * 1024))
    assert refused.value.status == 413


@pytest.mark.long
async def test_an_outdated_client(database_url: str, tmp_path: Path) -> None:
    with serving(database_url, tmp_path, HTTP_MIN_CLIENT_VERSION="99") as server:
        for kind in KINDS:
            async with opened(kind, server.url, KEY) as client:
                with pytest.raises(ClientOutdated, match="99"):
                    await client.call("create_session")


@pytest.mark.long
async def test_rate_limits(database_url: str, tmp_path: Path) -> None:
    limits = {"LIMIT_CREDENTIAL_PER_MINUTE": 60, "LIMIT_CREDENTIAL_BURST": 2}
    with serving(database_url, tmp_path, **limits) as server:
        for kind in KINDS:
            async with httpx.AsyncClient(base_url=server.url) as http:
                world = await World.create(database_url, http)
            async with opened(kind, server.url, world.key, retries=0) as client:
                with pytest.raises(TooManyRequests) as refused:
                    await _call_often(client)
                assert refused.value.retry_after is not None
            async with opened(kind, server.url, world.key) as client:
                # More calls than the burst: the client waits and retries.
                for _ in range(4):
                    await client.call("create_session")
                assert len((await client.call("list_sessions")).items) == 4


async def _call_often(client: Both) -> None:
    for _ in range(10):
        await client.call("list_sessions")


@both
async def test_the_client_sends_its_name_and_version(server: Server, world: World, kind: str) -> None:
    async with opened(kind, server.url, world.key) as client:
        assert client.inner._target.headers["Quarterdeck-Client"].startswith("quarterdeck-python/")


@both
async def test_invalid_arguments_are_not_sent(kind: str) -> None:
    wrong: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
        ("get_session", ("../api-keys",), {}),
        ("get_session", ("",), {}),
        ("get_session", ("{0192f0c1-2a00-7c3e-9d4b-3f1a5c7e9b01}",), {}),
        ("create_session", (), {"idempotency_key": ""}),
        ("create_session", (), {"idempotency_key": "x" * 256}),
        ("create_session", (), {"idempotency_key": "a\r\nb"}),
        ("create_session", (), {"workspace_id": "mine"}),
        ("create_session", (), {"title": object()}),
        ("change_session", (uuid4(),), {"if_match": "é"}),
    ]
    # There is no server on this port.
    async with opened(kind, "http://127.0.0.1:9", KEY) as client:
        for name, arguments, options in wrong:
            with pytest.raises(InvalidArgument):
                await client.call(name, *arguments, **options)


@pytest.mark.parametrize("client", [Client, AsyncClient])
@pytest.mark.parametrize(
    "url", ["", "quarterdeck", "ftp://host", "http://", "https://u:p@host", "https://host?x", "https://host:x", "//h"]
)
def test_invalid_addresses(client: type[Client | AsyncClient], url: str) -> None:
    with pytest.raises(InvalidArgument):
        client(url, KEY)


@pytest.mark.parametrize("client", [Client, AsyncClient])
def test_the_key_is_not_sent_unencrypted(client: type[Client | AsyncClient]) -> None:
    for url in ("http://quarterdeck.example", "http://10.0.0.7:8700", "http://localhost.example", "http://127.0.0.1.x"):
        with pytest.raises(InvalidArgument, match="unencrypted"):
            client(url, KEY)
        client(url, KEY, allow_http=True)
    for url in ("https://quarterdeck.example", "http://localhost:8700", "http://127.0.0.2", "http://[::1]:8700/base/"):
        client(url, KEY)


@both
async def test_no_proxy_is_used_for_loopback_addresses(
    server: Server, world: World, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy would receive the key unencrypted and could not reach this machine."""
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.getsockname()[1]}")
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        async with opened(kind, server.url, world.key, timeout=5, retries=0) as client:
            assert (await client.call("whoami")).workspace_id == world.workspace_id
        proxy.setblocking(False)
        with pytest.raises(BlockingIOError):
            proxy.accept()


@pytest.mark.parametrize("key", ["", "   ", "a b", "qd_live_é", "a\r\nX-Y: z"])
def test_invalid_keys(key: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        Client("https://quarterdeck.example", key)
    assert not key.strip() or key not in str(refused.value)


async def test_the_key_is_never_shown(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with Client(server.url, f"{KEY}\n") as client:
        shown = [repr(client), str(client), repr(vars(client)), repr(client._http)]
        with pytest.raises(Unauthorized) as refused:
            client.create_session()
        fault: BaseException | None = refused.value
        while fault is not None:
            shown += [str(fault), repr(fault), repr(vars(fault))]
            fault = fault.__cause__ or fault.__context__
    shown += [record.getMessage() for record in caplog.records]
    assert not [text for text in shown if KEY in text]


def test_every_error_code_has_an_exception() -> None:
    assert set(BY_CODE) == set(ErrorCode)
    assert len(set(BY_CODE.values())) == len(ErrorCode)
    assert all(issubclass(each, ApiError) for each in BY_CODE.values())


def test_unknown_permissions_of_a_newer_server_are_read() -> None:
    times = dict.fromkeys(("expires_at", "last_used_at", "revoked_at"))
    actor = {"user_id": str(uuid4()), "display_name": None, "primary_email": None}
    answer = {"id": str(uuid4()), "label": "", "prefix": "", "created_at": "2026-01-01T00:00:00Z", "created_by": actor}
    key = msgspec.convert(answer | times | {"permissions": ["workspace.read", "future.manage"]}, ApiKeyBody)
    assert key.permissions == [Permission.WORKSPACE_READ, "future.manage"]


def test_options_that_an_operation_does_not_have_are_refused() -> None:
    from quarterdeck.client.operations import CREATE_SESSION, GET_SESSION
    from quarterdeck.client.requests import build

    with pytest.raises(TypeError, match="get_session has no argument idempotency_key"):
        build(GET_SESSION, [UUID(int=1)], idempotency_key="once")
    with pytest.raises(TypeError, match="create_session has no argument if_match"):
        build(CREATE_SESSION, if_match=1)


def test_unset_is_left_out_and_none_is_sent() -> None:
    from quarterdeck.client.operations import CHANGE_SESSION
    from quarterdeck.client.requests import build

    made = build(CHANGE_SESSION, [UUID(int=1)], body={"title": UNSET, "model": None})
    assert made.content == b'{"model":null}'
