"""Skill archives in an object store: S3's protocol, spoken by a local server."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import httpx
import obstore
import pytest
from moto.server import ThreadedMotoServer
from obstore.store import S3Store

from tests.world import Server, World, bundle, error_of, free_port, serving

BUCKET = "bundles"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "us-east-1"}


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    server = ThreadedMotoServer("127.0.0.1", free_port(), verbose=False)
    server.start()
    url = f"http://127.0.0.1:{server._port}"
    for name, value in (CREDENTIALS | {"AWS_ENDPOINT_URL": url}).items():
        monkeypatch.setenv(name, value)
    httpx.post(f"{url}/moto-api/reset").raise_for_status()
    httpx.put(f"{url}/{BUCKET}").raise_for_status()
    yield url
    server.stop()


@pytest.fixture
def server(database_url: str, tmp_path: Path, s3: str) -> Iterator[Server]:
    with serving(database_url, tmp_path, BUNDLE_STORE_URL=f"s3://{BUCKET}/skills") as server:
        yield server


async def test_an_archive_is_stored_under_its_hash(world: World, tmp_path: Path) -> None:
    archive = bundle()
    assert (await world.push(await world.new_skill(), archive)).status_code == 201
    sha256 = hashlib.sha256(archive).hexdigest()
    store = S3Store(BUCKET, client_options={"allow_http": True})
    (found,) = await obstore.list(store, f"skills/{sha256[:2]}").collect_async()
    stored = await obstore.get_async(store, found["path"])
    assert bytes(await stored.bytes_async()) == archive
    assert not (tmp_path / "bundles").exists()


async def test_a_store_that_is_away_is_503_and_uses_no_number(world: World, s3: str) -> None:
    skill_id = await world.new_skill()
    httpx.delete(f"{s3}/{BUCKET}").raise_for_status()
    answer = await world.push(skill_id, bundle())
    assert error_of(answer) == (503, "internal")
    assert "retry-after" in answer.headers
    httpx.put(f"{s3}/{BUCKET}").raise_for_status()
    assert (await world.push(skill_id, bundle())).json()["version"] == 1
