"""GET /v1/sessions/{session_id}/export."""

import json
import re
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import httpx
import pytest
from psycopg.types.json import Jsonb

from tests.workers import log_of
from tests.world import World, error_of

MARKDOWN = {"Accept": "text/markdown"}


async def session_with(world: World, *events: tuple[str, Any]) -> str:
    session_id = (await world.post("/v1/sessions", {"title": "Größe / report"})).json()["id"]
    for type_, data in events:
        statement = "INSERT INTO session_events (session_id, type, data) VALUES (%s, %s, %s)"
        await world.execute(statement, UUID(session_id), type_, Jsonb(data))
    return str(session_id)


async def drain(chunks: AsyncIterator[bytes]) -> None:
    async for _ in chunks:
        pass


async def test_the_log_is_exported_as_json_lines(world: World) -> None:
    # More than a page, by number and by size.
    large = [("message", {"role": "assistant", "text": "ü" * 100_000})] * 3
    session_id = await session_with(world, *large, *[("run.started", {"attempt": 1})] * 250)
    answer = await world.get(f"/v1/sessions/{session_id}/export", key=await world.new_token(session_id))
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/jsonl"
    assert answer.headers["content-disposition"] == 'attachment; filename="Gr-e-report.jsonl"'
    assert [json.loads(line) for line in answer.text.splitlines()] == await log_of(world, session_id)
    empty = await world.get(f"/v1/sessions/{await world.new_session()}/export", headers={"Accept": "application/json"})
    assert (empty.status_code, empty.content) == (200, b"")


async def test_the_log_is_exported_as_markdown(world: World) -> None:
    session_id = await session_with(
        world,
        ("input.accepted", {"input_id": "1", "text": "**What** time is it?"}),
        ("input.consumed", {"input_id": "1", "step": 1}),
        ("message", {"role": "assistant", "text": ""}),
        ("tool.call", {"call_id": "c", "name": "current_time", "arguments": {"zone": "UTC"}}),
        ("tool.result", {"call_id": "c", "name": "<b>", "text": "```\nnoon"}),
        ("message", {"role": "assistant", "text": "Noon."}),
        ("run.failed", {"reason": "It\nbroke."}),
    )
    answer = await world.get(f"/v1/sessions/{session_id}/export", headers=MARKDOWN)
    assert answer.headers["content-type"] == "text/markdown; charset=utf-8"
    assert answer.headers["content-disposition"] == 'attachment; filename="Gr-e-report.md"'
    text = answer.text
    assert text.startswith(f"# Größe / report\n\nSession `{session_id}`, created 20")
    times = [entry["created_at"][:19].replace("T", " ") + " UTC" for entry in await log_of(world, session_id)]
    assert text.split("\n", 3)[3] == (
        f"\n## User\n\n*{times[0]}*\n\n**What** time is it?\n"
        f"\n## Assistant\n\n*{times[2]}*\n"
        '\n<details><summary>Tool call: current_time</summary>\n\n```json\n{\n  "zone": "UTC"\n}\n```\n\n</details>\n'
        "\n<details><summary>Tool result: &lt;b&gt;</summary>\n\n````\n```\nnoon\n````\n\n</details>\n"
        f"\n## Assistant\n\n*{times[5]}*\n\nNoon.\n"
        f"\n> {times[6]}: The run failed. It broke.\n"
    )


async def test_reasoning_is_folded_and_sources_are_links(world: World) -> None:
    sources = [{"title": "A [page]\n", "url": "https://example.com/a b>?c=1"}, {"title": "report.pdf"}]
    data = {"role": "assistant", "text": "Noon.", "reasoning": "```\nHm.", "sources": sources}
    session_id = await session_with(world, ("message", data))
    text = (await world.get(f"/v1/sessions/{session_id}/export", headers=MARKDOWN)).text
    assert text.split("*\n", 1)[1] == (
        "\n<details><summary>Reasoning</summary>\n\n````\n```\nHm.\n````\n\n</details>\n"
        "\nNoon.\n"
        "\nSources:\n\n- [A \\[page\\]](<https://example.com/a%20b%3E?c=1>)\n- report.pdf\n"
    )


