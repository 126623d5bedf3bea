"""The operations that make the three usable: sessions, tokens, skills, keys."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from quarterdeck.api_keys import service as api_keys
from quarterdeck.api_keys.model import ApiKeyBody, CreateApiKeyBody
from quarterdeck.core.actors import Permission
from quarterdeck.people import members
from quarterdeck.workspaces import service as workspaces
from tests.workers import held_up
from tests.world import World, error_of


def in_hours(hours: float) -> str:
    return (datetime.now(UTC) + timedelta(hours=hours)).isoformat()


async def test_create_session(world: World) -> None:
    plain, titled = await world.post("/v1/sessions", {}), await world.post("/v1/sessions", {"title": "Plan"})
    assert (plain.status_code, titled.status_code) == (201, 201)
    assert plain.json()["title"] is None
    assert titled.json()["title"] == "Plan"
    UUID(plain.json()["id"])


@pytest.mark.parametrize(
    "title", ["", "x" * 201, "two\nlines", "line\n", "\n", "\u0085", "\u009b31m", "\u2028", "\u202e", "nul\x00", 5]
)
async def test_bad_title_is_400(world: World, title: object) -> None:
    assert error_of(await world.post("/v1/sessions", {"title": title})) == (400, "invalid_request")


async def test_create_token(world: World) -> None:
    session_id = await world.new_session()
    answer = await world.post(f"/v1/sessions/{session_id}/tokens", {})
    body = answer.json()
    assert answer.status_code == 201
    assert body["token"].startswith("qds_")
    assert body["session_id"] == session_id
    life = datetime.fromisoformat(body["expires_at"]) - datetime.now(UTC)
    assert timedelta(hours=23.9) < life <= timedelta(hours=24)


@pytest.mark.parametrize(("hours", "status"), [(1, 201), (24 * 29.9, 201), (24 * 30.1, 400), (-1, 400), (0, 400)])
async def test_life_of_a_token(world: World, hours: float, status: int) -> None:
    session_id = await world.new_session()
    answer = await world.post(f"/v1/sessions/{session_id}/tokens", {"expires_at": in_hours(hours)})
    assert answer.status_code == status


async def test_a_token_does_not_outlive_the_key_that_makes_it(world: World) -> None:
    session_id = await world.new_session()
    key = await world.new_key(Permission.SESSION_MANAGE, expires_at=datetime.now(UTC) + timedelta(hours=2))
    path = f"/v1/sessions/{session_id}/tokens"
    by_default = datetime.fromisoformat((await world.post(path, {}, key=key)).json()["expires_at"])
    assert by_default <= datetime.now(UTC) + timedelta(hours=2)
    assert error_of(await world.post(path, {"expires_at": in_hours(3)}, key=key)) == (403, "forbidden")
    assert (await world.post(path, {"expires_at": in_hours(1)}, key=key)).status_code == 201


async def test_create_skill(world: World) -> None:
    answer = await world.post("/v1/skills", {"name": "Report writer"})
    assert answer.status_code == 201
    assert answer.json()["name"] == "Report writer"
    assert error_of(await world.post("/v1/skills", {})) == (400, "invalid_request")


async def test_create_api_key(world: World) -> None:
    wanted = {"label": "ci", "permissions": ["skill.manage", "workspace.read", "skill.manage"]}
    answer = await world.post("/v1/api-keys", wanted)
    body = answer.json()
    assert answer.status_code == 201
    assert body["permissions"] == ["workspace.read", "skill.manage"]
    assert body["secret"].startswith(body["prefix"])
    assert (await world.list_keys(key=body["secret"])).status_code == 200
    listed = {item["id"]: item for item in (await world.list_keys()).json()["items"]}
    assert listed[body["id"]].keys() == body.keys() - {"secret"}


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"label": "x"},
        {"permissions": []},
        {"label": "", "permissions": []},
        {"label": "x", "permissions": ["everything"]},
        {"label": "x", "permissions": "workspace.read"},
        {"label": "x", "permissions": [], "expires_at": "tomorrow"},
        {"label": "x", "permissions": [], "expires_at": "2030-01-01T00:00:00"},
        {"label": "x", "permissions": [], "expires_at": "2020-01-01T00:00:00Z"},
        {"label": "x", "permissions": [], "expires_at": "9999-12-31T23:59:59-00:01"},
    ],
)
async def test_bad_key_request_is_400(world: World, body: dict[str, Any]) -> None:
    assert error_of(await world.post("/v1/api-keys", body)) == (400, "invalid_request")


async def test_a_key_gives_no_more_than_it_has(world: World) -> None:
    until = datetime.now(UTC) + timedelta(days=1)
    narrow = await world.new_key(Permission.KEY_MANAGE, Permission.WORKSPACE_READ, expires_at=until)

    async def asked(permissions: list[str], expires_at: str | None) -> int:
        body = {"label": "x", "permissions": permissions, "expires_at": expires_at}
        return (await world.post("/v1/api-keys", body, key=narrow)).status_code

    assert await asked(["workspace.read"], in_hours(23)) == 201
    assert await asked(["workspace.read"], until.isoformat()) == 201
    assert await asked(["session.manage"], in_hours(23)) == 403
    assert await asked(["workspace.read"], in_hours(25)) == 403
    assert await asked(["workspace.read"], None) == 403
    ((count,),) = await world.fetch("SELECT count(*) FROM api_keys WHERE label = 'x' AND workspace_id = %s",
                                    world.workspace_id)  # fmt: skip
    assert count == 2


async def test_revoke_ends_a_key_at_once_and_again_is_no_error(world: World) -> None:
    created = (await world.post("/v1/api-keys", {"label": "x", "permissions": ["workspace.read"]})).json()
    assert (await world.list_keys(key=created["secret"])).status_code == 200
    path = f"/v1/api-keys/{created['id']}/revoke"
    first, second = await world.post(path, None), await world.post(path, None)
    assert (first.status_code, second.status_code) == (200, 200)
    assert first.json()["revoked_at"] == second.json()["revoked_at"] is not None
    assert error_of(await world.list_keys(key=created["secret"])) == (401, "unauthorized")
    assert error_of(await world.post(f"/v1/api-keys/{uuid4()}/revoke", None)) == (404, "not_found")


async def test_revoke_needs_no_body(world: World) -> None:
    created = (await world.post("/v1/api-keys", {"label": "x", "permissions": []})).json()
    answer = await world.http.post(f"/v1/api-keys/{created['id']}/revoke", headers=world.headers())
    assert answer.status_code == 200


CREATES: list[tuple[str, dict[str, Any], dict[str, Any], str | None]] = [
    ("/v1/sessions", {"title": "a"}, {"title": "b"}, None),
    ("/v1/skills", {"name": "a"}, {"name": "b"}, None),
    ("/v1/api-keys", {"label": "a", "permissions": []}, {"label": "b", "permissions": []}, "secret"),
    ("/v1/sessions/{session}/tokens", {}, {"expires_at": in_hours(5)}, "token"),
]


@pytest.mark.parametrize(("path", "body", "other_body", "shown_once"), CREATES, ids=[case[0] for case in CREATES])
async def test_every_create_keeps_a_receipt(
    world: World, path: str, body: dict[str, Any], other_body: dict[str, Any], shown_once: str | None
) -> None:
    path = path.format(session=await world.new_session())
    key = {"Idempotency-Key": "k"}
    answers = await asyncio.gather(*(world.post(path, body, headers=key) for _ in range(20)))
    assert {answer.status_code for answer in answers} == {201}
    first = [answer for answer in answers if "idempotency-replayed" not in answer.headers]
    replays = [answer for answer in answers if "idempotency-replayed" in answer.headers]
    assert len(first) == 1
    assert len({answer.content for answer in replays}) == 1
    expected = first[0].json()
    if shown_once is not None:
        assert expected.pop(shown_once)
    assert replays[0].json() == expected
    assert error_of(await world.post(path, other_body, headers=key)) == (409, "conflict")


async def test_one_key_may_serve_two_operations(world: World) -> None:
    key = {"Idempotency-Key": "k"}
    assert (await world.post("/v1/sessions", {}, headers=key)).status_code == 201
    assert (await world.post("/v1/skills", {"name": "x"}, headers=key)).status_code == 201


async def test_no_secret_is_in_the_receipts(world: World) -> None:
    session_id, key = await world.new_session(), {"Idempotency-Key": "k"}
    api_key = (await world.post("/v1/api-keys", {"label": "a", "permissions": []}, headers=key)).json()["secret"]
    token = (await world.post(f"/v1/sessions/{session_id}/tokens", {}, headers=key)).json()["token"]
    receipts = b"".join(row[0] for row in await world.fetch("SELECT body FROM receipts"))
    for secret in (api_key, token):
        assert secret.encode() not in receipts
        assert secret[-46:].encode() not in receipts


async def test_a_key_that_is_revoked_while_it_makes_another_makes_none(world: World) -> None:
    """The revocation waits for a request under way, or the request for the revocation; nothing slips between."""
    maker, maker_id = await world.new_key_record((Permission.KEY_MANAGE,))
    body = {"label": "slipped", "permissions": []}
    async with await world.connect() as revoking:
        async with revoking.transaction():
            await revoking.execute("SELECT pg_advisory_xact_lock(credential_lock(%s))", (maker_id,))
            await revoking.execute("UPDATE api_keys SET revoked_at = now() WHERE id = %s", (maker_id,))
            making = asyncio.create_task(world.post("/v1/api-keys", body, key=maker))
            await held_up(world)
            assert not making.done()
        assert error_of(await making) == (401, "unauthorized")
    assert await world.fetch("SELECT FROM api_keys WHERE label = 'slipped'") == []


async def test_removing_a_person_ends_also_the_key_being_made(world: World) -> None:
    email = f"{uuid4().hex}@example.com"
    async with await world.connect() as connection:
        user_id = await members.add_by_operator(connection, world.workspace_id, email)
        body = CreateApiKeyBody("theirs", [Permission.KEY_MANAGE])
        await workspaces.create_key(connection, "test", world.workspace_id, body, email)
    async with await world.connect() as making:
        async with making.transaction():
            await making.execute("SELECT FROM api_keys WHERE created_by = %s FOR SHARE", (user_id,))
            removing = asyncio.create_task(_remove(world, email))
            await held_up(world)
            assert not removing.done()
            await api_keys.issue_api_key(making, "test", world.workspace_id, user_id, body)
        assert len(await removing) == 2
    alive = await world.fetch("SELECT FROM api_keys WHERE created_by = %s AND revoked_at IS NULL", user_id)
    assert alive == []


async def _remove(world: World, email: str) -> list[ApiKeyBody]:
    async with await world.connect() as connection:
        return await members.remove_by_operator(connection, world.workspace_id, email)
