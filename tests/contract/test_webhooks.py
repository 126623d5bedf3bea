"""Operations on webhooks: what is kept, what is shown once, and what is refused."""

import asyncio
import base64
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from tests.world import Server, World, error_of, serving

URL = "https://hooks.example.com/quarterdeck?token=shh"


async def create(world: World, **given: object) -> dict[str, Any]:
    body = {"url": URL, "events": ["run.failed", "run.succeeded", "run.failed"]} | given
    answer = await world.post("/v1/webhooks", body)
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def change(
    world: World, webhook_id: str, body: dict[str, Any], headers: dict[str, str] | None = None
) -> httpx.Response:
    return await world.http.patch(f"/v1/webhooks/{webhook_id}", json=body, headers=world.headers() | (headers or {}))


async def delete(world: World, webhook_id: str, headers: dict[str, str] | None = None) -> httpx.Response:
    return await world.http.delete(f"/v1/webhooks/{webhook_id}", headers=world.headers() | (headers or {}))


async def told(world: World, action: str) -> list[Any]:
    """What the audit log says of it."""
    query = "SELECT detail FROM audit_events WHERE workspace_id = %s AND action = %s ORDER BY id"
    return [detail for (detail,) in await world.fetch(query, world.workspace_id, action)]


async def test_create_get_list(world: World) -> None:
    created = await create(world, description="Chat")
    assert created["events"] == ["run.succeeded", "run.failed"]
    assert (created["url"], created["description"], created["enabled"]) == (URL, "Chat", True)
    shown = {name: value for name, value in created.items() if name != "secret"}
    got = await world.get(f"/v1/webhooks/{created['id']}")
    assert (got.json(), got.headers["etag"]) == (shown, '"1"')
    other = await create(world)
    listed = (await world.get("/v1/webhooks")).json()
    assert [item["id"] for item in listed["items"]] == [other["id"], created["id"]]
    assert listed["items"][1] == shown
    page = (await world.get("/v1/webhooks?limit=1&order=asc")).json()
    assert ([item["id"] for item in page["items"]], page["next_cursor"]) == ([created["id"]], created["id"])
    await delete(world, created["id"])
    rest = (await world.get(f"/v1/webhooks?limit=1&order=asc&after={created['id']}")).json()
    assert [item["id"] for item in rest["items"]] == [other["id"]], "a walk goes on behind what was deleted"


@pytest.mark.long
async def test_a_secret_is_shown_once_and_is_in_no_receipt_and_no_table(world: World, server: Server) -> None:
    headers = {"Idempotency-Key": str(uuid4())}
    body = {"url": URL, "events": ["run.failed"]}
    first = (await world.post("/v1/webhooks", body, headers=headers)).json()
    again = await world.post("/v1/webhooks", body, headers=headers)
    assert again.headers["idempotency-replayed"] == "true"
    assert again.json() == {name: value for name, value in first.items() if name != "secret"}
    rotated = (await world.post(f"/v1/webhooks/{first['id']}/rotate-secret", {})).json()
    await world.post(f"/v1/webhooks/{first['id']}/test", None)
    assert rotated["secret"] != first["secret"]
    tables = await world.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'app'")
    dump = str([await world.fetch(f"SELECT t::text FROM {name} t") for (name,) in tables])
    assert first["id"] in dump
    for secret in (first["secret"], rotated["secret"]):
        raw = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
        assert len(raw) == 32
        assert secret not in dump
        assert secret.removeprefix("whsec_") not in dump
        assert raw.hex() not in dump
        assert secret not in server.log.read_text()
    assert "token=shh" not in server.log.read_text()


@pytest.mark.parametrize(
    "given",
    [
        {"url": None},
        {"url": ""},
        {"url": "ftp://example.com/"},
        {"url": "http://example.com/"},
        {"url": "https://user:pass@example.com/"},
        {"url": "https://127.0.0.1/"},
        {"url": "https://[::1]/"},
        {"url": "https://[::ffff:10.0.0.1]/"},
        {"url": "https://localhost./"},
        {"url": "https://0x7f000001/"},
        {"url": "https://169.254.169.254/latest"},
        {"url": "https://example.com:22/"},
        {"url": "https://example.com/" + "x" * 2000},
        {"events": []},
        {"events": ["run.started"]},
        {"events": ["webhook.test"]},
        {"events": "run.failed"},
        {"description": ""},
        {"description": "two\nlines"},
        {"description": "x" * 201},
    ],
    ids=str,
)
async def test_invalid_webhooks_are_refused_at_creation_and_change(world: World, given: dict[str, Any]) -> None:
    body = {"url": URL, "events": ["run.failed"]} | given
    assert error_of(await world.post("/v1/webhooks", body)) == (400, "invalid_request")
    webhook = await create(world)
    assert error_of(await change(world, webhook["id"], given)) == (400, "invalid_request")
    assert (await world.get(f"/v1/webhooks/{webhook['id']}")).json()["revision"] == 1


