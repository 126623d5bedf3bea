"""Bundles and single files as content: whole, in part, conditionally, and to readers that do not read."""

import asyncio
import gzip
import hashlib
import io
import random
import socket
import sys
import tarfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests import raw_http
from tests.processes import UNKILLED, answered, connections, is_gone, resident_mib, stop, until
from tests.raw_http import Wire
from tests.world import Server, World, bundle, clone_database, drop_database, error_of, serving


def large_bundle(file_bytes: int, *, random_bytes: bool) -> bytes:
    """SKILL.md and `large.bin`, which compresses to nothing or not at all."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as tar:
        for path, data in (
            ("SKILL.md", b"---\nname: demo\ndescription: A test skill.\n---\n"),
            ("large.bin", random.Random(1).randbytes(file_bytes) if random_bytes else bytes(file_bytes)),
            ("last.txt", b"the end\n"),
        ):
            member = tarfile.TarInfo(path)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return gzip.compress(raw.getvalue(), compresslevel=1, mtime=0)


async def pushed(world: World, archive: bytes, name: str = "demo") -> str:
    skill_id: str = (await world.post("/v1/skills", {"name": name})).json()["id"]
    answer = await world.push(skill_id, archive)
    assert answer.status_code == 201, answer.text
    return f"/v1/skills/{skill_id}/versions/1"


def quoted_sum(content: bytes) -> str:
    return f'"{hashlib.sha256(content).hexdigest()}"'


# --- the whole ---


async def test_downloaded_bundle_equals_the_pushed_one(world: World) -> None:
    archive = large_bundle(3_000_000, random_bytes=True)
    answer = await world.get(f"{await pushed(world, archive, 'Report writer')}/bundle")
    assert (answer.status_code, answer.content == archive) == (200, True)
    assert answer.headers["content-type"] == "application/gzip"
    assert answer.headers["content-length"] == str(len(archive))
    assert answer.headers["etag"] == quoted_sum(archive)
    assert answer.headers["accept-ranges"] == "bytes"
    assert answer.headers["content-disposition"] == 'attachment; filename="Report-writer-1.tar.gz"'
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "private, no-cache"
    assert "content-encoding" not in answer.headers


@pytest.mark.parametrize(
    ("path", "content", "name"),
    [
        ("page.html", "<script>alert(1)</script>", "page.html"),
        ("empty", "", "empty"),
        ("d/e/a (b)\u20ac.txt", "x" * 300_000, "a-b-.txt"),
        ("é", "y\n", "download"),
        ("a%2Fb&c=d+e", "z", "a-2Fb-c-d-e"),
    ],
)
async def test_file_is_sent_as_an_attachment(world: World, path: str, content: str, name: str) -> None:
    version = await pushed(world, bundle(**{path: content}))
    answer = await world.http.get(f"{version}/file", params={"path": path}, headers=world.headers())
    assert (answer.status_code, answer.text) == (200, content)
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-length"] == str(len(content.encode()))
    assert answer.headers["etag"] == quoted_sum(content.encode())
    assert answer.headers["content-disposition"] == f'attachment; filename="{name}"'
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("path", ["none", "forms", "forms/", "./SKILL.md", "/SKILL.md", "skill.md", "../SKILL.md"])
async def test_a_file_that_is_not_there_is_404(world: World, path: str) -> None:
    version = await pushed(world, bundle(**{"forms/a.md": "x"}))
    answer = await world.http.get(f"{version}/file", params={"path": path}, headers=world.headers())
    assert error_of(answer) == (404, "not_found")


@pytest.mark.parametrize("query", ["", "?path=", "?path=%00", "?path=a%00b", "?path=%ff", "?path=a&path=b"])
async def test_a_path_must_be_given_once_and_be_text(world: World, query: str) -> None:
    version = await pushed(world, bundle())
    assert error_of(await world.get(f"{version}/file{query}")) == (400, "invalid_request")


async def test_head_has_the_headers_and_no_body(world: World, server: Server) -> None:
    version = await pushed(world, bundle())
    for path in (f"{version}/bundle", f"{version}/file?path=SKILL.md"):
        whole = await world.get(path)
        with Wire(server.port) as wire:
            lines = (f"Authorization: Bearer {world.key}", "Range: bytes=0-0")
            wire.send(raw_http.request("HEAD", path, *lines))
            head = wire.answer(to_head=True)
            assert (head.status, head.header("content-length")) == (200, str(len(whole.content)))
            assert head.header("etag") == whole.headers["etag"]
            assert head.header("content-type") == whole.headers["content-type"]
            # The next answer follows at once: nothing came after the headers.
            wire.send(raw_http.request("GET", "/healthz"))
            assert wire.answer().status == 200


# --- parts and conditions ---


@pytest.fixture
async def content(world: World) -> tuple[str, bytes]:
    archive = large_bundle(700_000, random_bytes=True)
    return f"{await pushed(world, archive)}/bundle", archive


async def test_every_part_is_the_part(world: World, content: tuple[str, bytes]) -> None:
    path, archive = content
    size = len(archive)
    file = path.replace("/bundle", "/file?path=large.bin")
    large = (await world.get(file)).content
    for whole, where in ((archive, path), (large, file)):
        for text, start, end in (
            ("0-0", 0, 1), ("0-", 0, len(whole)), ("5-262150", 5, 262151), ("-1", len(whole) - 1, len(whole)),
            (f"{len(whole) - 1}-", len(whole) - 1, len(whole)), (f"-{size * 2}", 0, len(whole)),
            (f"262143-{size * 2}", 262143, len(whole)),
        ):  # fmt: skip
            answer = await world.get(where, headers={"Range": f"bytes={text}"})
            assert (answer.status_code, answer.content == whole[start:end]) == (206, True), text
            assert answer.headers["content-range"] == f"bytes {start}-{end - 1}/{len(whole)}"
            assert answer.headers["content-length"] == str(end - start)
            assert answer.headers["etag"] == quoted_sum(whole)


async def test_a_broken_download_is_taken_up_again(world: World, content: tuple[str, bytes]) -> None:
    path, archive = content
    first = await world.get(path, headers={"Range": "bytes=0-99999"})
    rest = await world.get(path, headers={"Range": "bytes=100000-", "If-Range": first.headers["etag"]})
    assert (rest.status_code, first.content + rest.content == archive) == (206, True)


async def test_a_part_of_something_else_is_the_whole(world: World, content: tuple[str, bytes]) -> None:
    path, archive = content
    for condition in ('"other"', f"W/{quoted_sum(archive)}", "Sun, 06 Nov 1994 08:49:37 GMT", "junk"):
        answer = await world.get(path, headers={"Range": "bytes=0-1", "If-Range": condition})
        assert (answer.status_code, len(answer.content)) == (200, len(archive))


@pytest.mark.parametrize("text", ["bytes=0-1,5-6", "bytes=5-1", "lines=0-1", "junk"])
async def test_other_range_headers_return_the_whole(world: World, content: tuple[str, bytes], text: str) -> None:
    path, archive = content
    answer = await world.get(path, headers={"Range": text})
    assert (answer.status_code, len(answer.content)) == (200, len(archive))
    assert "content-range" not in answer.headers


async def test_behind_the_end_is_416(world: World, content: tuple[str, bytes]) -> None:
    path, archive = content
    for text in (f"bytes={len(archive)}-", "bytes=-0"):
        answer = await world.get(path, headers={"Range": text})
        assert error_of(answer) == (416, "invalid_request")
        assert answer.headers["content-range"] == f"bytes */{len(archive)}"


async def test_a_caller_that_has_it_is_told_so(world: World, content: tuple[str, bytes]) -> None:
    path, archive = content
    tag = quoted_sum(archive)
    for given in (tag, f"W/{tag}", f'"other", {tag}', "*"):
        answer = await world.get(path, headers={"If-None-Match": given, "Range": "bytes=0-1"})
        assert (answer.status_code, answer.content, answer.headers["etag"]) == (304, b"", tag)
    assert (await world.get(path, headers={"If-None-Match": '"other"'})).status_code == 200


async def test_a_whole_is_put_together_from_parts_fetched_at_once(world: World, content: tuple[str, bytes]) -> None:
    path, archive = content
    starts = range(0, len(archive), 50_000)
    parts = await asyncio.gather(
        *(world.get(path, headers={"Range": f"bytes={start}-{start + 49_999}"}) for start in starts)
    )
    assert b"".join(part.content for part in parts) == archive


# --- what can be wrong with the store ---


def stored_at(server: Server, content: bytes) -> Path:
    sha256 = hashlib.sha256(content).hexdigest()
    (found,) = (server.data_dir / "blobs" / sha256[:2]).glob(f"{sha256}.*")
    return found


async def test_missing_content_is_500_with_the_error_envelope(world: World, server: Server) -> None:
    archive = bundle(**{"only.txt": "only here"})
    version = await pushed(world, archive)
    second = await world.push(version.split("/")[3], bundle())
    assert second.json()["version"] == 2
    stored_at(server, archive).unlink()
    stored_at(server, b"only here").unlink()
    skill = version.removesuffix("/versions/1")
    for path in (f"{version}/bundle", f"{version}/file?path=only.txt", f"{skill}/diff?base=1&head=2"):
        assert error_of(await world.get(path)) == (500, "internal")
    assert (await world.http.head(f"{version}/bundle", headers=world.headers())).status_code == 200


async def test_damaged_content_is_not_sent_as_a_whole(world: World, server: Server) -> None:
    """A small one is an error. A larger one ends early, which clients notice by its length."""
    archive = bundle(**{"small.txt": "to be damaged", "large.txt": "large " * 100_000})
    version = await pushed(world, archive)
    for content in (archive, b"to be damaged", b"large " * 100_000):
        stored = stored_at(server, content)
        stored.write_bytes(content[:-1] + b"?")
    for path in (f"{version}/bundle", f"{version}/file?path=small.txt"):
        assert error_of(await world.get(path)) == (500, "internal")
    with pytest.raises(httpx.RemoteProtocolError):
        await world.get(f"{version}/file?path=large.txt")


# --- readers that do not read ---

# Longer than this test itself may be kept from reading by a busy machine.
SEND_SECONDS = 4


@pytest.fixture(scope="module")
def own(postgres_url: str, template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """To be measured: nobody else uses it."""
    url = clone_database(postgres_url, template)
    with serving(url, tmp_path_factory.mktemp("own"), STREAM_SEND_SECONDS=SEND_SECONDS) as server:
        yield server
    drop_database(postgres_url, url)


@pytest.fixture
async def own_world(own: Server) -> AsyncIterator[World]:
    async with httpx.AsyncClient(base_url=own.url, timeout=60) as http:
        yield await World.create(own.database_url, http)


def silent_reader(server: Server, path: str, key: str) -> socket.socket:
    """Asks and never reads."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect(("127.0.0.1", server.port))
    connection.sendall(raw_http.request("GET", path, f"Authorization: Bearer {key}"))
    return connection


