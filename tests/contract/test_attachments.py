"""Inputs with attachments: what callers are answered, what is in the log and in the session's files, and what the model
gets."""

import asyncio
import hashlib
import io
import json
import zipfile
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest

from quarterdeck.core.call import fingerprint
from quarterdeck.runs.model import InputEvent
from tests.contract.agent_requests import begin_run, new_agent, push
from tests.workers import ended, log_of, working
from tests.world import Server, World, error_of

PNG = (
    b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x06\x00\x00\x00\x1f\x15\xc4\x89"
    + bytes(40)
)
_FILES = "SELECT path, encode(sha256, 'hex'), bytes, mode FROM session_files WHERE session_id = %s ORDER BY path"
_KEPT = "SELECT encode(sha256, 'hex') FROM session_attachments WHERE session_id = %s"


def archive() -> bytes:
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w") as made:
        made.writestr("a.txt", "a")
    return raw.getvalue()


async def attach(
    world: World,
    session_id: str,
    *attachments: str,
    text: str = "See the files.",
    delivery: str | None = None,
    key: str | None = None,
    idempotency_key: str | None = None,
) -> httpx.Response:
    body: dict[str, Any] = {"type": "input", "text": text, "attachments": attachments}
    headers = {} if idempotency_key is None else {"Idempotency-Key": idempotency_key}
    body |= {} if delivery is None else {"delivery": delivery}
    return await world.post(f"/v1/sessions/{session_id}/events", body, key=key, headers=headers)


async def new_session(world: World, *, sandbox: bool = True) -> str:
    session_id = await world.new_session()
    # The server under test may have no sandbox.
    await world.execute("UPDATE sessions SET sandbox = %s WHERE id = %s", "{}" if sandbox else None, session_id)
    return session_id


async def accepted(world: World, session_id: str) -> list[dict[str, Any]]:
    return [entry["data"] for entry in await log_of(world, session_id) if entry["type"] == "input.accepted"]


async def stored(world: World, session_id: str) -> tuple[list[tuple[Any, ...]], set[str], int]:
    """The files of the session, the contents that are kept, and the number of changes."""
    [(revision,)] = await world.fetch("SELECT files_revision FROM sessions WHERE id = %s", session_id)
    kept = {sha256 for (sha256,) in await world.fetch(_KEPT, session_id)}
    return await world.fetch(_FILES, session_id), kept, revision


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


async def test_every_delivery_attaches(world: World) -> None:
    session_id = await new_session(world)
    contents = [b"first", b"second", b"third", b"first"]
    file_ids = [await world.new_file("notes.txt", content) for content in contents]
    image = await world.new_file("photo.png", PNG)

    began = await attach(world, session_id, file_ids[0], image)
    assert began.status_code == 200, began.text
    assert set(began.json()) == {"outcome", "run_id"}
    steered = await attach(world, session_id, file_ids[1])
    assert steered.json() == {"outcome": "steered", "run_id": began.json()["run_id"]}
    queued = await attach(world, session_id, file_ids[2], delivery="queue")
    # The same content as the first: it lies there already.
    interrupting = await attach(world, session_id, file_ids[3], delivery="interrupt")
    assert [queued.status_code, interrupting.status_code] == [200, 200]
    cancelled = interrupting.json()["run_id"]
    for run_id in (queued.json()["run_id"], cancelled):
        assert (await world.post(f"/v1/runs/{run_id}/cancel", None)).status_code == 200
    assert (await world.post(f"/v1/runs/{cancelled}/retry", None)).status_code == 201

    first, second, third, again, retried = await accepted(world, session_id)
    paths = ["attachments/notes.txt", "attachments/photo.png", "attachments/notes-2.txt", "attachments/notes-3.txt"]
    assert first["attachments"] == [
        {
            "file_id": file_ids[0],
            "name": "notes.txt",
            "media_type": "text/plain",
            "bytes": 5,
            "sha256": sha256(b"first"),
            "path": paths[0],
        },
        {
            "file_id": image,
            "name": "photo.png",
            "media_type": "image/png",
            "bytes": len(PNG),
            "sha256": sha256(PNG),
            "path": paths[1],
        },
    ]
    assert [one["attachments"][0]["path"] for one in (second, third, again)] == [paths[2], paths[3], paths[0]]
    assert retried["retried_from"] == cancelled
    assert retried["attachments"] == again["attachments"]
    files, kept, revision = await stored(world, session_id)
    expected = zip(paths, [b"first", PNG, b"second", b"third"], strict=True)
    assert files == sorted((path, sha256(content), len(content), 0o644) for path, content in expected)
    assert kept == {sha256(content) for content in (*contents, PNG)}
    assert revision == 3

    lines = (await world.get(f"/v1/sessions/{session_id}/export")).text.splitlines()
    assert json.loads(lines[0])["data"]["attachments"] == first["attachments"]
    written = (await world.get(f"/v1/sessions/{session_id}/export", headers={"Accept": "text/markdown"})).text
    assert "> Attachment: `photo.png` (image/png, " in written


