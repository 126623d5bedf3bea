"""Rate limits over the real server, in memory and in a real Valkey. A minute for each request where nothing may come
back while a test runs, so that every number is exact."""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from quarterdeck.auth.rate_limits import Rate
from quarterdeck.auth.redis_rate_limits import RedisBackend
from quarterdeck.core.actors import CredentialKind, Permission, Role
from quarterdeck.core.secrets import mint
from quarterdeck.people import members
from tests.cli.command import qd
from tests.people import Person
from tests.sse import reading
from tests.valkey import Valkey, valkey_running
from tests.world import Server, World, bundle, clone_database, drop_database, error_of, serving

TOO_MANY = (429, "too_many_requests")
# With these a request is back after a minute.
SLOW = {"LIMIT_CREDENTIAL_PER_MINUTE": 1, "LIMIT_WORKSPACE_PER_MINUTE": 1}
FIVE_EACH = SLOW | {"LIMIT_WORKSPACE_PER_MINUTE": 0, "LIMIT_CREDENTIAL_BURST": 5}
MANY = SLOW | {"LIMIT_CREDENTIAL_BURST": 100, "LIMIT_WORKSPACE_BURST": 100}
_ITEM = re.compile(r'"(\w+)"((?:;\w+=\d+)+)')


def items(header: str) -> dict[str, dict[str, int]]:
    """A list of strings with integers as parameters, by RFC 9651."""
    found = {}
    for item in header.split(", "):
        match = _ITEM.fullmatch(item)
        assert match is not None, header
        found[match[1]] = {name: int(value) for name, value in re.findall(r"(\w+)=(\d+)", match[2])}
    return found


def left(answer: httpx.Response, of: str = "credential") -> int:
    return items(answer.headers["ratelimit"])[of]["r"]


def is_silent(answer: httpx.Response) -> bool:
    return "ratelimit" not in answer.headers and "ratelimit-policy" not in answer.headers


@pytest.fixture(scope="module")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Valkey]:
    with valkey_running(tmp_path_factory.mktemp("valkey")) as valkey:
        yield valkey


@pytest.fixture(params=["memory", pytest.param("redis", marks=pytest.mark.long)])
def counting(request: pytest.FixtureRequest) -> dict[str, str]:
    return {} if request.param == "memory" else by_redis(request.getfixturevalue("valkey"))


def by_redis(valkey: Valkey) -> dict[str, str]:
    """A Redis that is slow because the machine is busy is waited for."""
    return {"LIMIT_REDIS_URL": valkey.url, "LIMIT_REDIS_WAIT_SECONDS": "30"}


@asynccontextmanager
async def limited(database_url: str, folder: Path, **settings: object) -> AsyncIterator[World]:
    with serving(database_url, folder, **settings) as server:
        async with world_on(server) as world:
            yield world


@asynccontextmanager
async def world_on(server: Server) -> AsyncIterator[World]:
    async with httpx.AsyncClient(base_url=server.url, timeout=30) as http:
        yield await World.create(server.database_url, http)


Servers = Callable[..., Server]