async def test_change(world: World) -> None:
    webhook = await create(world, description="Chat")
    path = f"/v1/webhooks/{webhook['id']}"
    first = await change(world, webhook["id"], {"events": ["run.cancelled"], "description": None})
    assert first.status_code == 200
    assert first.json() == (await world.get(path)).json()
    assert (first.json()["events"], first.json()["description"], first.json()["url"]) == (["run.cancelled"], None, URL)
    assert (first.json()["revision"], first.headers["etag"]) == (2, '"2"')
    same = await change(world, webhook["id"], {"events": ["run.cancelled", "run.cancelled"]})
    assert same.json() == first.json(), "nothing changed"
    assert (await change(world, webhook["id"], {})).json() == first.json()
    moved = await change(world, webhook["id"], {"url": "https://example.org/", "enabled": False})
    assert (moved.json()["url"], moved.json()["enabled"], moved.json()["revision"]) == (
        "https://example.org/",
        False,
        3,
    )
    assert await told(world, "change_webhook") == [
        {"changed": ["description", "events"]},
        {"host": "example.org", "changed": ["enabled", "url"]},
    ]


async def test_why_a_webhook_was_disabled_is_shown_until_it_is_enabled(world: World) -> None:
    webhook_id = (await create(world))["id"]
    await world.execute("UPDATE webhooks SET enabled = false, disabled_reason = 'Gone.' WHERE id = %s", webhook_id)
    assert (await change(world, webhook_id, {"description": "x"})).json()["disabled_reason"] == "Gone."
    enabled = (await change(world, webhook_id, {"enabled": True})).json()
    assert (enabled["enabled"], enabled["disabled_reason"]) == (True, None)


async def test_a_webhook_whose_address_is_not_allowed_any_more_can_be_disabled(world: World) -> None:
    webhook_id = (await create(world))["id"]
    await world.execute("UPDATE webhooks SET url = 'http://127.0.0.1/' WHERE id = %s", webhook_id)
    disabled = await change(world, webhook_id, {"url": "http://127.0.0.1/", "enabled": False})
    assert (disabled.status_code, disabled.json()["enabled"]) == (200, False)
    assert error_of(await change(world, webhook_id, {"url": "http://127.0.0.2/"})) == (400, "invalid_request")


async def test_preconditions(world: World) -> None:
    webhook_id = (await create(world))["id"]
    stale = {"If-Match": '"1"'}
    assert (await change(world, webhook_id, {"description": "x"}, stale)).status_code == 200
    assert error_of(await change(world, webhook_id, {"description": "y"}, stale)) == (412, "precondition_failed")
    rotating = await world.post(f"/v1/webhooks/{webhook_id}/rotate-secret", {}, headers=stale)
    assert error_of(rotating) == (412, "precondition_failed")
    assert error_of(await delete(world, webhook_id, stale)) == (412, "precondition_failed")
    assert (await world.get(f"/v1/webhooks/{webhook_id}", headers={"If-None-Match": '"2"'})).status_code == 304
    assert (await delete(world, webhook_id, {"If-Match": '"2"'})).status_code == 204


async def test_delete(world: World) -> None:
    webhook_id = (await create(world))["id"]
    delivery_id = (await world.post(f"/v1/webhooks/{webhook_id}/test", None)).json()["id"]
    key = {"Idempotency-Key": str(uuid4())}
    answer = await delete(world, webhook_id, key)
    assert (answer.status_code, answer.content) == (204, b"")
    assert error_of(await delete(world, webhook_id, key)) == (404, "not_found")
    for path in ("", "/deliveries"):
        assert error_of(await world.get(f"/v1/webhooks/{webhook_id}{path}")) == (404, "not_found")
    again = await world.post(f"/v1/webhooks/{webhook_id}/deliveries/{delivery_id}/redeliver", None)
    assert error_of(again) == (404, "not_found")
    assert len(await told(world, "delete_webhook")) == 1