@pytest.mark.parametrize("delivery", [None, "queue", "interrupt"])
async def test_refused_attachments_leave_nothing(world: World, server: Server, delivery: str | None) -> None:
    session_id = await new_session(world)
    other = await World.create(server.database_url, world.http)
    mine, foreign, unknown, deleted = (
        await world.new_file(),
        await other.new_file(),
        str(uuid4()),
        await world.new_file(),
    )
    assert (await world.delete(f"/v1/files/{deleted}")).status_code == 204

    messages = set()
    for file_id in (foreign, unknown, deleted):
        answer = await attach(world, session_id, mine, file_id, delivery=delivery)
        assert error_of(answer) == (400, "invalid_request")
        assert file_id in answer.json()["error"]["message"]
        messages.add(answer.json()["error"]["message"].replace(file_id, "ID"))
    # A session token sees no files, and cannot find out which there are.
    token = await world.new_token(session_id)
    by_token = await attach(world, session_id, mine, delivery=delivery, key=token)
    messages.add(by_token.json()["error"]["message"].replace(mine, "ID"))
    assert len(messages) == 1

    for wrong in ([mine, mine], [str(uuid4()) for _ in range(21)], ["x"], [None]):
        assert error_of(await attach(world, session_id, *wrong, delivery=delivery)) == (400, "invalid_request")
    # Who may not send inputs is told so first.
    assert error_of(await attach(world, str(uuid4()), unknown, unknown, delivery=delivery)) == (404, "not_found")
    assert error_of(await attach(other, session_id, unknown, delivery=delivery)) == (404, "not_found")

    await world.execute(
        "INSERT INTO session_files (session_id, path, kind, sha256, bytes, mode, modified_at)"
        " SELECT %s, 'big', 'file', sha256, 1024 * 1024 * 1024, 420, now() FROM files WHERE id = %s",
        session_id,
        mine,
    )
    assert error_of(await attach(world, session_id, mine, delivery=delivery)) == (409, "conflict")
    assert [path for path, *_ in (await stored(world, session_id))[0]] == ["big"]
    assert (await stored(world, session_id))[1:] == (set(), 0)
    assert await log_of(world, session_id) == []
    assert (await world.get(f"/v1/sessions/{session_id}/runs")).json()["items"] == []


@pytest.mark.parametrize("delivery", [None, "queue"])
async def test_a_replay_after_the_file_was_deleted(world: World, delivery: str | None) -> None:
    session_id, file_id = await new_session(world), await world.new_file()
    first = await attach(world, session_id, file_id, delivery=delivery, idempotency_key="one")
    assert first.status_code == 200, first.text
    before = await stored(world, session_id)
    assert (await world.delete(f"/v1/files/{file_id}")).status_code == 204
    again = await attach(world, session_id, file_id, delivery=delivery, idempotency_key="one")
    assert (again.status_code, again.content) == (200, first.content)
    assert again.headers["Idempotency-Replayed"] == "true"
    different = await attach(world, session_id, delivery=delivery, idempotency_key="one")
    assert error_of(different) == (409, "conflict")
    assert await stored(world, session_id) == before
    assert len(await accepted(world, session_id)) == 1