async def test_inputs_stand_where_the_model_read_them(world: World) -> None:
    """A steering input comes after the answer that was being written, wherever the log is divided into pages."""
    many = [("tool.started", {"name": "none", "attempt": 1})] * 120
    session_id = await session_with(
        world,
        ("input.accepted", {"input_id": "1", "text": "First."}),
        ("input.consumed", {"input_id": "1", "step": 1}),
        ("input.accepted", {"input_id": "2", "text": "Steering."}),
        ("input.accepted", {"input_id": "3", "text": "Withdrawn."}),
        ("input.accepted", {"input_id": "4", "text": "Waiting."}),
        *many,
        ("message", {"role": "assistant", "text": "Answer to the first."}),
        ("input.consumed", {"input_id": "2", "step": 2}),
        ("message", {"role": "assistant", "text": "Answer to the second."}),
        ("input.discarded", {"input_id": "3", "reason": "Withdrawn by its sender."}),
        ("input.discarded", {"input_id": "2", "reason": "Dropped later."}),
    )
    text = (await world.get(f"/v1/sessions/{session_id}/export", headers=MARKDOWN)).text
    log = await log_of(world, session_id)
    accepted = {
        entry["data"]["text"]: entry["created_at"][:19].replace("T", " ")
        for entry in log
        if entry["type"] == "input.accepted"
    }
    found = [line for line in text.splitlines()[4:] if line and not line.startswith(("## Assistant", "*20"))]
    assert [line.partition(" UTC: ")[2] or line for line in found] == [
        "## User",
        "First.",
        "Answer to the first.",
        "## User",
        "Steering.",
        "Answer to the second.",
        "## User",
        "Withdrawn.",
        "A message was discarded. Withdrawn by its sender.",
        "A message was discarded. Dropped later.",
        "## User",
        "Waiting.",
        "> No run has read this message yet.",
    ]
    assert f"## User\n\n*{accepted['Steering.']} UTC*\n\nSteering.\n" in text


async def test_markdown_has_no_control_characters(world: World) -> None:
    """People read it in a terminal, too."""
    hostile = "be\x1b]0;owned\x07\x9b31m\u202e\u2028\x08\rfore\r\nnext\tcolumn"
    session_id = await session_with(
        world,
        (
            "input.accepted",
            {"input_id": "1", "text": hostile, "attachments": [{"name": hostile, "media_type": hostile, "bytes": 1}]},
        ),
        ("input.consumed", {"input_id": "1", "step": 1}),
        ("message", {"role": "assistant", "text": hostile}),
        ("tool.call", {"call_id": "c", "name": hostile, "arguments": {hostile: hostile}}),
        ("tool.result", {"call_id": "c", "name": hostile, "text": hostile}),
        ("run.failed", {"reason": hostile}),
    )
    text = (await world.get(f"/v1/sessions/{session_id}/export", headers=MARKDOWN)).text
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]", text)
    assert "\nfore\nnext\tcolumn\n" in text


@pytest.mark.long
async def test_an_export_breaks_off_when_its_key_is_revoked(world: World) -> None:
    """The client can tell: the last chunk of the response is missing."""
    session_id = await session_with(world, *[("message", {"role": "assistant", "text": "x" * 300_000})] * 60)
    created = (await world.post("/v1/api-keys", {"label": "short", "permissions": ["workspace.read"]})).json()
    path, headers = f"/v1/sessions/{session_id}/export", world.headers(created["secret"])
    async with world.http.stream("GET", path, headers=headers) as answer:
        chunks = answer.aiter_raw()
        await anext(chunks)
        await world.post(f"/v1/api-keys/{created['id']}/revoke", {})
        with pytest.raises(httpx.RemoteProtocolError):
            await drain(chunks)
    assert error_of(await world.get(path, key=created["secret"])) == (401, "unauthorized")
