"""Attacks with ordinary credentials and default settings on a running `qd serve`. Whatever one workspace does, the
other is served as before."""

import asyncio
import random
import resource
import socket
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import msgspec
import pytest
from bench.wire import Wire

from tests.attacks.neighbour import Tenants, attacked, repeated
from tests.attacks.stream_flood import stream_flood
from tests.raw_http import request
from tests.world import World, bundle

pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]

MIB = 1024 * 1024
CANCELLING_CONNECTIONS = 40
LARGE_INPUTS = 300
# As large as a JSON body may be.
LARGE_INPUT_BYTES = MIB - 64
SLOW_RUNS = 100
TRANSFERS = 32
SLOW_READ_BYTES = 32 * 1024
# More than all connections of the server, if this process may open so many files.
STREAMS = 4_500
SPARE_FILES = 500


async def slow_run(attacker: World, session_id: str, token: str) -> str:
    answer = await attacker.submit(session_id, "demo: slow 60", key=token)
    assert answer.status_code == 200, answer.text
    run_id: str = answer.json()["run_id"]
    return run_id


@pytest.mark.parametrize("held", [False, True], ids=["short transactions", "a long transaction"])
async def test_one_run_is_cancelled_over_and_over(tenants: Tenants, held: bool) -> None:
    """With a long transaction every cancel waits for the lock of the session in vain."""
    attacker = tenants.attacker
    session_id = await attacker.new_session()
    token = await attacker.new_token(session_id)
    run_id = await slow_run(attacker, session_id, token)
    cancel = request("POST", f"/v1/runs/{run_id}/cancel", f"Authorization: Bearer {token}", "Content-Length: 0")

    async def cancel_repeatedly() -> None:
        wire = await Wire.connect(tenants.server.port)
        try:
            while True:
                await wire.ask(cancel)
        finally:
            wire.close()

    async with AsyncExitStack() as stack:
        if held:
            connection = await stack.enter_async_context(await attacker.connect())
            await connection.execute("SELECT pg_advisory_lock(session_lock(%s))", (session_id,))
        found = await attacked(tenants.neighbour, repeated(cancel_repeatedly, CANCELLING_CONNECTIONS))
    found.check()


async def test_one_session_gets_hundreds_of_large_inputs(tenants: Tenants) -> None:
    attacker = tenants.attacker
    session_id = await attacker.new_session()
    token = await attacker.new_token(session_id)
    await slow_run(attacker, session_id, token)
    statuses: Counter[int] = Counter()
    left = iter(range(LARGE_INPUTS))

    body = msgspec.json.encode({"type": "input", "text": "x" * LARGE_INPUT_BYTES})
    headers = f"Authorization: Bearer {token}", "Content-Type: application/json", f"Content-Length: {len(body)}"
    submission = request("POST", f"/v1/sessions/{session_id}/events", *headers, body=body)

    async def steer() -> None:
        wire = await Wire.connect(tenants.server.port)
        for _ in left:
            statuses[(await wire.ask(submission)).status] += 1
        wire.close()

    @asynccontextmanager
    async def flood() -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as group:
            for _ in range(16):
                group.create_task(steer())
            yield

    found = await attacked(tenants.neighbour, flood())
    found.check()
    assert set(statuses) == {200, 429}
    # Whatever the session holds, its run can be cancelled and it can be deleted.
    await cancel_all(attacker, session_id)
    assert await ends_of_inputs(attacker, session_id) == statuses[200] + 1
    assert (await attacker.delete(f"/v1/sessions/{session_id}")).status_code == 204
    assert (await tenants.neighbour.work(1)).refusals == []


async def cancel_all(attacker: World, session_id: str) -> None:
    """A run that fails passes its inputs to another one, so there may be more than one to cancel."""
    active = "SELECT id FROM runs WHERE session_id = %s AND state IN ('queued', 'running')"
    while found := await attacker.fetch(active, session_id):
        for (run_id,) in found:
            assert (await attacker.post(f"/v1/runs/{run_id}/cancel", None)).status_code == 200