@pytest.mark.long
async def test_a_bundle_is_sent_at_bounded_memory(own_world: World, own: Server) -> None:
    """Thirty megabytes for each of twenty readers that never read, and for one that does."""
    archive = large_bundle(30_000_000, random_bytes=True)
    path = f"{await pushed(own_world, archive)}/bundle"
    await own_world.get(path, headers={"Range": "bytes=0-999999"})
    before = resident_mib(own)
    with ExitStack() as closing:
        for _ in range(20):
            closing.enter_context(silent_reader(own, path, own_world.key))
        most = before
        digest = hashlib.sha256()
        async with own_world.http.stream("GET", path, headers=own_world.headers()) as answer:
            async for piece in answer.aiter_bytes():
                digest.update(piece)
                most = max(most, resident_mib(own))
        assert digest.hexdigest() == hashlib.sha256(archive).hexdigest()
        assert await until(lambda: answered(own, path) == 21), "they are still served"
    assert most - before < 100, (before, most)


@pytest.mark.long
async def test_a_file_of_a_hundred_megabytes_at_bounded_memory(own_world: World, own: Server) -> None:
    size = 100 * 1024 * 1024
    version = await pushed(own_world, large_bundle(size, random_bytes=False))
    await own_world.get(f"{version}/file?path=last.txt")
    before = most = resident_mib(own)
    received = 0
    path = f"{version}/file?path=large.bin"
    async with own_world.http.stream("GET", path, headers=own_world.headers()) as answer:
        assert answer.status_code == 200
        async for piece in answer.aiter_bytes():
            received += len(piece)
            most = max(most, resident_mib(own))
    assert received == size
    assert most - before < 50, (before, most)


