"""One workspace takes all it can get of uploads, downloads, diffs and threads. Its neighbour is served as before."""

import asyncio
import io
import threading
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from quarterdeck.core.settings import BundleSettings
from quarterdeck.skills.uploads import Uploads
from tests.contract.test_skill_downloads import large_bundle, pushed, silent_reader
from tests.processes import connections, spooled, until
from tests.raw_http import Wire, chunk, request
from tests.world import Server, World, bundle, serving

# More than the 32 uploads and downloads, and far more than the 8 diffs, that one process allows.
ATTACKS = 40
# Larger than what is kept in memory, so that each upload can be seen.
START = chunk(b"\x1f\x8b" + bytes(300_000))


@asynccontextmanager
async def two_workspaces(
    database_url: str, data_dir: Path, **settings: object
) -> AsyncIterator[tuple[Server, World, World]]:
    """A server with a workspace that attacks and its neighbour."""
    with serving(database_url, data_dir, **settings) as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=120) as http:
            yield server, await World.create(database_url, http), await World.create(database_url, http)


def trickling_push(server: Server, key: str, skill_id: str, start: bytes) -> Wire:
    wire = Wire(server.port)
    headers = (f"Authorization: Bearer {key}", "Content-Type: application/gzip", "Transfer-Encoding: chunked")
    wire.send(request("POST", f"/v1/skills/{skill_id}/versions", *headers, body=start))
    return wire


@pytest.mark.long
async def test_trickling_pushes_leave_places_to_the_neighbour(database_url: str, tmp_path: Path) -> None:
    settings = {"BUNDLE_UPLOAD_WAIT_SECONDS": 1, "HTTP_BODY_STALL_SECONDS": 600, "HTTP_BODY_BYTES_PER_SECOND": 0}
    async with two_workspaces(database_url, tmp_path, **settings) as (server, attacker, neighbour):
        skill_id, own_skill_id = await attacker.new_skill(), await neighbour.new_skill()
        with ExitStack() as closing:
            wires = [
                closing.enter_context(trickling_push(server, attacker.key, skill_id, START)) for _ in range(ATTACKS)
            ]
            refused: set[Wire] = set()

            def all_have_asked() -> bool:
                refused.update(wire for wire in wires if wire not in refused and not wire.is_silent(0.001))
                return len(refused) + spooled(server) == ATTACKS

            assert await until(all_have_asked)
            assert spooled(server) > 1
            for name in ("one", "two", "three"):
                answer = await neighbour.push(own_skill_id, bundle(name))
                assert answer.status_code == 201, answer.text
            assert {wire.answer().status for wire in refused} == {503}


async def test_a_push_slower_than_the_lowest_rate_is_408(database_url: str, tmp_path: Path) -> None:
    settings = {"HTTP_BODY_BYTES_PER_SECOND": 100_000, "HTTP_BODY_RATE_SECONDS": 0.5}
    async with two_workspaces(database_url, tmp_path, **settings) as (server, attacker, neighbour):
        with trickling_push(server, attacker.key, await attacker.new_skill(), b"") as wire:
            # The body never stalls. The server may close it between two pieces.
            while wire.is_silent(0.05):
                wire.send_what_it_takes(chunk(b"\0"))
            assert wire.answer().error() == (408, "invalid_request")
        assert (await neighbour.push(await neighbour.new_skill(), bundle())).status_code == 201


@pytest.mark.long
async def test_readers_that_do_not_read_hold_no_place_and_no_file(database_url: str, tmp_path: Path) -> None:
    settings = {"BUNDLE_UPLOAD_WAIT_SECONDS": 5, "STREAM_SEND_SECONDS": 600}
    async with two_workspaces(database_url, tmp_path, **settings) as (server, attacker, neighbour):
        archive = large_bundle(10_000_000, random_bytes=True)
        version, own_version = await pushed(attacker, archive), await pushed(neighbour, archive)
        with ExitStack() as closing:
            for _ in range(ATTACKS):
                closing.enter_context(silent_reader(server, f"{version}/file?path=large.bin", attacker.key))
            assert await until(lambda: connections(server, stuck=True) == ATTACKS)
            assert spooled(server) == 0
            for world, path in ((neighbour, own_version), (attacker, version)):
                answer = await world.get(f"{path}/file?path=last.txt")
                assert (answer.status_code, answer.text) == (200, "the end\n")
            whole = await neighbour.get(f"{own_version}/file?path=large.bin")
            assert (whole.status_code, len(whole.content)) == (200, 10_000_000)


@pytest.mark.long
async def test_many_diffs_leave_places_to_the_neighbour(database_url: str, tmp_path: Path) -> None:
    async with two_workspaces(database_url, tmp_path, BUNDLE_UPLOAD_WAIT_SECONDS=3) as (_, attacker, neighbour):
        # As much as a comparison reads: every other line differs.
        texts = ["".join(f"{n if n % 2 else f'{n} {side}'}\n" for n in range(30_000)) for side in ("base", "head")]
        skill_id, own_skill_id = await attacker.new_skill(), await neighbour.new_skill()
        for text in texts:
            assert (await attacker.push(skill_id, bundle(large=text))).status_code == 201
            assert (await neighbour.push(own_skill_id, bundle(small=text[:1000]))).status_code == 201
        diffs = [asyncio.create_task(attacker.get(f"/v1/skills/{skill_id}/diff?base=1&head=2")) for _ in range(ATTACKS)]
        await asyncio.wait(diffs, return_when=asyncio.FIRST_COMPLETED)
        for _ in range(3):
            answer = await neighbour.get(f"/v1/skills/{own_skill_id}/diff?base=1&head=2")
            assert answer.status_code == 200, answer.text
        assert {(await diff).status_code for diff in diffs} <= {200, 503}


async def test_scans_of_one_workspace_leave_a_thread_to_the_neighbour(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if those who pushed leave: a thread cannot be stopped."""
    release, scanned = threading.Event(), []

    def scan(archive: io.BytesIO, _: object) -> Any:
        if archive.read() == b"hostile":
            assert release.wait(60)
        scanned.append(archive)

    monkeypatch.setattr("quarterdeck.skills.uploads.read_bundle", scan)
    uploads, attacker, neighbour = Uploads(BundleSettings(), tmp_path), uuid4(), uuid4()
    scans = [asyncio.create_task(uploads.scan(attacker, io.BytesIO(b"hostile"))) for _ in range(ATTACKS)]
    try:
        await asyncio.sleep(0)
        for task in scans[: ATTACKS // 2]:
            task.cancel()
        for _ in range(3):
            await asyncio.wait_for(uploads.scan(neighbour, io.BytesIO(b"fine")), 60)
        assert len(scanned) == 3
    finally:
        release.set()
        await asyncio.gather(*scans, return_exceptions=True)
        uploads.close()
