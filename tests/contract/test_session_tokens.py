"""Listing and revoking the tokens of a session."""

from uuid import uuid4

from tests.world import World, error_of


async def test_tokens_are_listed_without_their_secrets(world: World) -> None:
    session_id = await world.new_session()
    created = [(await world.post(f"/v1/sessions/{session_id}/tokens", {})).json() for _ in range(3)]
    other = await world.new_session()
    await world.new_token(other)
    page = (await world.get(f"/v1/sessions/{session_id}/tokens?limit=2")).json()
    assert [item["id"] for item in page["items"]] == [created[2]["id"], created[1]["id"]]
    assert page["items"][0] == {name: value for name, value in created[2].items() if name != "token"}
    rest = (await world.get(f"/v1/sessions/{session_id}/tokens?limit=2&after={page['next_cursor']}")).json()
    assert [item["id"] for item in rest["items"]] == [created[0]["id"]]
    assert rest["next_cursor"] is None
    foreign = (await world.get(f"/v1/sessions/{other}/tokens")).json()["items"][0]["id"]
    bad = await world.get(f"/v1/sessions/{session_id}/tokens?after={foreign}")
    assert error_of(bad) == (400, "invalid_request")


async def test_a_revoked_token_ends_at_once_and_stays_listed(world: World) -> None:
    session_id = await world.new_session()
    kept, gone = [(await world.post(f"/v1/sessions/{session_id}/tokens", {})).json() for _ in range(2)]
    assert (await world.submit(session_id, key=gone["token"])).status_code == 200
    path = f"/v1/sessions/{session_id}/tokens/{gone['id']}/revoke"
    first, second = await world.post(path, None), await world.post(path, None)
    assert (first.status_code, second.status_code) == (200, 200)
    assert first.json()["revoked_at"] == second.json()["revoked_at"] is not None
    assert error_of(await world.submit(session_id, key=gone["token"])) == (401, "unauthorized")
    assert (await world.submit(session_id, key=kept["token"])).status_code == 200
    listed = {item["id"]: item for item in (await world.get(f"/v1/sessions/{session_id}/tokens")).json()["items"]}
    assert listed[gone["id"]]["revoked_at"] == first.json()["revoked_at"]
    assert listed[kept["id"]]["revoked_at"] is None


async def test_a_token_has_a_label_and_may_resolve(world: World) -> None:
    session_id = await world.new_session()
    path = f"/v1/sessions/{session_id}/tokens"
    plain = (await world.post(path, {})).json()
    assert (plain["label"], plain["may_resolve"]) == (None, False)
    created = (await world.post(path, {"label": "support widget", "may_resolve": True})).json()
    listed = (await world.get(path)).json()["items"][0]
    assert listed == {name: value for name, value in created.items() if name != "token"}
    assert (listed["label"], listed["may_resolve"]) == ("support widget", True)
    entry = (await world.get("/v1/audit-events?limit=1")).json()["items"][0]
    assert entry["detail"] == {
        "session_id": session_id,
        "prefix": created["prefix"],
        "label": "support widget",
        "may_resolve": True,
    }
    whoami = (await world.get("/v1/whoami", key=created["token"])).json()
    assert (whoami["label"], whoami["may_resolve"]) == ("support widget", True)
    for bad in ({"label": "two\nlines"}, {"label": "x" * 201}, {"may_resolve": "yes"}, {"may_resolve": None}):
        assert error_of(await world.post(path, bad)) == (400, "invalid_request"), bad
    # It gains nothing else.
    for refused in (await world.get(path, key=created["token"]), await world.post(path, {}, key=created["token"])):
        assert error_of(refused) == (404, "not_found")


async def test_a_token_is_found_by_its_own_session_only(world: World) -> None:
    session_id, other = await world.new_session(), await world.new_session()
    token = (await world.post(f"/v1/sessions/{session_id}/tokens", {})).json()
    wrong = await world.post(f"/v1/sessions/{other}/tokens/{token['id']}/revoke", None)
    absent = await world.post(f"/v1/sessions/{other}/tokens/{uuid4()}/revoke", None)
    assert error_of(wrong) == (404, "not_found")
    assert wrong.content == absent.content
    assert (await world.submit(session_id, key=token["token"])).status_code == 200