@pytest.fixture(scope="module")
def servers(postgres_url: str, template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """One for each of the settings that several tests ask for. Limits are those of workspaces and their credentials,
    and every test has its own."""
    url = clone_database(postgres_url, template)
    found: dict[tuple[tuple[str, object], ...], Server] = {}
    with ExitStack() as stack:

        def served(**settings: object) -> Server:
            name = tuple(sorted(settings.items()))
            if name not in found:
                folder = tmp_path_factory.mktemp("limited")
                # PostgreSQL takes a hundred connections, and these servers stay while others come and go.
                few = {"DATABASE_POOL_CONNECTIONS": 3, "DATABASE_SUBMIT_CONNECTIONS": 1}
                found[name] = stack.enter_context(serving(url, folder, **settings, **few))
            return found[name]

        yield served
    drop_database(postgres_url, url)


async def test_zero_means_no_limit(world: World) -> None:
    for _ in range(100):
        answer = await world.list_keys()
        assert answer.status_code == 200
    assert is_silent(answer)


async def test_on_by_default(servers: Servers) -> None:
    """An empty variable counts as not set."""
    async with world_on(servers(LIMIT_CREDENTIAL_PER_MINUTE="", LIMIT_WORKSPACE_PER_MINUTE="")) as world:
        session_id = await world.new_session()
        for answer in (await world.list_keys(), await world.submit(session_id)):
            assert answer.status_code == 200
            policy = items(answer.headers["ratelimit-policy"])
            assert policy == {"credential": {"q": 30_000, "w": 60}, "workspace": {"q": 60_000, "w": 60}}
            assert 4900 < left(answer) < 5000
            assert 9900 < left(answer, "workspace") < 10_000


async def test_a_credential_has_its_burst_and_no_more(servers: Servers, counting: dict[str, str]) -> None:
    async with world_on(servers(**FIVE_EACH, **counting)) as world:
        answers = [await world.list_keys() for _ in range(5)]
        assert [(answer.status_code, left(answer)) for answer in answers] == [(200, n) for n in (4, 3, 2, 1, 0)]
        refused = await world.list_keys()
        assert error_of(refused) == TOO_MANY
        assert "credential" in refused.json()["error"]["message"]
        assert 1 <= int(refused.headers["retry-after"]) <= 60
        for answer in (*answers, refused):
            assert items(answer.headers["ratelimit-policy"]) == {"credential": {"q": 1, "w": 60}}
            assert 1 <= items(answer.headers["ratelimit"])["credential"]["t"] <= 60
        # The draft: not before the end of the effective window.
        assert int(refused.headers["retry-after"]) >= items(refused.headers["ratelimit"])["credential"]["t"]
        assert (await world.list_keys(key=await world.new_key())).status_code == 200, "each has its own"
        assert error_of(await world.list_keys()) == TOO_MANY
        for path in ("/healthz", "/readyz", "/openapi.json", "/docs"):
            answer = await world.get(path)
            assert answer.status_code == 200
            assert is_silent(answer)


@pytest.mark.long
async def test_request_succeeds_after_retry_after(database_url: str, tmp_path: Path, counting: dict[str, str]) -> None:
    settings = {"LIMIT_CREDENTIAL_PER_MINUTE": 30, "LIMIT_CREDENTIAL_BURST": 1}
    async with limited(database_url, tmp_path, **settings, **counting) as world:
        while (answer := await world.list_keys()).status_code == 200:
            assert left(answer) == 0
        await asyncio.sleep(int(answer.headers["retry-after"]))
        assert (await world.list_keys()).status_code == 200


@pytest.mark.long
async def test_request_refused_by_one_limit_is_not_charged_to_the_other(
    database_url: str, tmp_path: Path, counting: dict[str, str]
) -> None:
    settings = SLOW | {"LIMIT_CREDENTIAL_BURST": 2, "LIMIT_WORKSPACE_BURST": 5}
    async with limited(database_url, tmp_path, **settings, **counting) as world:
        keys = [world.key, await world.new_key(), await world.new_key()]
        statuses = [[(await world.list_keys(key=key)).status_code for _ in range(4)] for key in keys]
        assert statuses == [[200, 200, 429, 429], [200, 200, 429, 429], [200, 429, 429, 429]]
        by_key, by_workspace = await world.list_keys(key=keys[0]), await world.list_keys(key=keys[2])
        assert [left(by_key), left(by_workspace)] == [0, 1], "refused by the workspace, the key keeps what it has"
        assert left(by_key, "workspace") == left(by_workspace, "workspace") == 0
        assert "workspace" in by_workspace.json()["error"]["message"]
        other = await World.create(world.database_url, world.http)
        assert (await other.list_keys()).status_code == 200


async def test_a_former_member_takes_nothing_from_the_limit(servers: Servers) -> None:
    """A person who is signed in, and still a member of another workspace."""
    async with world_on(servers(**MANY)) as world:
        other = await World.create(world.database_url, world.http)
        ann = await Person.join(world, Role.MEMBER)
        async with await world.connect() as connection:
            await members.add_by_operator(connection, other.workspace_id, ann.email)
        assert (await ann.get("/v1/sessions")).status_code == 200
        assert (await world.delete(f"/v1/members/{await ann.id()}")).status_code == 204
        assert error_of(await ann.get("/v1/workspace")) == (404, "not_found")
        before = left(await world.list_keys(), "workspace")
        for _ in range(5):
            assert error_of(await ann.get("/v1/workspace")) == (404, "not_found")
        assert left(await world.list_keys(), "workspace") == before - 1


async def test_a_session_token_counts_for_itself_and_for_its_workspace(servers: Servers) -> None:
    async with world_on(servers(**MANY)) as world:
        session_id = await world.new_session()
        token = await world.new_token(session_id)
        assert left(await world.list_keys()) == 97
        answer = await world.submit(session_id, key=token)
        assert [left(answer), left(answer, "workspace")] == [99, 96]
        answer = await world.get(f"/v1/sessions/{session_id}/events", key=token)
        assert [left(answer), left(answer, "workspace")] == [98, 95]


async def test_a_request_is_charged_once_whatever_it_takes(servers: Servers, counting: dict[str, str]) -> None:
    """A push checks its caller twice, a submitted input goes by another way, and a stream lives on."""
    async with world_on(servers(**MANY, **counting)) as world:
        session_id, skill_id = await world.new_session(), await world.new_skill()
        bad = {"type": "nothing"}
        keyed = {"Idempotency-Key": "once"}
        calls: list[Any] = [
            lambda: world.push(skill_id, bundle()),
            lambda: world.submit(session_id),
            lambda: world.submit(session_id),
            lambda: world.post(f"/v1/sessions/{session_id}/events", bad),
            lambda: world.post("/v1/sessions", {}, headers=keyed),
            lambda: world.post("/v1/sessions", {}, headers=keyed),
            lambda: world.get("/v1/runs/nonsense"),
            lambda: world.get(f"/v1/runs/{session_id}"),
        ]
        for number, call in enumerate(calls):
            answer = await call()
            assert left(answer) == left(answer, "workspace") == 97 - number, (number, answer.text)
        async with reading(str(world.http.base_url), session_id, world.key) as events:
            assert left(events.response) == 89
            await events.stored(1)
        assert left(await world.list_keys()) == 88


async def test_the_order_of_checks(servers: Servers, counting: dict[str, str]) -> None:
    """Before everything that comes after the credential, and after the credential."""
    async with world_on(servers(**FIVE_EACH, **counting)) as world:
        key, key_id = await world.new_key_record((Permission.WORKSPACE_READ,))
        assert {(await world.list_keys(key=key)).status_code for _ in range(5)} == {200}
        events = f"/v1/sessions/{key_id}/events"
        assert error_of(await world.get("/v1/runs/nonsense", key=key)) == TOO_MANY, "400"
        assert error_of(await world.get(f"/v1/runs/{key_id}", key=key)) == TOO_MANY, "404"
        assert error_of(await world.post("/v1/sessions", {}, key=key)) == TOO_MANY, "403"
        assert error_of(await world.post(events, {"type": "x"}, key=key)) == TOO_MANY, "400 of the body"
        large = {"type": "input", "text": "x" * 1_100_000}
        assert error_of(await world.post(events, large, key=key)) == TOO_MANY, "413"
        assert (await world.http.put("/v1/sessions", headers=world.headers(key))).status_code == 405
        await world.execute("UPDATE api_keys SET revoked_at = now() WHERE id = %s", key_id)
        revoked = await world.list_keys(key=key)
        assert error_of(revoked) == (401, "unauthorized")
        assert is_silent(revoked)
        unknown = await world.list_keys(key=mint(CredentialKind.API_KEY, "test").text)
        assert error_of(unknown) == (401, "unauthorized")
        assert is_silent(unknown)


async def test_submit_is_limited_for_known_callers(servers: Servers, counting: dict[str, str]) -> None:
    async with world_on(servers(**FIVE_EACH, **counting)) as world:
        session_id = await world.new_session()
        key, key_id = await world.new_key_record((Permission.SESSION_MANAGE,))
        answers = [await world.submit(session_id, key=key) for _ in range(7)]
        assert [answer.status_code for answer in answers] == [200, 200, 200, 200, 200, 429, 429]
        assert [left(answer) for answer in answers] == [4, 3, 2, 1, 0, 0, 0]
        query = "SELECT count(*) FROM session_events WHERE type = 'input.accepted' AND session_id = %s"
        assert await world.fetch(query, session_id) == [(5,)]
        await world.execute("UPDATE api_keys SET revoked_at = now() WHERE id = %s", key_id)
        assert error_of(await world.submit(session_id, key=key)) == (401, "unauthorized")


async def test_a_dead_credential_does_not_use_up_its_workspace(servers: Servers) -> None:
    async with world_on(servers(**MANY)) as world:
        session_id = await world.new_session()
        key, key_id = await world.new_key_record((Permission.SESSION_MANAGE,))
        assert left(await world.submit(session_id, key=key), "workspace") == 98
        await world.execute("UPDATE api_keys SET revoked_at = now() WHERE id = %s", key_id)
        for _ in range(20):
            refused = await world.submit(session_id, key=key)
            assert error_of(refused) == (401, "unauthorized")
            assert is_silent(refused)
        # One may be charged before it is known that the key is dead.
        assert left(await world.list_keys(), "workspace") >= 96


async def answers_over_many_connections(server: Server, world: World, count: int) -> list[httpx.Response]:
    """The kernel gives each connection to one of the processes."""
    headers = world.headers() | {"Service-Workspace": str(world.workspace_id)}

    async def ask() -> httpx.Response:
        async with httpx.AsyncClient(base_url=server.url, timeout=30) as http:
            return await http.get("/v1/api-keys", headers=headers)

    return [await ask() for _ in range(count)]


@pytest.mark.long
async def test_processes_share_the_limit(database_url: str, tmp_path: Path, counting: dict[str, str]) -> None:
    settings = SLOW | {"LIMIT_WORKSPACE_PER_MINUTE": 0, "LIMIT_CREDENTIAL_BURST": 10, "SERVER_PROCESSES": 2}
    with serving(database_url, tmp_path, **settings, **counting) as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=30) as http:
            world = await World.create(database_url, http)
            answers = await answers_over_many_connections(server, world, 80)
    good = [answer for answer in answers if answer.status_code == 200]
    assert {answer.status_code for answer in answers} == {200, 429}
    assert len(good) == 10
    policy = {"q": 1, "w": 60} if counting else {"q": 1, "w": 120}
    assert items(good[0].headers["ratelimit-policy"]) == {"credential": policy}, "what this process holds to"


