"""POST /v1/skills/{skill_id}/versions: every status and rule of the interface. Archives have tests of their own."""

import asyncio
import gzip
import hashlib
import random
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import httpx
import pytest

from quarterdeck.core.actors import Permission
from tests.processes import spooled, until
from tests.world import Server, World, bundle, error_of, serving


async def test_a_push_answers_with_the_new_version(world: World, server: Server) -> None:
    skill_id, archive = await world.new_skill(), bundle("greeting", **{"scripts/run.sh": "echo hi\n"})
    answer = await world.push(skill_id, archive)
    assert answer.status_code == 201
    body = answer.json()
    assert set(body) == {"id", "skill_id", "version", "bundle_bytes", "frontmatter", "manifest"}
    assert (body["skill_id"], body["version"], body["bundle_bytes"]) == (skill_id, 1, len(archive))
    assert body["frontmatter"] == {"name": "greeting", "description": "A test skill."}
    assert [file["path"] for file in body["manifest"]["files"]] == ["SKILL.md", "scripts/run.sh"]
    assert body["manifest"]["files"][1]["sha256"] == hashlib.sha256(b"echo hi\n").hexdigest()
    assert body["manifest"]["archive_sha256"] == hashlib.sha256(archive).hexdigest()
    for content in (archive, b"echo hi\n"):
        sha256 = hashlib.sha256(content).hexdigest()
        (stored,) = (server.data_dir / "blobs" / sha256[:2]).glob(f"{sha256}.*")
        assert stored.read_bytes() == content


async def test_versions_count_from_one_for_each_skill(world: World) -> None:
    one, two = await world.new_skill(), await world.new_skill()
    versions = [(await world.push(skill, bundle())).json()["version"] for skill in (one, one, two, one)]
    assert versions == [1, 2, 1, 3]


async def test_a_refused_push_uses_no_number_and_stores_nothing(world: World) -> None:
    skill_id = await world.new_skill()
    refused = await world.push(skill_id, b"not gzip")
    assert error_of(refused) == (400, "invalid_request")
    assert (await world.push(skill_id, bundle())).json()["version"] == 1


async def test_twenty_parallel_pushes_are_numbered_without_gaps(world: World) -> None:
    skill_id = await world.new_skill()
    answers = await asyncio.gather(*(world.push(skill_id, bundle(f"skill-{n}")) for n in range(20)))
    assert sorted(answer.json()["version"] for answer in answers) == list(range(1, 21))
    stored = await world.fetch("SELECT version FROM skill_versions WHERE skill_id = %s ORDER BY 1", skill_id)
    assert stored == [(n,) for n in range(1, 21)]


async def test_twenty_pushes_with_one_key_make_one_version(world: World) -> None:
    skill_id, archive = await world.new_skill(), bundle()
    answers = await asyncio.gather(
        *(world.push(skill_id, archive, headers={"Idempotency-Key": "k"}) for _ in range(20))
    )
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.content for answer in answers}) == 1
    assert sum("idempotency-replayed" in answer.headers for answer in answers) == 19
    assert await world.fetch("SELECT version FROM skill_versions WHERE skill_id = %s", skill_id) == [(1,)]


async def test_a_key_used_for_another_archive_or_skill_is_409(world: World) -> None:
    skill_id, other, archive = await world.new_skill(), await world.new_skill(), bundle()
    key = {"Idempotency-Key": "k"}
    assert (await world.push(skill_id, archive, headers=key)).status_code == 201
    recompressed = gzip.compress(gzip.decompress(archive), compresslevel=1, mtime=1)
    for answer in (
        await world.push(skill_id, bundle("another"), headers=key),
        await world.push(skill_id, recompressed, headers=key),
        await world.push(other, archive, headers=key),
    ):
        assert error_of(answer) == (409, "conflict")
        assert "retry-after" not in answer.headers


async def test_a_malformed_archive_wins_over_a_reused_key(world: World) -> None:
    skill_id, key = await world.new_skill(), {"Idempotency-Key": "k"}
    await world.push(skill_id, bundle(), headers=key)
    assert error_of(await world.push(skill_id, b"junk", headers=key)) == (400, "invalid_request")


@pytest.mark.parametrize("content_type", ["application/json", "application/x-tar", "application/octet-stream", ""])
async def test_only_gzip_is_taken(world: World, content_type: str) -> None:
    skill_id = await world.new_skill()
    answer = await world.push(skill_id, bundle(), headers={"Content-Type": content_type})
    assert error_of(answer) == (400, "invalid_request")
    encoded = await world.push(skill_id, bundle(), headers={"Content-Encoding": "gzip"})
    assert error_of(encoded) == (400, "invalid_request")