@pytest.mark.parametrize(
    "body",
    [{"overlap_seconds": -1}, {"overlap_seconds": 604801}, {"overlap_seconds": 1.5}, {"overlap_seconds": "1"}, []],
    ids=str,
)
async def test_overlaps_that_are_refused(world: World, body: object) -> None:
    webhook_id = (await create(world))["id"]
    answer = await world.post(f"/v1/webhooks/{webhook_id}/rotate-secret", body)
    assert error_of(answer) == (400, "invalid_request")


@pytest.mark.parametrize(("body", "seconds"), [({}, 86400), ({"overlap_seconds": 604800}, 604800)], ids=str)
async def test_rotate(world: World, body: dict[str, Any], seconds: int) -> None:
    webhook = await create(world)
    assert webhook["previous_secret_expires_at"] is None
    rotated = (await world.post(f"/v1/webhooks/{webhook['id']}/rotate-secret", body)).json()
    life = datetime.fromisoformat(rotated["previous_secret_expires_at"]) - datetime.now(UTC)
    assert timedelta(seconds=seconds - 60) < life <= timedelta(seconds=seconds)
    assert rotated["revision"] == 2
    at_once = (await world.post(f"/v1/webhooks/{webhook['id']}/rotate-secret", {"overlap_seconds": 0})).json()
    assert at_once["previous_secret_expires_at"] is None
    rows = await world.fetch("SELECT previous_secret FROM webhooks WHERE id = %s", webhook["id"])
    assert rows == [(None,)]


async def test_deliveries_are_listed_by_state_newest_first(world: World) -> None:
    webhook_id = (await create(world))["id"]
    path = f"/v1/webhooks/{webhook_id}/deliveries"
    ids = [(await world.post(f"/v1/webhooks/{webhook_id}/test", None)).json()["id"] for _ in range(3)]
    await world.execute("UPDATE webhook_deliveries SET state = 'failed', last_error = 'x' WHERE id = %s", ids[1])
    listed = (await world.get(path)).json()["items"]
    assert [item["id"] for item in listed] == ids[::-1]
    assert listed[0] == {
        "id": ids[2],
        "webhook_id": webhook_id,
        "event": "webhook.test",
        "run_id": None,
        "state": "pending",
        "attempts": 0,
        "next_attempt_at": listed[0]["next_attempt_at"],
        "last_status": None,
        "last_error": None,
        "duration_ms": None,
        "created_at": listed[0]["created_at"],
        "delivered_at": None,
    }
    pending = (await world.get(f"{path}?state=pending&limit=1")).json()
    assert [item["id"] for item in pending["items"]] == [ids[2]]
    rest = (await world.get(f"{path}?state=pending&limit=1&after={pending['next_cursor']}")).json()
    assert ([item["id"] for item in rest["items"]], rest["next_cursor"]) == ([ids[0]], None)
    assert [item["id"] for item in (await world.get(f"{path}?state=failed&order=asc")).json()["items"]] == [ids[1]]
    assert (await world.get(f"{path}?state=delivered")).json()["items"] == []
    assert error_of(await world.get(f"{path}?state=lost")) == (400, "invalid_request")


async def test_redeliver_begins_the_schedule_again(world: World) -> None:
    webhook_id = (await create(world))["id"]
    delivery_id = (await world.post(f"/v1/webhooks/{webhook_id}/test", None)).json()["id"]
    await world.execute(
        "UPDATE webhook_deliveries SET state = 'failed', attempts = 10, last_error = 'x' WHERE id = %s", delivery_id
    )
    path = f"/v1/webhooks/{webhook_id}/deliveries/{delivery_id}/redeliver"
    again = (await world.post(path, None)).json()
    assert (again["id"], again["state"], again["attempts"]) == (delivery_id, "pending", 10)
    rows = await world.fetch("SELECT attempts_before, sending FROM webhook_deliveries WHERE id = %s", delivery_id)
    assert rows == [(10, False)]
    assert await told(world, "redeliver_webhook") == [{"delivery_id": delivery_id}]


async def test_redeliver_waits_for_an_attempt_that_is_under_way(world: World) -> None:
    webhook_id = (await create(world))["id"]
    delivery_id = (await world.post(f"/v1/webhooks/{webhook_id}/test", None)).json()["id"]
    lease = "now() + interval '1 hour'"
    await world.execute(f"UPDATE webhook_deliveries SET sending = true, next_attempt_at = {lease}")
    again = (await world.post(f"/v1/webhooks/{webhook_id}/deliveries/{delivery_id}/redeliver", None)).json()
    assert datetime.fromisoformat(again["next_attempt_at"]) > datetime.now(UTC) + timedelta(minutes=50)