@pytest.mark.long
async def test_servers_share_one_redis(database_url: str, tmp_path: Path, valkey: Valkey) -> None:
    settings = SLOW | {"LIMIT_CREDENTIAL_BURST": 6} | by_redis(valkey)
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
    with serving(database_url, folders[0], **settings) as one, serving(database_url, folders[1], **settings) as two:
        async with httpx.AsyncClient(timeout=30) as http:
            world = await World.create(database_url, http)
            headers = world.headers() | {"Service-Workspace": str(world.workspace_id)}
            answers = [await http.get(f"{server.url}/v1/api-keys", headers=headers) for server in (one, two) * 4]
    assert [answer.status_code for answer in answers] == [200] * 6 + [429] * 2


async def test_concurrent_requests_share_one_redis_call(valkey: Valkey) -> None:
    rate = Rate("credential", 1, 60_000_000)
    shared = RedisBackend(valkey.url, [rate], wait_seconds=30)
    try:
        holders = [rate.key(uuid4()) for _ in range(300)]
        first = await asyncio.gather(*(shared.charge((holder,)) for holder in holders))
        known = holders[::2]
        mixed = await asyncio.gather(
            *(shared.charge((each,)) for holder in known for each in (holder, rate.key(uuid4())))
        )
    finally:
        await shared.close()
    assert [taken is not None and taken.allowed for taken in first] == [True] * 300
    assert [taken is not None and taken.allowed for taken in mixed] == [False, True] * 150
    assert all(taken is not None and 0 < taken.states[0].backlog_us <= 60_000_000 for taken in mixed)