async def test_order_of_checks(world: World) -> None:
    skill_id, reader = await world.new_skill(), await world.new_key(Permission.WORKSPACE_READ)
    assert error_of(await world.push("x", b"", key=await world.revoked_key())) == (401, "unauthorized")
    assert error_of(await world.push("x", b"", key=reader)) == (400, "invalid_request")
    assert error_of(await world.push(str(uuid4()), b"", key=reader)) == (404, "not_found")
    assert error_of(await world.push(skill_id, b"", key=reader)) == (403, "forbidden")
    assert error_of(await world.push(skill_id, b"")) == (400, "invalid_request")


async def test_a_key_revoked_while_the_body_arrives_writes_nothing(world: World) -> None:
    skill_id = await world.new_skill()
    secret, key_id = await world.new_key_record((Permission.SKILL_MANAGE,))
    archive = bundle()

    async def slowly() -> AsyncIterator[bytes]:
        yield archive[:20]
        await asyncio.sleep(0.3)
        await world.execute("UPDATE api_keys SET revoked_at = now() WHERE id = %s", key_id)
        yield archive[20:]

    headers = world.headers(secret) | {"Content-Type": "application/gzip"}
    answer = await world.http.post(f"/v1/skills/{skill_id}/versions", content=slowly(), headers=headers)
    assert error_of(answer) == (401, "unauthorized")
    assert await world.fetch("SELECT FROM skill_versions WHERE skill_id = %s", skill_id) == []


@pytest.mark.parametrize(
    "files",
    [
        {f"{number}.md": "x" for number in range(100)},
        {"large.md": "x" * 200_000},
        {"SKILL.md": f"---\nname: x\ndescription: {'d' * 900}\nmore: {'m' * 3000}\n---\n"},
        {"noise.bin": random.Random(1).randbytes(300_000).hex()},
    ],
    ids=["entries", "content", "frontmatter", "archive"],
)
async def test_archive_larger_than_memory_limit_is_accepted(world: World, files: dict[str, str]) -> None:
    answer = await world.push(await world.new_skill(), bundle(**files))
    assert answer.status_code == 201, answer.text
    assert {file["path"] for file in answer.json()["manifest"]["files"]} == {"SKILL.md", *files}


async def test_a_replay_has_the_same_bytes_whatever_the_frontmatter_holds(world: World) -> None:
    text = '---\nname: x\ndescription: "é 漢 \\u2028 \\" \\\\ </script> 🙂"\nempty: {}\n---\n'
    skill_id, archive = await world.new_skill(), bundle(**{"SKILL.md": text, "ü/漢.md": "x"})
    first, again = [await world.push(skill_id, archive, headers={"Idempotency-Key": "k"}) for _ in range(2)]
    assert first.status_code == 201, first.text
    assert (again.status_code, again.content) == (201, first.content)
    assert "idempotency-replayed" in again.headers


async def test_frontmatter_is_kept_as_given(world: World) -> None:
    skill_id = await world.new_skill()
    text = "---\nname: x\ndescription: d\nversion: 2024-01-02\nn: 12345678901234567890\nlist: [1, {a: .nan}]\n---\n"
    body = (await world.push(skill_id, bundle(**{"SKILL.md": text}))).json()
    assert body["frontmatter"] == {
        "name": "x", "description": "d", "version": "2024-01-02", "n": "12345678901234567890",
        "list": [1, {"a": ".nan"}],
    }  # fmt: skip
    ((stored,),) = await world.fetch("SELECT frontmatter FROM skill_versions WHERE skill_id = %s", skill_id)
    assert stored == body["frontmatter"]


@pytest.mark.long
async def test_uploads_beyond_the_limit_wait_and_are_then_503(database_url: str, tmp_path: Path) -> None:
    settings = {"BUNDLE_UPLOADS": 1, "BUNDLE_UPLOAD_WAIT_SECONDS": 0.5}
    with serving(database_url, tmp_path, **settings) as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=30) as http:
            world = await World.create(database_url, http)
            skill_id = await world.new_skill()
            # More than is kept in memory: what is on its way can be seen.
            archive = bundle(noise=random.Random(1).randbytes(500_000).hex())
            release = asyncio.Event()

            async def slowly() -> AsyncIterator[bytes]:
                yield archive[:400_000]
                await release.wait()
                yield archive[400_000:]

            headers = world.headers() | {"Content-Type": "application/gzip"}
            path = f"/v1/skills/{skill_id}/versions"
            first = asyncio.create_task(http.post(path, content=slowly(), headers=headers))
            assert await until(lambda: spooled(server) == 1)
            refused = await world.push(skill_id, archive)
            assert error_of(refused) == (503, "internal")
            assert "retry-after" in refused.headers
            release.set()
            assert (await first).status_code == 201
            assert (await world.push(skill_id, archive)).json()["version"] == 2
            assert list((tmp_path / "spool").iterdir()) == []