@pytest.mark.long
async def test_whoever_does_not_read_a_file_is_dropped(own_world: World, own: Server) -> None:
    version = await pushed(own_world, large_bundle(20_000_000, random_bytes=True))
    path = f"{version}/file?path=large.bin"
    with ExitStack() as closing:
        for _ in range(4):
            closing.enter_context(silent_reader(own, path, own_world.key))
        assert await until(lambda: answered(own, f"{version}/file") == 4)
        assert len((await own_world.get(path)).content) == 20_000_000


@pytest.mark.long
async def test_server_stops_during_unread_downloads(database_url: str, tmp_path: Path) -> None:
    settings = {"STREAM_SEND_SECONDS": 600, "SERVER_SHUTDOWN_SECONDS": 2}
    with ExitStack() as closing, serving(database_url, tmp_path, **settings) as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=30) as http:
            world = await World.create(database_url, http)
            version = await pushed(world, large_bundle(20_000_000, random_bytes=True))
        for path in (f"{version}/bundle", f"{version}/file?path=large.bin"):
            closing.enter_context(silent_reader(server, path, world.key))
        assert await until(lambda: connections(server, stuck=True) == 2)
        stop(server)
        assert await until(lambda: is_gone(server))


@pytest.mark.long
async def test_a_stopping_server_lets_a_reader_finish(database_url: str, tmp_path: Path) -> None:
    archive = large_bundle(20_000_000, random_bytes=True)
    with serving(database_url, tmp_path, **UNKILLED) as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=30) as http:
            world = await World.create(database_url, http)
            path = f"{await pushed(world, archive)}/bundle"
            received: list[Any] = []
            async with http.stream("GET", path, headers=world.headers()) as answer:
                async for piece in answer.aiter_raw(1_000_000):
                    if not received:
                        stop(server)
                        await asyncio.sleep(0.5)
                    received.append(piece)
                    time.sleep(0.02)
    assert b"".join(received) == archive


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells who reads")
async def test_a_stopping_server_lets_a_slow_reader_finish(database_url: str, tmp_path: Path) -> None:
    """The answer is written and on its way: nothing but the reading is left of it, for longer than the server gives
    those who read nothing."""
    archive = large_bundle(6_000_000, random_bytes=True)
    with serving(database_url, tmp_path, **UNKILLED) as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=30) as http:
            world = await World.create(database_url, http)
            path = f"{await pushed(world, archive)}/bundle"
        with Wire(server.port) as wire:
            wire.send(raw_http.request("GET", path, f"Authorization: Bearer {world.key}"))
            while not answered(server, path):
                wire.take(65_536)
                await asyncio.sleep(0.05)
            stop(server)
            received = await asyncio.to_thread(wire.rest, bytes_at_once=65_536, pause_seconds=0.05)
            assert received.endswith(archive)
            assert await until(lambda: is_gone(server))