async def test_without_a_workspace_only_what_the_model_takes(world: World) -> None:
    session_id = await new_session(world, sandbox=False)
    packed, text, image = (
        await world.new_file("files.zip", archive()),
        await world.new_file("table.csv", b"a,b\n"),
        await world.new_file("photo.png", PNG),
    )
    for delivery in (None, "queue"):
        answer = await attach(world, session_id, text, packed, delivery=delivery)
        assert error_of(answer) == (400, "invalid_request")
        assert (
            "demo cannot read files.zip (application/zip). It takes text, images (PNG, JPEG, GIF, WebP) and PDF."
            in answer.text
        )
    assert (await attach(world, session_id, text, image)).status_code == 200
    [input_] = await accepted(world, session_id)
    assert [one["path"] for one in input_["attachments"]] == [None, None]
    assert await stored(world, session_id) == ([], {sha256(b"a,b\n"), sha256(PNG)}, 0)


@pytest.mark.parametrize("delivery", [None, "queue"])
async def test_the_version_that_the_session_shows_decides(world: World, delivery: str | None) -> None:
    """And not the version of the last run."""
    packed, text = await world.new_file("files.zip", archive()), await world.new_file("table.csv", b"a,b\n")
    agent_id = await new_agent(world, "Writer", {"sandbox": None})
    session_id = (await world.post("/v1/sessions", {"agent": {"agent_id": agent_id}})).json()["id"]
    run_id = (await world.submit(session_id)).json()["run_id"]
    await begin_run(world, run_id)
    assert error_of(await attach(world, session_id, packed, delivery=delivery)) == (400, "invalid_request")
    await push(world, agent_id, {"sandbox": None})
    # The server under test may have no sandbox.
    given = "UPDATE agent_versions SET configuration = configuration || '{\"sandbox\": {}}' WHERE agent_id = %s"
    await world.execute(f"{given} AND version = 2", agent_id)
    assert (await attach(world, session_id, packed, text, delivery=delivery)).status_code == 200
    [_, input_] = await accepted(world, session_id)
    paths = ["attachments/files.zip", "attachments/table.csv"]
    assert [one["path"] for one in input_["attachments"]] == paths
    files, _, _ = await stored(world, session_id)
    assert [path for path, *_ in files] == paths

    # The next run stores what the session has. Then there is no sandbox any more.
    await world.execute("UPDATE sessions SET sandbox = '{}' WHERE id = %s", session_id)
    await push(world, agent_id, {"sandbox": None})
    assert error_of(await attach(world, session_id, packed, delivery=delivery)) == (400, "invalid_request")
    assert (await attach(world, session_id, text, delivery=delivery)).status_code == 200
    assert [one["path"] for one in (await accepted(world, session_id))[-1]["attachments"]] == [None]
    # Its own value counts.
    await world.execute("UPDATE sessions SET overrides = '{sandbox}' WHERE id = %s", session_id)
    assert (await attach(world, session_id, packed, delivery=delivery)).status_code == 200


async def test_the_model_that_the_session_shows_decides(world: World) -> None:
    image = await world.new_file("photo.png", PNG)
    agent_id = await new_agent(world, "Writer", {"sandbox": None})
    session_id = (await world.post("/v1/sessions", {"agent": {"agent_id": agent_id}})).json()["id"]
    # As if a run had used a provider that takes no images, or that is not configured any more.
    await world.execute("UPDATE sessions SET model = 'deepseek:x' WHERE id = %s", session_id)
    assert (await attach(world, session_id, image)).status_code == 200
    await world.execute("UPDATE sessions SET overrides = '{model}' WHERE id = %s", session_id)
    assert error_of(await attach(world, session_id, image)) == (400, "invalid_request")


