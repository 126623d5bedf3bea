"""Credentials that end or change hands while they are in use, in several API processes at once."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from uuid import UUID, uuid4

import httpx
import pytest

from quarterdeck.core.actors import Permission
from tests.sse import PATIENCE_SECONDS, reading
from tests.workers import eventually
from tests.world import EVERY_PERMISSION, PATIENT, Server, World, clone_database, drop_database, error_of, serving

UNAUTHORIZED = (401, "unauthorized")
# What is promised; the check at the end of a stream has its own, more patient, in test_event_stream.py.
PROMISED_SECONDS = 1.0


@pytest.fixture(scope="module")
def servers(postgres_url: str, template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Server]]:
    """Two `qd api` on one database, as on two machines."""
    url = clone_database(postgres_url, template)
    with (
        serving(url, tmp_path_factory.mktemp("one"), **PATIENT) as one,
        serving(url, tmp_path_factory.mktemp("other"), SERVER_PROCESSES=2, **PATIENT) as other,
    ):
        yield [one, other]
    drop_database(postgres_url, url)


@pytest.fixture
async def worlds(servers: list[Server]) -> AsyncIterator[list[World]]:
    """The same workspace, seen through both."""
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(httpx.AsyncClient(base_url=s.url, timeout=30)) for s in servers]
        one = await World.create(servers[0].database_url, clients[0])
        other = World(one.database_url, clients[1])
        other.workspace_id, other.key = one.workspace_id, one.key
        yield [one, other]


async def refused_everywhere(worlds: list[World], secret: str, session_id: str) -> None:
    """A second after it ended nobody takes it any more, whichever process of which server is asked."""
    await asyncio.sleep(PROMISED_SECONDS)
    answers = await asyncio.gather(
        *(world.get(f"/v1/sessions/{session_id}", key=secret) for world in worlds for _ in range(5)),
        *(world.submit(session_id, key=secret) for world in worlds for _ in range(5)),
    )
    assert {error_of(answer) for answer in answers} == {UNAUTHORIZED}


@pytest.mark.parametrize("how", ["revoked", "rotated", "token", "token of a revoked key"])
async def test_credential_ends_in_all_processes_within_a_second(
    worlds: list[World], servers: list[Server], how: str
) -> None:
    one, other = worlds
    session_id = await one.new_session()
    secret, key_id = await one.new_key_record(EVERY_PERMISSION)
    token = (await one.post(f"/v1/sessions/{session_id}/tokens", {}, key=secret)).json()
    path, credential = {
        "revoked": (f"/v1/api-keys/{key_id}/revoke", secret),
        "rotated": (f"/v1/api-keys/{key_id}/rotate", secret),
        "token": (f"/v1/sessions/{session_id}/tokens/{token['id']}/revoke", token["token"]),
        "token of a revoked key": (f"/v1/api-keys/{key_id}/revoke", token["token"]),
    }[how]
    async with reading(servers[1].url, session_id, credential) as reader:
        await reader.next()
        for world in worlds:
            # Until all of them know it well.
            assert {(await world.submit(session_id, key=credential)).status_code for _ in range(5)} == {200}
        answer = await one.post(path, {"overlap_seconds": 0} if how == "rotated" else None)
        assert answer.status_code in (200, 201), answer.text
        await refused_everywhere(worlds, credential, session_id)
        assert await reader.ends(PATIENCE_SECONDS)
    if how == "rotated":
        assert (await other.submit(session_id, key=answer.json()["secret"])).status_code == 200


@pytest.mark.long
async def test_no_request_fails_while_a_key_is_rotated_under_load(worlds: list[World]) -> None:
    """Three rotations in a row, while every secret that is still good is in use on both servers."""
    one, _ = worlds
    sessions = [await one.new_session() for _ in range(5)]
    secret, key_id = await one.new_key_record(EVERY_PERMISSION)
    good, stop = [secret], asyncio.Event()
    failures: list[tuple[int, str]] = []
    done = 0

    async def use(world: World, number: int) -> None:
        nonlocal done
        while not stop.is_set():
            # A different secret of those that overlap each time.
            key = good[done % len(good)]
            session_id = sessions[done % len(sessions)]
            done += 1
            match done % 4:
                case 0:
                    answer = await world.get(f"/v1/sessions/{session_id}", key=key)
                case 1:
                    answer = await world.submit(session_id, f"{done}", key=key, idempotency_key=f"{number}-{done}")
                case 2:
                    answer = await world.submit(session_id, f"{done}", key=key)
                case _:
                    answer = await world.patch(f"/v1/sessions/{session_id}", {"title": f"{done}"}, key=key)
            if answer.status_code != 200:
                failures.append((answer.status_code, answer.text))

    async def uses(count: int) -> None:
        enough = done + count

        async def are_enough() -> bool:
            return done >= enough

        await eventually(are_enough)

    users = [asyncio.create_task(use(world, number)) for number in range(4) for world in worlds]
    for _ in range(3):
        await uses(40)
        answer = await one.post(f"/v1/api-keys/{key_id}/rotate", {"overlap_seconds": 3600}, key=good[-1])
        assert answer.status_code == 201, answer.text
        key_id = UUID(answer.json()["id"])
        good.append(answer.json()["secret"])
    await uses(40)
    stop.set()
    await asyncio.gather(*users)
    assert failures == []
    assert len({*good}) == 4


@pytest.mark.long
async def test_key_in_constant_use_can_be_revoked(worlds: list[World]) -> None:
    """Changes that queue on one session hold their key for as long as they wait, and there is always one more."""
    one, other = worlds
    path = f"/v1/sessions/{await one.new_session()}"
    secret, key_id = await one.new_key_record(EVERY_PERMISSION)
    sibling, sibling_id = await one.new_key_record(EVERY_PERMISSION)
    ended = asyncio.Event()

    async def hammer(world: World, number: int) -> None:
        while not ended.is_set():
            # More than a row: the longer each takes, the more of them overlap.
            answer = await world.patch(
                path, {"instructions": f"{number} {time.monotonic()} {'x' * 200_000}"}, key=secret
            )
            if answer.status_code == 401:
                return
            assert answer.status_code in (200, 503), answer.text

    hammering = [asyncio.create_task(hammer(world, number)) for number in range(8) for world in worlds]
    await asyncio.sleep(1)
    try:
        answers = await asyncio.gather(
            other.post(f"/v1/api-keys/{key_id}/revoke", None),
            *(one.post(f"/v1/api-keys/{sibling_id}/rotate", {}, key=sibling) for _ in range(5)),
        )
        assert sorted(answer.status_code for answer in answers) == [200, 201] + [409] * 4
        assert error_of(await other.get(path, key=secret)) == UNAUTHORIZED
        await asyncio.wait_for(asyncio.gather(*hammering), PATIENCE_SECONDS)
    finally:
        ended.set()
        await asyncio.gather(*hammering, return_exceptions=True)


@pytest.mark.long
async def test_a_walk_over_keys_while_others_insert_and_revoke(worlds: list[World]) -> None:
    """Of what existed when it began nothing is skipped and nothing comes twice."""
    one, other = worlds
    existing = [str((await one.new_key_record((Permission.WORKSPACE_READ,)))[1]) for _ in range(60)]
    stop = asyncio.Event()

    async def insert() -> None:
        while not stop.is_set():
            await other.post("/v1/api-keys", {"label": "new", "permissions": []})

    async def revoke() -> None:
        for key_id in existing[::3]:
            await other.post(f"/v1/api-keys/{key_id}/revoke", None)
            await other.post(f"/v1/api-keys/{existing[existing.index(key_id) + 1]}/rotate", {})

    async def walk(order: str) -> list[str]:
        seen: list[str] = []
        after = ""
        while True:
            page = (await one.list_keys(f"?limit=7&order={order}{after}")).json()
            seen += [item["id"] for item in page["items"]]
            if page["next_cursor"] is None or len(seen) > 2000:
                return seen
            after = f"&after={page['next_cursor']}"

    busy = [asyncio.create_task(insert()), asyncio.create_task(revoke())]
    try:
        walks = await asyncio.gather(*(walk("desc") for _ in range(3)))
    finally:
        stop.set()
        await asyncio.gather(*busy)
    walks.append(await walk("asc"))
    for seen in walks:
        assert len(seen) == len(set(seen)), "twice"
        assert set(existing) <= set(seen), "skipped"
    assert (await one.list_keys(f"?after={uuid4()}")).status_code == 400