async def ends_of_inputs(attacker: World, session_id: str) -> int:
    """How many inputs were consumed or discarded. Each must have been accepted, and ended once."""
    query = (
        "SELECT type, count(*), count(DISTINCT data->>'input_id') FROM session_events WHERE session_id = %s GROUP BY 1"
    )
    counts = {kind: (every, distinct) for kind, every, distinct in await attacker.fetch(query, session_id)}
    accepted, consumed, discarded = (
        counts.get(f"input.{end}", (0, 0)) for end in ("accepted", "consumed", "discarded")
    )
    assert all(every == distinct for every, distinct in (accepted, consumed, discarded))
    assert consumed[0] + discarded[0] == accepted[0]
    return int(accepted[0])


async def test_one_workspace_has_a_hundred_slow_runs(tenants: Tenants) -> None:
    attacker = tenants.attacker

    @asynccontextmanager
    async def slow_runs() -> AsyncIterator[None]:
        for _ in range(SLOW_RUNS):
            answer = await attacker.submit(await attacker.new_session(), "demo: slow 60")
            assert answer.status_code == 200, answer.text
        yield

    found = await attacked(tenants.neighbour, slow_runs())
    found.check()
    # The runs of the neighbour have not waited for those of the attacker.
    query = "SELECT count(*) FROM runs WHERE workspace_id = %s AND state IN ('queued', 'running')"
    assert await attacker.fetch(query, attacker.workspace_id) == [(SLOW_RUNS,)]


async def test_pushes_trickle(tenants: Tenants) -> None:
    attacker = tenants.attacker
    skill_id = await attacker.new_skill()
    head = request(
        "POST",
        f"/v1/skills/{skill_id}/versions",
        f"Authorization: Bearer {attacker.key}",
        "Content-Type: application/gzip",
        f"Content-Length: {MIB}",
    )

    async def trickle() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", tenants.server.port)
        try:
            writer.write(head + bundle()[:10])
            # Until the server answers, which ends the push.
            answer = asyncio.create_task(reader.read(1))
            while not answer.done():
                await asyncio.wait({answer}, timeout=0.5)
                writer.write(b"x")
            answer.result()
        finally:
            writer.close()

    found = await attacked(tenants.neighbour, repeated(trickle, TRANSFERS))
    found.check()


@pytest.mark.parametrize("what", ["bundle", "file?path=large.bin"])
async def test_readers_are_slow(tenants: Tenants, what: str) -> None:
    attacker = tenants.attacker
    skill_id = await attacker.new_skill()
    # Far more than the buffers of a connection hold.
    archive = bundle(**{"large.bin": random.Random(1).randbytes(12 * MIB).hex()})
    assert (await attacker.push(skill_id, archive)).status_code == 201
    get = request("GET", f"/v1/skills/{skill_id}/versions/1/{what}", f"Authorization: Bearer {attacker.key}")

    async def read_slowly() -> None:
        """Faster than a reader that the server gives up."""
        connection = socket.socket()
        # Before it connects: the server is told of it then.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SLOW_READ_BYTES)
        connection.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", tenants.server.port))
        reader, writer = await asyncio.open_connection(sock=connection, limit=SLOW_READ_BYTES)
        try:
            writer.write(get)
            while await reader.read(SLOW_READ_BYTES):
                await asyncio.sleep(0.1)
        finally:
            writer.close()

    found = await attacked(tenants.neighbour, repeated(read_slowly, TRANSFERS))
    found.check()


async def test_one_session_token_opens_thousands_of_streams(tenants: Tenants) -> None:
    attacker = tenants.attacker
    session_id = await attacker.new_session()
    token = await attacker.new_token(session_id)
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    headers = f"Authorization: Bearer {token}", "Accept: text/event-stream"
    follow = request("GET", f"/v1/sessions/{session_id}/events", *headers)

    flood = stream_flood(tenants.server.port, follow, min(STREAMS, files - SPARE_FILES))
    found = await attacked(tenants.neighbour, flood)
    found.check()
