"""Listing and downloading the files of a session."""

import hashlib
import io
import subprocess
import tarfile
import zlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.processes import resident_mib
from tests.session_files import SessionFiles, session_files, stored_file, stored_folder, stored_link
from tests.world import Server, World, error_of


@pytest.fixture
async def files(world: World, server: Server) -> AsyncIterator[SessionFiles]:
    session_id = (await world.post("/v1/sessions", {"title": "Weekly / report"})).json()["id"]
    async with session_files(server.database_url, server.data_dir, session_id) as found:
        yield found


def path_of(files: SessionFiles, rest: str = "") -> str:
    return f"/v1/sessions/{files.session_id}/files{rest}"


async def walk(world: World, files: SessionFiles, query: str = "") -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    after = ""
    while True:
        answer = await world.get(path_of(files, f"?limit=3{query}{after}"))
        assert answer.status_code == 200, answer.text
        items += answer.json()["items"]
        assert len(answer.json()["items"]) <= 3
        if answer.json()["next_cursor"] is None:
            return items
        after = f"&after={quote(answer.json()['next_cursor'])}"


async def test_the_list_is_sorted_by_path(world: World, files: SessionFiles) -> None:
    assert (await world.get(path_of(files))).json() == {"items": [], "next_cursor": None}
    paths = ["B", "a b", "a/1", "a/2", "a/2_", "a/é", "a0", "ab/c", "z%&+", "é"]
    await files.put([b"text"])
    await files.apply([stored_file(path) for path in paths])
    await files.apply([stored_link("link", "a/1"), stored_folder("empty")])
    listed = await walk(world, files)
    assert [one["path"] for one in listed] == sorted([*paths, "link", "empty"])
    sha256 = hashlib.sha256(b"text").hexdigest()
    shown = {
        "path": "a/1",
        "kind": "file",
        "bytes": 4,
        "mode": 0o644,
        "sha256": sha256,
        "target": None,
        "modified_at": "2026-03-01T00:00:00Z",
    }
    by_path = {one["path"]: one for one in listed}
    assert by_path["a/1"] == shown
    assert (by_path["link"]["kind"], by_path["link"]["target"], by_path["link"]["sha256"]) == ("link", "a/1", None)
    assert by_path["empty"]["kind"] == "folder"
    for prefix, expected in (
        ("a/", ["a/1", "a/2", "a/2_", "a/é"]),
        ("a", ["a b", "a/1", "a/2", "a/2_", "a/é", "a0", "ab/c"]),
        ("%", []),
        ("é", ["é"]),
        ("", sorted([*paths, "link", "empty"])),
    ):
        assert [one["path"] for one in await walk(world, files, f"&prefix={quote(prefix)}")] == expected
    # A cursor is a position in the order, also if there is no such file any more.
    page = (await world.get(path_of(files, "?after=a/11&limit=1"))).json()
    assert ([one["path"] for one in page["items"]], page["next_cursor"]) == (["a/2"], "a/2")
    for query in ("limit=0", "limit=201", "after=%00", "prefix=%00", f"after={'x' * 1025}", "prefix=%FF"):
        assert error_of(await world.get(path_of(files, f"?{query}"))) == (400, "invalid_request")


async def test_content_of_a_file(world: World, files: SessionFiles) -> None:
    content = b"<h1>\xff" * 200_000
    await files.write({"a/page.html": content, "empty": b"", "notes.md": b"# Notes", "x.tar.gz": b"z"})
    links = {"latest": "a/page.html", "d": "a", "up": "d/../latest", "loop": "loop", "gone": "nothing", "dot": "."}
    await files.apply([*(stored_link(path, target) for path, target in links.items()), stored_folder("folder")])
    answer = await world.get(path_of(files, "/content?path=a/page.html"))
    assert (answer.status_code, answer.content == content) == (200, True)
    assert answer.headers["etag"] == f'"{hashlib.sha256(content).hexdigest()}"'
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"] == 'attachment; filename="page.html"'
    assert answer.headers["x-content-type-options"] == "nosniff"
    part = await world.get(path_of(files, "/content?path=a/page.html"), headers={"Range": "bytes=3-6"})
    assert (part.status_code, part.content) == (206, content[3:7])
    again = await world.get(
        path_of(files, "/content?path=a/page.html"), headers={"If-None-Match": answer.headers["etag"]}
    )
    assert again.status_code == 304
    empty = await world.get(path_of(files, "/content?path=empty"))
    assert (empty.content, empty.headers["content-type"]) == (b"", "application/octet-stream")
    for path in ("latest", "d/page.html", "up", "dot/a/page.html", "dot/dot/d/page.html"):
        assert (await world.get(path_of(files, f"/content?path={path}"))).content == content, path
    for path in ("a", "folder", "nothing", "loop", "gone", "d", "dot", "../a", "a/page.html/x", "/etc/passwd", "A"):
        assert error_of(await world.get(path_of(files, f"/content?path={path}"))) == (404, "not_found")
    for query in ("", "?path=%00", f"?path={'x' * 1025}", "?path=a&path=b"):
        assert error_of(await world.get(path_of(files, f"/content{query}"))) == (400, "invalid_request")