# --- Redis away ---


async def until_limited(world: World) -> httpx.Response:
    deadline = time.monotonic() + 60
    while (answer := await world.list_keys()).status_code == 200:
        assert time.monotonic() < deadline, "limits did not come back"
        await asyncio.sleep(0.05)
    return answer


def away(database_url: str, folder: Path, valkey: Valkey, **settings: object) -> AbstractAsyncContextManager[World]:
    return limited(database_url, folder, **(SLOW | {"LIMIT_CREDENTIAL_BURST": 3} | by_redis(valkey) | settings))


def said(folder: Path, words: str) -> int:
    return (folder / "api.log").read_text().count(words)


@pytest.mark.long
async def test_without_redis_nothing_is_limited_until_it_returns(database_url: str, tmp_path: Path) -> None:
    folder = tmp_path / "valkey"
    folder.mkdir()
    with valkey_running(folder) as valkey:
        async with away(database_url, tmp_path, valkey) as world:
            assert error_of(await until_limited(world)) == TOO_MANY
            valkey.stop()
            answers = [await world.list_keys() for _ in range(50)]
            assert {answer.status_code for answer in answers} == {200}
            assert "ratelimit" not in answers[-1].headers, "nobody knows how many are left"
            assert set(items(answers[-1].headers["ratelimit-policy"])) == {"credential", "workspace"}
            assert said(tmp_path, "rate limits are not enforced") == 1
            valkey.start()
            assert error_of(await until_limited(world)) == TOO_MANY
            assert said(tmp_path, "rate limits are enforced") == 1


