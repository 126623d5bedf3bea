"""Skill archives in an object store, by S3's protocol."""

import hashlib
import random
from collections.abc import Iterator
from pathlib import Path

import httpx
import obstore
import pytest

from tests.object_store import STORE_URL, Objects, bucket, object_store
from tests.world import Server, World, bundle, error_of, free_port, serving

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def objects() -> Iterator[Objects]:
    with object_store() as objects:
        yield objects


@pytest.fixture
def s3(objects: Objects) -> Objects:
    """With an empty bucket."""
    objects.remove_bucket()
    objects.add_bucket()
    return objects


@pytest.fixture
def server(database_url: str, tmp_path: Path, s3: Objects) -> Iterator[Server]:
    with serving(database_url, tmp_path, BLOB_STORE_URL=STORE_URL) as server:
        yield server


async def test_an_archive_is_stored_under_its_hash(world: World, tmp_path: Path) -> None:
    archive = bundle()
    assert (await world.push(await world.new_skill(), archive)).status_code == 201
    sha256 = hashlib.sha256(archive).hexdigest()
    store = bucket()
    (found,) = await obstore.list(store, f"skills/{sha256[:2]}").collect_async()
    stored = await obstore.get_async(store, found["path"])
    assert bytes(await stored.bytes_async()) == archive
    assert not (tmp_path / "blobs").exists()


async def test_a_store_that_is_away_is_503_and_uses_no_number(world: World, s3: Objects) -> None:
    skill_id = await world.new_skill()
    s3.remove_bucket()
    answer = await world.push(skill_id, bundle())
    assert error_of(answer) == (503, "internal")
    assert "retry-after" in answer.headers
    s3.add_bucket()
    assert (await world.push(skill_id, bundle())).json()["version"] == 1


async def test_a_version_is_downloaded_in_whole_in_part_and_by_file(world: World) -> None:
    skill_id, text = await world.new_skill(), "".join(f"line {number}\n" for number in range(100_000))
    first, second = bundle(), bundle(**{"large.txt": text, "noise": random.Random(1).randbytes(400_000).hex()})
    for archive in (first, second):
        assert (await world.push(skill_id, archive)).status_code == 201
    version = f"/v1/skills/{skill_id}/versions/2"
    assert len(second) > 256 * 1024
    assert (await world.get(f"{version}/bundle")).content == second
    part = await world.get(f"{version}/bundle", headers={"Range": "bytes=262140-300000"})
    assert (part.status_code, part.content == second[262140:300001]) == (206, True)
    assert (await world.get(f"{version}/file?path=large.txt")).text == text
    compared = (await world.get(f"/v1/skills/{skill_id}/diff?base=1&head=2")).json()
    assert [file["path"] for file in compared["files"]] == ["large.txt", "noise"]


async def test_downloads_of_missing_or_refused_archives_have_the_error_envelope(world: World, s3: Objects) -> None:
    skill_id = await world.new_skill()
    for name in ("one", "two"):
        assert (await world.push(skill_id, bundle(name))).status_code == 201
    version = f"/v1/skills/{skill_id}/versions/1"
    paths = (f"{version}/bundle", f"{version}/file?path=SKILL.md", f"/v1/skills/{skill_id}/diff?base=1&head=2")
    store = bucket()
    kept = await obstore.list(store).collect_async()
    await obstore.delete_async(store, [found["path"] for found in kept])
    for path in paths:
        assert error_of(await world.get(path)) == (500, "internal")


async def test_downloads_from_a_store_that_is_away_are_503(
    world: World, database_url: str, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    skill_id = await world.new_skill()
    for name in ("one", "two"):
        assert (await world.push(skill_id, bundle(name))).status_code == 201
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
    folder = tmp_path_factory.mktemp("cut off")
    with serving(database_url, folder, BLOB_STORE_URL=STORE_URL) as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=60) as http:
            version = f"/v1/skills/{skill_id}/versions/1"
            for path in ("/bundle", "/file?path=SKILL.md"):
                answer = await http.get(f"{version}{path}", headers=world.headers())
                assert error_of(answer) == (503, "internal")
                assert "retry-after" in answer.headers
            assert (await http.get(version, headers=world.headers())).status_code == 200