async def test_disabled_webhook_receives_nothing(world: World) -> None:
    webhook_id = (await create(world))["id"]
    delivery_id = (await world.post(f"/v1/webhooks/{webhook_id}/test", None)).json()["id"]
    await change(world, webhook_id, {"enabled": False})
    assert error_of(await world.post(f"/v1/webhooks/{webhook_id}/test", None)) == (409, "conflict")
    path = f"/v1/webhooks/{webhook_id}/deliveries/{delivery_id}/redeliver"
    assert error_of(await world.post(path, None)) == (409, "conflict")
    await change(world, webhook_id, {"enabled": True})
    assert (await world.post(path, None)).status_code == 200


async def test_a_delivery_is_seen_by_its_own_webhook_only(world: World) -> None:
    one, other = (await create(world))["id"], (await create(world))["id"]
    delivery_id = (await world.post(f"/v1/webhooks/{one}/test", None)).json()["id"]
    crossed = await world.post(f"/v1/webhooks/{other}/deliveries/{delivery_id}/redeliver", None)
    assert error_of(crossed) == (404, "not_found")
    assert (await world.get(f"/v1/webhooks/{other}/deliveries")).json()["items"] == []


async def test_cancelled_run_is_queued_for_its_subscribers(world: World) -> None:
    wants, does_not, off = [
        (await create(world, events=[event]))["id"] for event in ("run.cancelled", "run.failed", "run.cancelled")
    ]
    await change(world, off, {"enabled": False})
    session_id = await world.new_session()
    run_id = (await world.submit(session_id)).json()["run_id"]
    await world.post(f"/v1/runs/{run_id}/cancel", None)
    await world.post(f"/v1/runs/{run_id}/cancel", None)
    rows = await world.fetch(
        "SELECT d.webhook_id::text, d.event, d.run_id::text, convert_from(d.payload, 'UTF8')::jsonb"
        " FROM webhook_deliveries d WHERE d.webhook_id = ANY(%s::uuid[])",
        [wants, does_not, off],
    )
    ((webhook_id, event, told_run_id, payload),) = rows
    assert (webhook_id, event, told_run_id) == (wants, "run.cancelled", run_id)
    assert payload["type"] == "run.cancelled"
    data = payload["data"]
    assert (data["run_id"], data["session_id"], data["state"]) == (run_id, session_id, "cancelled")
    assert data["workspace_id"] == str(world.workspace_id)
    run = (await world.get(f"/v1/runs/{run_id}")).json()
    shared = ("failure", "steps", "usage", "created_at", "started_at", "finished_at")
    assert {name: data[name] for name in shared} == {name: run[name] for name in shared}


# --- with settings of its own ---


@pytest.fixture
async def narrow(database_url: str, tmp_path: Path) -> AsyncIterator[World]:
    with serving(database_url, tmp_path, WEBHOOK_PER_WORKSPACE=3) as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=30) as http:
            yield await World.create(database_url, http)


@pytest.mark.long
async def test_number_of_webhooks_is_limited(narrow: World) -> None:
    body = {"url": URL, "events": ["run.failed"]}
    answers = await asyncio.gather(*(narrow.post("/v1/webhooks", body) for _ in range(8)))
    assert sorted(answer.status_code for answer in answers) == [201] * 3 + [409] * 5
    assert {error_of(answer) for answer in answers if answer.status_code == 409} == {(409, "conflict")}
    other = await World.create(narrow.database_url, narrow.http)
    assert (await other.post("/v1/webhooks", body)).status_code == 201
    await delete(narrow, next(answer.json()["id"] for answer in answers if answer.status_code == 201))
    assert (await narrow.post("/v1/webhooks", body)).status_code == 201


async def test_without_a_usable_encryption_key_nothing_is_created(database_url: str, tmp_path: Path) -> None:
    with serving(database_url, tmp_path, ENCRYPTION_KEYS="c2hvcnQ=") as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=30) as http:
            world = await World.create(database_url, http)
            answer = await world.post("/v1/webhooks", {"url": URL, "events": ["run.failed"]})
            assert error_of(answer) == (503, "internal")
            assert "encrypted" in answer.json()["error"]["message"]
            assert (await world.get("/v1/webhooks")).json()["items"] == []
        log = server.log.read_text()
    assert "QUARTERDECK_ENCRYPTION_KEYS must contain base64-encoded keys of 32 bytes" in log
    assert "c2hvcnQ=" not in log