@pytest.mark.long
async def test_requests_succeed_while_redis_hangs(database_url: str, tmp_path: Path) -> None:
    folder = tmp_path / "valkey"
    folder.mkdir()
    with valkey_running(folder) as valkey:
        async with away(database_url, tmp_path, valkey, LIMIT_REDIS_WAIT_SECONDS=0.25) as world:
            assert error_of(await until_limited(world)) == TOO_MANY
            with valkey.paused():
                session_id = await world.new_session()
                calls = [world.submit(session_id) for _ in range(10)] + [world.list_keys() for _ in range(30)]
                assert {answer.status_code for answer in await asyncio.gather(*calls)} == {200}
            assert error_of(await until_limited(world)) == TOO_MANY


@pytest.mark.long
async def test_a_restart_of_redis_is_not_noticed(database_url: str, tmp_path: Path) -> None:
    """It has forgotten everything, the script too; the connections to it are dead and do not know it."""
    folder = tmp_path / "valkey"
    folder.mkdir()
    with valkey_running(folder) as valkey:
        async with away(database_url, tmp_path, valkey) as world:
            assert left(await world.list_keys()) == 2
            valkey.stop()
            valkey.start()
            assert left(await world.list_keys()) == 2
    assert said(tmp_path, "rate limits are not enforced") == 0


@pytest.mark.long
async def test_an_api_that_starts_before_redis_serves(database_url: str, tmp_path: Path) -> None:
    folder = tmp_path / "valkey"
    folder.mkdir()
    valkey = Valkey(folder)
    async with away(database_url, tmp_path, valkey) as world:
        assert {(await world.list_keys()).status_code for _ in range(10)} == {200}
        valkey.start()
        try:
            assert error_of(await until_limited(world)) == TOO_MANY
        finally:
            valkey.stop()


@pytest.mark.long
def test_an_invalid_url_prevents_the_start_and_is_not_printed(tmp_path: Path) -> None:
    settings = {"LIMIT_REDIS_URL": "http://:hunter2@host", "DATABASE_URL": "postgresql:///x"}
    done = qd("api", "--data", str(tmp_path), **settings)
    assert done.returncode == 2
    assert "QUARTERDECK_LIMIT_REDIS_URL" in done.stderr
    assert "hunter2" not in done.stdout + done.stderr