async def test_the_archive_has_all_files(world: World, files: SessionFiles, tmp_path: Path) -> None:
    await files.put([b"text", b"#!/bin/sh\n", bytes(700_000)])
    long_path = "/".join(["ä" * 100] * 5)
    await files.apply(
        [
            stored_file("run.sh", b"#!/bin/sh\n", 0o755),
            stored_file(long_path),
            stored_file("zeros", bytes(700_000)),
            stored_file("new\nline"),
            stored_link("b/link", "../run.sh"),
            stored_folder("c/empty"),
        ]
    )
    token = await world.new_token(str(files.session_id))
    answer = await world.get(path_of(files, "/archive"), key=token)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/gzip"
    assert answer.headers["content-disposition"] == 'attachment; filename="Weekly-report.tar.gz"'
    assert len(answer.content) < 10_000, "compressed"
    with tarfile.open(fileobj=io.BytesIO(answer.content), mode="r:gz") as tar:
        names = {entry.name: entry for entry in tar.getmembers()}
        assert set(names) == {"run.sh", long_path, "zeros", "new\nline", "b/link", "c/empty"}
        assert (names["run.sh"].mode, names["run.sh"].mtime) == (0o755, 1772323200)
        assert (names["b/link"].issym(), names["b/link"].linkname) == (True, "../run.sh")
        assert names["c/empty"].isdir()
    # Not `extractall`: Python 3.11.2 of Debian 12 has no filter.
    subprocess.run(["tar", "-xz", "-C", tmp_path], input=answer.content, check=True)
    assert (tmp_path / "b/link").read_bytes() == b"#!/bin/sh\n"
    assert (tmp_path / "zeros").read_bytes() == bytes(700_000)
    empty = await world.get(f"/v1/sessions/{await world.new_session()}/files/archive")
    with tarfile.open(fileobj=io.BytesIO(empty.content), mode="r:gz") as tar:
        assert tar.getnames() == []
    assert empty.headers["content-disposition"] == 'attachment; filename="session.tar.gz"'


@pytest.mark.long
async def test_an_archive_is_made_at_bounded_memory(world: World, server: Server, files: SessionFiles) -> None:
    size = 64 * 1024 * 1024
    await files.put([bytes(size)])
    await world.get(path_of(files, "/archive"))
    await files.apply([stored_file(f"{n}", bytes(size)) for n in range(4)])
    before = most = resident_mib(server)
    unpacking = zlib.decompressobj(31)
    received = 0
    async with world.http.stream("GET", path_of(files, "/archive"), headers=world.headers()) as answer:
        async for piece in answer.aiter_raw():
            received += len(unpacking.decompress(piece))
            most = max(most, resident_mib(server))
    assert (unpacking.eof, received) == (True, 4 * (size + 512) + 1024)
    assert most - before < 50, (before, most)


async def test_who_sees_the_files(world: World, files: SessionFiles) -> None:
    """Tokens of the session do; the other callers are in test_callers.py."""
    await files.write({"a": b"text"})
    token = await world.new_token(str(files.session_id))
    other = await world.new_token(await world.new_session())
    for path in ("", "/content?path=a", "/archive"):
        assert (await world.get(path_of(files, path), key=token)).status_code == 200
        assert error_of(await world.get(path_of(files, path), key=other)) == (404, "not_found")
    await world.delete(f"/v1/sessions/{files.session_id}")
    for path in ("", "/content?path=a", "/archive"):
        assert error_of(await world.get(path_of(files, path))) == (404, "not_found")