async def test_an_input_without_attachments_is_as_before(world: World) -> None:
    session_id = await new_session(world)
    assert (await world.submit(session_id, "hi", idempotency_key="k")).status_code == 200
    replay = await attach(world, session_id, text="hi", idempotency_key="k")
    assert replay.headers["Idempotency-Replayed"] == "true"
    [(stored_fingerprint,)] = await world.fetch(
        "SELECT fingerprint FROM receipts WHERE key = 'k' ORDER BY created_at DESC LIMIT 1"
    )
    old = hashlib.sha256(UUID(session_id).bytes + b'{"text":"hi","type":"input"}').digest()
    assert stored_fingerprint == old == fingerprint((UUID(session_id),), InputEvent("hi", "input"))
    assert (await world.submit(session_id, delivery="queue")).status_code == 200
    first, second = await accepted(world, session_id)
    assert set(first) == {"input_id", "text", "actor"}
    assert set(second) == {"input_id", "text", "actor", "delivery"}
    assert await stored(world, session_id) == ([], set(), 0)


async def test_inputs_at_once_get_paths_of_their_own(world: World) -> None:
    session_id = await new_session(world)
    file_ids = [await world.new_file("same.txt", b"%d" % number) for number in range(6)]
    deliveries = [None, "queue", None, "interrupt", None, "queue"]
    answers = await asyncio.gather(
        *(attach(world, session_id, one, delivery=how) for one, how in zip(file_ids, deliveries, strict=True))
    )
    assert {answer.status_code for answer in answers} == {200}
    files, kept, revision = await stored(world, session_id)
    assert len(files) == 6
    assert {content for _, content, *_ in files} == kept
    assert revision == 6
    shown = {
        one["attachments"][0]["path"]: one["attachments"][0]["sha256"] for one in await accepted(world, session_id)
    }
    assert shown == {path: content for path, content, *_ in files}


async def test_the_demo_model_names_what_it_got(world: World, server: Server) -> None:
    session_id = await new_session(world)
    file_ids = [
        await world.new_file("notes.txt", b"Call Ann.\nThen Bob."),
        await world.new_file("photo.png", PNG),
        await world.new_file("files.zip", archive()),
        await world.new_file("lost.txt", b"lost"),
        await world.new_file("empty.txt", b""),
    ]
    [lost] = list(Path(server.data_dir).glob(f"blobs/*/{sha256(b'lost')}.*"))
    lost.unlink()
    run_id = (await attach(world, session_id, *file_ids)).json()["run_id"]
    with working(server.database_url, server.data_dir):
        run = await ended(world, run_id)
        assert run["state"] == "succeeded", run
        # Also when the input is read from the log, by a later run.
        later = (await world.submit(session_id, "And now?")).json()["run_id"]
        assert (await ended(world, later))["state"] == "succeeded"
    fork = (await world.post(f"/v1/sessions/{session_id}/fork", {})).json()["id"]
    assert (await accepted(world, fork))[0]["attachments"] == (await accepted(world, session_id))[0]["attachments"]
    assert (await stored(world, fork))[:2] == (await stored(world, session_id))[:2]
    entries = await log_of(world, session_id)
    answer = [one["data"]["text"] for one in entries if one["type"] == "message" and one["run_id"] == run_id][-1]
    assert "> notes.txt (text/plain, 19 bytes, at attachments/notes.txt): Call Ann.\n" in answer
    assert (
        f"> photo.png (image/png, {len(PNG)} bytes, at attachments/photo.png): I got its {len(PNG)} bytes.\n" in answer
    )
    assert "files.zip (application/zip, " in answer
    assert "You cannot be shown this kind of file." in answer
    assert "lost.txt (text/plain, 4 bytes, at attachments/lost.txt): Its content could not be read." in answer
    assert "empty.txt (text/plain, 0 bytes, at attachments/empty.txt): empty" in answer
    assert sha256(PNG) not in answer
