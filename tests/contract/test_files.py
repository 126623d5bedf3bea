"""/v1/files: uploads, downloads and deletion."""

import asyncio
import hashlib
import random
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import httpx
import pytest

from quarterdeck.core.actors import Permission
from tests.processes import spooled, until
from tests.world import Server, World, error_of, serving

INVALID = (400, "invalid_request")
PNG = bytes.fromhex("89504e470d0a1a0a0000000d49484452") + bytes(50)


async def files_of(world: World) -> list[tuple[object, ...]]:
    return await world.fetch("SELECT name FROM files WHERE workspace_id = %s ORDER BY id", world.workspace_id)


async def test_a_file_is_uploaded_downloaded_and_deleted(world: World, server: Server) -> None:
    content = random.Random(1).randbytes(1_000_000)
    sha256 = hashlib.sha256(content).hexdigest()
    answer = await world.upload("Bericht – März 漢.bin", content, headers={"Content-Type": "image/png"})
    assert answer.status_code == 201, answer.text
    file = answer.json()
    assert file | {"id": "", "created_at": "", "created_by": {}} == {
        "id": "",
        "workspace_id": str(world.workspace_id),
        "name": "Bericht – März 漢.bin",
        "media_type": "application/octet-stream",
        "bytes": len(content),
        "sha256": sha256,
        "created_at": "",
        "created_by": {},
    }
    assert file["created_by"]["primary_email"].endswith("@example.com")
    path = f"/v1/files/{file['id']}"
    assert (await world.get(path)).json() == file
    (stored,) = (server.data_dir / "blobs" / sha256[:2]).glob(f"{sha256}.*")
    assert stored.read_bytes() == content

    whole = await world.get(f"{path}/content")
    assert (whole.status_code, whole.content == content) == (200, True)
    assert whole.headers["content-type"] == "application/octet-stream"
    assert whole.headers["x-content-type-options"] == "nosniff"
    assert whole.headers["content-disposition"] == (
        "attachment; filename=\"Bericht-M-rz-.bin\"; filename*=UTF-8''Bericht%20%E2%80%93%20M%C3%A4rz%20%E6%BC%A2.bin"
    )
    part = await world.get(f"{path}/content", headers={"Range": "bytes=262140-300000"})
    assert (part.status_code, part.content == content[262140:300001]) == (206, True)
    beyond = await world.get(f"{path}/content", headers={"Range": "bytes=1000000-"})
    assert error_of(beyond) == (416, "invalid_request")
    known = await world.get(f"{path}/content", headers={"If-None-Match": f'"{sha256}"'})
    assert (known.status_code, known.headers["etag"]) == (304, f'"{sha256}"')

    deleted = await world.delete(path)
    assert (deleted.status_code, deleted.content) == (204, b"")
    for again in (await world.delete(path), await world.get(path), await world.get(f"{path}/content")):
        assert error_of(again) == (404, "not_found")
    events = (await world.get("/v1/audit-events?object_type=file&order=asc")).json()["items"]
    assert [(event["action"], event["object_name"], event["object_id"]) for event in events] == [
        ("upload_file", file["name"], file["id"]),
        ("delete_file", file["name"], file["id"]),
    ]


async def test_browsers_save_every_file_and_show_none(world: World) -> None:
    for name, content, declared, expected in (
        ("page.html", b"<script>alert(1)</script>", "text/html; charset=latin-1", "text/html"),
        ("drawing.svg", b"<svg onload='alert(1)'/>", "image/png", "image/svg+xml"),
        ("x.bin", PNG, "text/html", "image/png"),
        ("empty.txt", b"", "application/octet-stream", "text/plain"),
    ):
        answer = await world.upload(name, content, headers={"Content-Type": declared})
        assert answer.json()["media_type"] == expected
        shown = await world.get(f"/v1/files/{answer.json()['id']}/content")
        assert (shown.status_code, shown.content) == (200, content)
        assert shown.headers["content-type"] == "application/octet-stream"
        assert shown.headers["content-disposition"] == f'attachment; filename="{name}"'
        assert shown.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    "name", ["", "x" * 201, "a/b", "a\\b", ".", "..", "a\nb", "a\0b", "a\u202eb", None], ids=lambda name: repr(name)[:9]
)
async def test_bad_names_are_400(world: World, name: str | None) -> None:
    query = {} if name is None else {"name": name}
    headers = world.headers() | {"Content-Type": "text/plain"}
    assert error_of(await world.http.post("/v1/files", params=query, content=b"x", headers=headers)) == INVALID
    assert await files_of(world) == []


