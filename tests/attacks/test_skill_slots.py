"""One workspace takes all it can get of uploads, downloads, diffs and threads. Its neighbour is served as before."""

import asyncio
import io
import threading
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from quarterdeck.core.settings import BundleSettings
from quarterdeck.skills.uploads import BundleUpload, Uploads
from tests.attacks.neighbour import Tenants, attacked, repeated, two_tenants
from tests.contract.test_skill_downloads import large_bundle, pushed, silent_reader
from tests.processes import connections, spooled, until
from tests.raw_http import PATIENCE_SECONDS, Wire, chunk, request
from tests.world import Server, World, bundle, serving

# More than the 32 uploads and downloads, and far more than the 8 diffs, that one process allows.
ATTACKS = 40
ROUNDS = 2


def trickling_push(server: Server, world: World, skill_id: str) -> Wire:
    wire = Wire(server.port)
    headers = (f"Authorization: Bearer {world.key}", "Content-Type: application/gzip", "Transfer-Encoding: chunked")
    wire.send(request("POST", f"/v1/skills/{skill_id}/versions", *headers))
    return wire


@asynccontextmanager
async def trickling_pushes(tenants: Tenants) -> AsyncIterator[None]:
    """As many as there are slots and more, a byte now and then. A push that was refused is started again."""
    skill_id = await tenants.attacker.new_skill()
    wires = [trickling_push(tenants.server, tenants.attacker, skill_id) for _ in range(ATTACKS)]

    async def trickle() -> None:
        while True:
            for number, wire in enumerate(wires):
                with suppress(ConnectionResetError):
                    if wire.is_silent(0.001):
                        wire.send_what_it_takes(chunk(b"\0"))
                        continue
                wire.close()
                wires[number] = trickling_push(tenants.server, tenants.attacker, skill_id)
            await asyncio.sleep(0.2)

    trickling = asyncio.create_task(trickle())
    await asyncio.sleep(1)
    yield
    assert not trickling.done()
    trickling.cancel()
    for wire in wires:
        wire.close()


@pytest.mark.long
async def test_trickling_pushes(tenants: Tenants) -> None:
    (await attacked(tenants.neighbour, trickling_pushes(tenants), rounds=ROUNDS)).check(ROUNDS)


@asynccontextmanager
async def silent_readers(tenants: Tenants) -> AsyncIterator[None]:
    version = await pushed(tenants.attacker, large_bundle(10_000_000, random_bytes=True))
    with ExitStack() as closing:
        for _ in range(ATTACKS):
            path = f"{version}/file?path=large.bin"
            closing.enter_context(silent_reader(tenants.server, path, tenants.attacker.key))
        await asyncio.sleep(1)
        yield


@pytest.mark.long
async def test_readers_that_do_not_read(database_url: str, tmp_path: Path) -> None:
    # Longer than the test: none of them is dropped.
    async with two_tenants(database_url, tmp_path, STREAM_SEND_SECONDS=600) as tenants:
        (await attacked(tenants.neighbour, silent_readers(tenants), rounds=ROUNDS)).check(ROUNDS)


@asynccontextmanager
async def large_diffs(tenants: Tenants) -> AsyncIterator[None]:
    # As much as a comparison reads: every other line differs.
    texts = ["".join(f"{n if n % 2 else f'{n} {side}'}\n" for n in range(30_000)) for side in ("base", "head")]
    attacker, skill_id = tenants.attacker, await tenants.attacker.new_skill()
    for text in texts:
        assert (await attacker.push(skill_id, bundle(large=text))).status_code == 201
    async with repeated(lambda: attacker.get(f"/v1/skills/{skill_id}/diff?base=1&head=2"), ATTACKS):
        yield


@pytest.mark.long
async def test_large_diffs(tenants: Tenants) -> None:
    (await attacked(tenants.neighbour, large_diffs(tenants), rounds=ROUNDS)).check(ROUNDS)


@asynccontextmanager
async def reads_of_a_large_bundle(tenants: Tenants) -> AsyncIterator[None]:
    version = await pushed(tenants.attacker, large_bundle(100 * 1024 * 1024, random_bytes=False))
    async with repeated(lambda: tenants.attacker.get(f"{version}/file?path=last.txt"), ATTACKS):
        yield


@pytest.mark.long
async def test_small_file_of_a_large_bundle(tenants: Tenants) -> None:
    (await attacked(tenants.neighbour, reads_of_a_large_bundle(tenants), rounds=ROUNDS)).check(ROUNDS)


@pytest.mark.long
async def test_push_below_the_lowest_rate_is_408(database_url: str, tmp_path: Path) -> None:
    settings = {"HTTP_BODY_SECONDS": 3600, "HTTP_BODY_BYTES_PER_SECOND": 100_000, "HTTP_BODY_RATE_SECONDS": 0.5}
    async with two_tenants(database_url, tmp_path, **settings) as tenants:
        with trickling_push(tenants.server, tenants.attacker, await tenants.attacker.new_skill()) as wire:
            async with asyncio.timeout(PATIENCE_SECONDS):
                # The body never stalls. The server may close it between two pieces.
                while wire.is_silent(0.02):
                    wire.send_what_it_takes(chunk(b"\0"))
                    await asyncio.sleep(0)
            assert wire.answer().error() == (408, "invalid_request")


@pytest.mark.long
async def test_readers_that_do_not_read_hold_no_slot_and_no_file(database_url: str, tmp_path: Path) -> None:
    with serving(database_url, tmp_path, STREAM_SEND_SECONDS=600) as server, ExitStack() as closing:
        async with httpx.AsyncClient(base_url=server.url, timeout=60) as http:
            world = await World.create(database_url, http)
            version = await pushed(world, large_bundle(10_000_000, random_bytes=True))
            for _ in range(ATTACKS):
                closing.enter_context(silent_reader(server, f"{version}/file?path=large.bin", world.key))
            assert await until(lambda: connections(server, stuck=True) == ATTACKS)
            assert spooled(server) == 0
            # Also their own workspace goes on.
            assert (await world.get(f"{version}/file?path=last.txt")).text == "the end\n"


def upload(archive: bytes) -> BundleUpload:
    return BundleUpload(io.BytesIO(archive), io.BytesIO())


async def test_scans_of_one_workspace_leave_a_thread_to_the_neighbour(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if those who pushed leave: a thread cannot be stopped."""
    release, scanned = threading.Event(), []

    def scan(archive: io.BytesIO, *_: object) -> Any:
        if archive.read() == b"hostile":
            assert release.wait(60)
        scanned.append(archive)

    monkeypatch.setattr("quarterdeck.skills.uploads.read_bundle", scan)
    uploads, attacker, neighbour = Uploads(BundleSettings(), tmp_path), uuid4(), uuid4()
    scans = [asyncio.create_task(uploads.scan(attacker, upload(b"hostile"))) for _ in range(ATTACKS)]
    try:
        await asyncio.sleep(0)
        for task in scans[: ATTACKS // 2]:
            task.cancel()
        for _ in range(3):
            await asyncio.wait_for(uploads.scan(neighbour, upload(b"fine")), 60)
        assert len(scanned) == 3
    finally:
        release.set()
        await asyncio.gather(*scans, return_exceptions=True)
        uploads.close()