async def test_bodies_that_are_not_the_file_itself_are_400(world: World) -> None:
    form = await world.http.post("/v1/files?name=x", files={"file": b"x"}, headers=world.headers())
    assert error_of(form) == INVALID
    for headers in ({"Content-Type": ""}, {"Content-Type": "text"}, {"Content-Encoding": "gzip"}):
        assert error_of(await world.upload("x", b"x", headers=headers)) == INVALID
    assert await files_of(world) == []


async def test_order_of_checks(world: World) -> None:
    reader, nowhere = await world.new_key(Permission.WORKSPACE_READ), {"Service-Workspace": str(uuid4())}
    assert error_of(await world.upload("", b"", key=await world.revoked_key())) == (401, "unauthorized")
    assert error_of(await world.upload("", b"", key=reader, headers=nowhere)) == INVALID
    assert error_of(await world.upload("x", b"", key=reader, headers=nowhere)) == (404, "not_found")
    assert error_of(await world.upload("x", b"", key=reader)) == (403, "forbidden")
    file_id = await world.new_file()
    for path, expected in ((f"/v1/files/{file_id}", (403, "forbidden")), (f"/v1/files/{uuid4()}", (404, "not_found"))):
        assert error_of(await world.delete(path, key=reader)) == expected


async def test_repeated_uploads_with_one_key_store_one_file(world: World) -> None:
    key = {"Idempotency-Key": "k"}
    answers = await asyncio.gather(*(world.upload("a.txt", b"one", headers=key) for _ in range(5)))
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.content for answer in answers}) == 1
    assert sum("idempotency-replayed" in answer.headers for answer in answers) == 4
    for answer in (
        await world.upload("a.txt", b"two", headers=key),
        await world.upload("b.txt", b"one", headers=key),
        await world.upload("a.txt", b"one", headers=key | {"Content-Type": "text/csv"}),
    ):
        assert error_of(answer) == (409, "conflict")
    assert await files_of(world) == [("a.txt",)]


async def test_a_key_revoked_while_the_body_arrives_writes_nothing(world: World, server: Server) -> None:
    secret, key_id = await world.new_key_record((Permission.SESSION_MANAGE,))

    async def body() -> AsyncIterator[bytes]:
        # More than is kept in memory, so that it can be seen that the caller was admitted.
        yield bytes(400_000)
        assert await until(lambda: spooled(server) == 1)
        await world.execute("UPDATE api_keys SET revoked_at = now() WHERE id = %s", key_id)
        yield b"the rest"

    headers = world.headers(secret) | {"Content-Type": "text/plain"}
    answer = await world.http.post("/v1/files?name=x", content=body(), headers=headers)
    assert error_of(answer) == (401, "unauthorized")
    assert await files_of(world) == []


@pytest.mark.long
async def test_uploads_are_bounded_in_size_and_number(database_url: str, tmp_path: Path) -> None:
    settings = {"FILE_REQUEST_BYTES": 600_000, "FILE_UPLOADS": 1, "BUNDLE_UPLOAD_WAIT_SECONDS": 0.5}
    with serving(database_url, tmp_path, **settings) as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=30) as http:
            world = await World.create(database_url, http)
            headers = world.headers() | {"Content-Type": "text/plain"}
            release = asyncio.Event()

            async def body(pieces: int) -> AsyncIterator[bytes]:
                for number in range(pieces):
                    if number == 4:
                        await release.wait()
                    yield bytes(100_000)

            first = asyncio.create_task(http.post("/v1/files?name=x", content=body(6), headers=headers))
            # More than is kept in memory.
            assert await until(lambda: spooled(server) == 1)
            refused = await world.upload("y", b"y")
            assert error_of(refused) == (503, "internal")
            assert "retry-after" in refused.headers
            release.set()
            assert (await first).json()["bytes"] == 600_000
            assert error_of(await world.upload("large", bytes(600_001))) == (413, "invalid_request")
            # Without a Content-Length.
            assert error_of(await http.post("/v1/files?name=x", content=body(7), headers=headers)) == (
                413,
                "invalid_request",
            )
            assert await files_of(world) == [("x",)]
            assert spooled(server) == 0
