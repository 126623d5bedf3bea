"""Reading, listing, changing, archiving and deleting sessions."""

import asyncio
from datetime import datetime
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import pytest

from tests.contract.test_session_events import add_events
from tests.sse import reading
from tests.waiting_runs import approval, new_actions, wait_for
from tests.workers import at_rest, eventually, held_up, log_of, started, working
from tests.world import Server, World, bundle, error_of


async def created(world: World, **asked: Any) -> dict[str, Any]:
    answer = await world.post("/v1/sessions", asked)
    assert answer.status_code == 201, answer.text
    session: dict[str, Any] = answer.json()
    return session


def summary(session: dict[str, Any]) -> dict[str, Any]:
    """As it is listed while nothing goes on in it."""
    of_one = (
        "instructions",
        "tool_policy",
        "client_tools",
        "limits",
        "sandbox",
        "mcp_servers",
        "output_schema",
        "fallback_models",
        "usage",
    )
    shown = {name: value for name, value in session.items() if name not in of_one}
    return shown | {"active_run": None, "last_run": None, "last_activity_at": session["created_at"]}


async def walk(world: World, query: str = "") -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    after = ""
    while True:
        page = (await world.get(f"/v1/sessions?limit=3{query}{after}")).json()
        items += page["items"]
        if page["next_cursor"] is None:
            return items
        after = f"&after={page['next_cursor']}"


# --- reading ---


async def test_created_session_can_be_read(world: World) -> None:
    skill_id = await world.new_skill()
    await world.push(skill_id, bundle())
    skills = [{"skill_id": skill_id, "version": 1}]
    session = await created(world, title="Plan", model="demo", instructions="Be brief.", skills=skills)
    answer = await world.get(f"/v1/sessions/{session['id']}")
    assert answer.json() == session
    assert session["skills"] == skills
    assert session["revision"] == 1
    assert session["archived_at"] is None
    assert answer.headers["etag"] == '"1"'
    by_token = await world.get(f"/v1/sessions/{session['id']}", key=await world.new_token(session["id"]))
    assert by_token.json() == session | {"created_by": session["created_by"] | {"primary_email": None}}


async def test_matching_etag_gets_304(world: World) -> None:
    session = await created(world)
    path = f"/v1/sessions/{session['id']}"
    for tags in ('"1"', 'W/"1"', '"7", "1"', "*"):
        answer = await world.get(path, headers={"If-None-Match": tags})
        assert (answer.status_code, answer.content, answer.headers["etag"]) == (304, b"", '"1"'), tags
    for tags in ('"2"', "1", "nonsense"):
        assert (await world.get(path, headers={"If-None-Match": tags})).json() == session


async def test_lists(world: World) -> None:
    sessions = [await created(world, title=str(number), instructions="x") for number in range(7)]
    assert await walk(world) == [summary(session) for session in reversed(sessions)]
    assert await walk(world, "&order=asc") == [summary(session) for session in sessions]


async def test_paging_continues_after_its_cursor_is_deleted_or_archived(world: World) -> None:
    sessions = [await created(world) for _ in range(6)]
    first = (await world.get("/v1/sessions?limit=2")).json()
    await world.delete(f"/v1/sessions/{first['next_cursor']}")
    second = (await world.get(f"/v1/sessions?limit=2&after={first['next_cursor']}")).json()
    assert [item["id"] for item in second["items"]] == [sessions[3]["id"], sessions[2]["id"]]
    await world.patch(f"/v1/sessions/{second['next_cursor']}", {"archived": True})
    third = (await world.get(f"/v1/sessions?limit=2&after={second['next_cursor']}")).json()
    assert [item["id"] for item in third["items"]] == [sessions[1]["id"], sessions[0]["id"]]


async def test_list_shows_the_state_of_runs(world: World) -> None:
    resting, queued, running, done = [await created(world) for _ in range(4)]
    runs = {one["id"]: (await world.submit(one["id"])).json()["run_id"] for one in (queued, running, done)}
    listed = {item["id"]: item for item in await walk(world)}
    assert listed[resting["id"]]["last_activity_at"] == resting["created_at"]
    ((accepted_at,),) = await world.fetch("SELECT created_at FROM session_events WHERE session_id = %s", queued["id"])
    assert datetime.fromisoformat(listed[queued["id"]]["last_activity_at"]) == accepted_at
    await world.execute("UPDATE runs SET state = 'running' WHERE id = %s", runs[running["id"]])
    await world.post(f"/v1/runs/{runs[done['id']]}/cancel", None)
    expected = {
        resting["id"]: None,
        queued["id"]: {"id": runs[queued["id"]], "state": "queued"},
        running["id"]: {"id": runs[running["id"]], "state": "running"},
        done["id"]: None,
    }
    listed = {item["id"]: item for item in await walk(world)}
    assert {session_id: item["active_run"] for session_id, item in listed.items()} == expected
    expected_last = expected | {done["id"]: {"id": runs[done["id"]], "state": "cancelled"}}
    assert {session_id: item["last_run"] for session_id, item in listed.items()} == expected_last
    assert listed[done["id"]]["last_activity_at"] > listed[running["id"]]["last_activity_at"]
    # The active run counts, and not the newest one, which waits for it. Without an active run the newest one counts.
    await world.submit(done["id"])
    body = {"type": "input", "text": "later", "delivery": "queue"}
    pending = (await world.post(f"/v1/sessions/{done['id']}/events", body)).json()["run_id"]
    newest = {item["id"]: item["last_run"] for item in await walk(world)}[done["id"]]
    assert newest["state"] == "queued"
    assert newest["id"] != pending
    await world.post(f"/v1/runs/{pending}/cancel", None)
    await world.post(f"/v1/runs/{newest['id']}/cancel", None)
    await world.patch(f"/v1/sessions/{queued['id']}", {"archived": True})
    (archived,) = await walk(world, "&archived=true")
    assert archived["active_run"] == expected[queued["id"]]
    assert "active_run" not in (await world.get(f"/v1/sessions/{queued['id']}")).json()


# --- searching ---

LONG, NUL, TWICE = f"search={'x' * 201}", "search=a%00b", "search=a&search=b"
TITLES = (
    "Incident review",
    "INCIDENT 7",
    "100% done",
    "100 percent",
    "a_b",
    "aXb",
    "Äpfel und Öl",
    "a\\slash",
    None,
)


@pytest.mark.parametrize(
    ("search", "found"),
    [
        ("incident", ["Incident review", "INCIDENT 7"]),
        ("DENT R", ["Incident review"]),
        ("%", ["100% done"]),
        ("a_b", ["a_b"]),
        ("äPFEL", ["Äpfel und Öl"]),
        ("\\", ["a\\slash"]),
        ("'", []),
        ("x" * 200, []),
        ("", list(TITLES)),
    ],
)
async def test_search_finds_parts_of_titles(world: World, search: str, found: list[str | None]) -> None:
    for title in TITLES:
        await created(world, title=title)
    query = f"&search={quote(search)}"
    assert [item["title"] for item in await walk(world, f"{query}&order=asc")] == found
    assert [item["title"] for item in await walk(world, query)] == found[::-1]
    assert await walk(world, f"{query}&archived=true") == []


async def test_search_is_paged(world: World) -> None:
    sessions = [await created(world, title=f"{'even' if number % 2 == 0 else 'odd'} {number}") for number in range(16)]
    for session in sessions[:4]:
        await world.patch(f"/v1/sessions/{session['id']}", {"archived": True})
    titles = [item["title"] for item in await walk(world, "&search=even&order=asc")]
    assert titles == ["even 4", "even 6", "even 8", "even 10", "even 12", "even 14"]
    assert [item["title"] for item in await walk(world, "&search=even&archived=true")] == ["even 2", "even 0"]


async def test_a_search_stays_in_the_workspace(world: World) -> None:
    other = await World.create(world.database_url, world.http)
    await created(other, title="Incident")
    assert await walk(world, "&search=incident") == []


@pytest.mark.parametrize(
    "query",
    ["archived=yes", "in=texts", "archived=", "archived=true&archived=true", "after=x", "limit=0", LONG, NUL, TWICE],
)
async def test_bad_queries_are_400(world: World, query: str) -> None:
    assert error_of(await world.get(f"/v1/sessions?{query}")) == (400, "invalid_request")


# --- changing ---


async def test_change_affects_only_named_fields(world: World) -> None:
    session = await created(world, title="Plan", instructions="Be brief.")
    path = f"/v1/sessions/{session['id']}"
    answer = await world.patch(path, {"title": "New plan"})
    assert answer.status_code == 200
    assert answer.json() == session | {"title": "New plan", "revision": 2}
    assert answer.headers["etag"] == '"2"'
    answer = await world.patch(path, {"title": None, "instructions": None, "model": "demo"})
    assert answer.json() == session | {"title": None, "instructions": None, "model": "demo", "revision": 3}
    assert (await world.get(path)).json() == answer.json()


async def test_change_without_effect_is_not_recorded(world: World) -> None:
    session = await created(world, title="Plan")
    path = f"/v1/sessions/{session['id']}"
    changes: list[dict[str, Any]] = [{}, {"title": "Plan"}, {"archived": False}, {"skills": []}]
    for body in changes:
        assert (await world.patch(path, body)).json() == session
    rows = await world.fetch(
        "SELECT FROM audit_events WHERE action = 'change_session' AND object_id = %s", session["id"]
    )
    assert rows == []


@pytest.mark.parametrize(
    "body",
    [
        {"title": "two\nlines"},
        {"title": ""},
        {"model": 5},
        {"instructions": "nul\x00"},
        {"skills": None},
        {"archived": None},
        {"archived": "yes"},
        {"skills": [{"skill_id": "01a1de6a-d930-7a61-89a3-749003ffb322"}]},
        [],
    ],
)
async def test_bad_changes_are_400_and_change_nothing(world: World, body: object) -> None:
    session = await created(world, title="Plan")
    path = f"/v1/sessions/{session['id']}"
    assert error_of(await world.patch(path, body)) == (400, "invalid_request")
    assert (await world.get(path)).json() == session


async def test_skills_are_changed_as_a_whole(world: World) -> None:
    one, two = await world.new_skill(), await world.new_skill()
    await world.push(two, bundle())
    unversioned = [{"skill_id": one, "version": None}]
    refused = await world.post("/v1/sessions", {"skills": unversioned})
    assert error_of(refused) == (400, "invalid_request")
    session = await created(world, skills=[{"skill_id": two, "version": None}])
    path = f"/v1/sessions/{session['id']}"
    assert error_of(await world.patch(path, {"skills": unversioned})) == (400, "invalid_request")
    await world.push(one, bundle())
    wanted = [{"skill_id": two, "version": 1}, {"skill_id": one, "version": None}]
    assert (await world.patch(path, {"skills": wanted})).json()["skills"] == wanted
    twice = [{"skill_id": two}, {"skill_id": two, "version": 1}]
    assert error_of(await world.patch(path, {"skills": twice})) == (400, "invalid_request")
    assert (await world.get(path)).json()["skills"] == wanted


async def test_outdated_etag_is_412(world: World) -> None:
    session = await created(world)
    path = f"/v1/sessions/{session['id']}"
    first = await world.patch(path, {"title": "a"}, headers={"If-Match": '"1"'})
    assert first.status_code == 200
    late = await world.patch(path, {"title": "b"}, headers={"If-Match": '"1"'})
    assert error_of(late) == (412, "precondition_failed")
    assert (await world.get(path)).json()["title"] == "a"
    for tags in ("*", '"9", "2"'):
        assert (await world.patch(path, {}, headers={"If-Match": tags})).status_code == 200
    for tags in ('W/"2"', '"02"', '""'):
        assert error_of(await world.patch(path, {}, headers={"If-Match": tags})) == (412, "precondition_failed")
    for tags in ("2", "", '"2', '"2",', "*, *"):
        assert error_of(await world.patch(path, {}, headers={"If-Match": tags})) == (400, "invalid_request")


async def test_one_of_many_concurrent_changes_wins(world: World) -> None:
    session = await created(world)
    path = f"/v1/sessions/{session['id']}"
    answers = await asyncio.gather(
        *(world.patch(path, {"title": str(n)}, headers={"If-Match": '"1"'}) for n in range(10))
    )
    assert sorted(answer.status_code for answer in answers) == [200] + [412] * 9
    assert (await world.get(path)).json()["revision"] == 2


async def test_a_repeated_change_gets_its_receipt_and_not_412(world: World) -> None:
    session = await created(world)
    path, headers = f"/v1/sessions/{session['id']}", {"If-Match": '"1"', "Idempotency-Key": "k"}
    first = await world.patch(path, {"title": "a"}, headers=headers)
    second = await world.patch(path, {"title": "a"}, headers=headers)
    assert second.content == first.content
    assert second.headers["etag"] == '"2"'
    assert second.headers["idempotency-replayed"] == "true"
    assert error_of(await world.patch(path, {"title": "b"}, headers=headers)) == (409, "conflict")


@pytest.mark.long
async def test_a_change_reaches_the_next_run(world: World, server: Server) -> None:
    session = await created(world)
    with working(server.database_url, server.data_dir):
        await world.submit(session["id"])
        await at_rest(world, session["id"])
        # The worker has no provider.
        await world.patch(f"/v1/sessions/{session['id']}", {"model": "openai:x"})
        run_id = (await world.submit(session["id"])).json()["run_id"]
        await at_rest(world, session["id"])
    states = {
        run["id"]: run["state"] for run in (await world.get(f"/v1/sessions/{session['id']}/runs")).json()["items"]
    }
    assert states.pop(run_id) == "failed"
    assert list(states.values()) == ["succeeded"]


# --- archiving ---


async def test_an_archived_session_refuses_input_and_still_reads(world: World) -> None:
    session = await created(world)
    session_id, path = session["id"], f"/v1/sessions/{session['id']}"
    token = await world.new_token(session_id)
    assert (await world.submit(session_id, "before", idempotency_key="k")).status_code == 200
    archived = (await world.patch(path, {"archived": True})).json()
    assert archived["archived_at"] is not None
    for key in (world.key, token):
        answer = await world.submit(session_id, key=key)
        assert error_of(answer) == (409, "conflict")
        assert "retry-after" not in answer.headers
        assert (await world.get(path, key=key)).json()["archived_at"] == archived["archived_at"]
        assert len((await world.get(f"{path}/events", key=key)).json()["items"]) == 1
    # What was answered before is answered again; what was another request is a conflict of the key.
    assert (await world.submit(session_id, "before", idempotency_key="k")).status_code == 200
    assert (await world.patch(path, {"archived": True})).json() == archived
    assert (await world.patch(path, {"archived": False})).json()["archived_at"] is None
    assert (await world.submit(session_id)).json()["outcome"] == "steered"


async def test_archived_sessions_have_a_list_of_their_own(world: World) -> None:
    sessions = [await created(world) for _ in range(8)]
    for session in sessions[::2]:
        await world.patch(f"/v1/sessions/{session['id']}", {"archived": True})
    assert [item["id"] for item in await walk(world)] == [session["id"] for session in sessions[1::2]][::-1]
    assert [item["id"] for item in await walk(world, "&archived=false&order=asc")] == [s["id"] for s in sessions[1::2]]
    assert [item["id"] for item in await walk(world, "&archived=true")] == [s["id"] for s in sessions[::2]][::-1]


async def test_inputs_race_with_archiving(world: World) -> None:
    """Each is accepted or refused, and what was accepted is in the log."""
    session = await created(world)
    path = f"/v1/sessions/{session['id']}"
    inputs = [asyncio.create_task(world.submit(session["id"], str(n))) for n in range(40)]
    await asyncio.sleep(0.01)
    await world.patch(path, {"archived": True})
    answers = await asyncio.gather(*inputs)
    assert {answer.status_code for answer in answers} <= {200, 409}
    accepted = [str(n) for n, answer in enumerate(answers) if answer.status_code == 200]
    entries = (await world.get(f"{path}/events?limit=200")).json()["items"]
    assert sorted(entry["data"]["text"] for entry in entries) == sorted(accepted)
    assert error_of(await world.submit(session["id"])) == (409, "conflict")


# --- deleting ---


async def rows_of(world: World, session_id: str) -> int:
    ((count,),) = await world.fetch(
        "SELECT (SELECT count(*) FROM sessions WHERE id = %s) + (SELECT count(*) FROM runs WHERE session_id = %s)"
        " + (SELECT count(*) FROM session_events WHERE session_id = %s)"
        " + (SELECT count(*) FROM conversation_words WHERE session_id = %s)"
        " + (SELECT count(*) FROM session_tokens WHERE session_id = %s)"
        " + (SELECT count(*) FROM session_skills WHERE session_id = %s)"
        " + (SELECT count(*) FROM receipts WHERE scope_id = %s)"
        " + (SELECT count(*) FROM actions WHERE session_id = %s)",
        *[session_id] * 8,
    )
    return int(count)


@pytest.mark.long
async def test_deleted_session_is_deleted_with_its_data(world: World, server: Server) -> None:
    skill_id = await world.new_skill()
    await world.push(skill_id, bundle())
    session = await created(world, skills=[{"skill_id": skill_id}])
    session_id, path = session["id"], f"/v1/sessions/{session['id']}"
    token = await world.new_token(session_id)
    run_id = (await world.submit(session_id, key=token, idempotency_key="k")).json()["run_id"]
    await wait_for(world, run_id)
    await new_actions(world, session_id, run_id, [approval()] * 101)
    await add_events(world, session_id, 7)
    answer = await world.delete(path)
    assert (answer.status_code, answer.content) == (204, b"")
    assert "content-type" not in answer.headers
    gone = [
        await world.get(path),
        await world.get(f"{path}/events"),
        await world.get(f"{path}/runs"),
        await world.get(f"{path}/tokens"),
        await world.get(f"/v1/runs/{run_id}"),
        await world.submit(session_id),
        await world.post(f"{path}/tokens", {}),
        await world.patch(path, {}),
        await world.delete(path),
    ]
    assert [error_of(answer) for answer in gone] == [(404, "not_found")] * len(gone)
    assert error_of(await world.submit(session_id, key=token)) == (401, "unauthorized")
    assert await walk(world) == []
    with working(server.database_url, server.data_dir):

        async def nothing_left() -> bool:
            return await rows_of(world, session_id) == 0

        await eventually(nothing_left)
    assert await world.fetch("SELECT FROM deleted_sessions WHERE session_id = %s", session_id) == []


async def test_a_deletion_heeds_if_match(world: World) -> None:
    session = await created(world)
    path = f"/v1/sessions/{session['id']}"
    await world.patch(path, {"title": "x"})
    assert error_of(await world.delete(path, headers={"If-Match": '"1"'})) == (412, "precondition_failed")
    assert (await world.delete(path, headers={"If-Match": '"2"'})).status_code == 204


async def test_a_deletion_takes_no_idempotency_key(world: World) -> None:
    again = {"Idempotency-Key": "k"}
    one, other = (await created(world))["id"], (await created(world))["id"]
    assert (await world.delete(f"/v1/sessions/{one}", headers=again)).status_code == 204
    assert error_of(await world.delete(f"/v1/sessions/{one}", headers=again)) == (404, "not_found")
    assert (await world.delete(f"/v1/sessions/{other}", headers=again)).status_code == 204


async def test_a_cancellation_that_waited_for_a_deletion_is_404(world: World) -> None:
    session_id = (await created(world))["id"]
    run_id = (await world.submit(session_id)).json()["run_id"]
    async with await world.connect() as holder, holder.transaction():
        await holder.execute("SELECT pg_advisory_xact_lock(session_lock(%s))", (session_id,))
        deleting = asyncio.create_task(world.delete(f"/v1/sessions/{session_id}"))
        await held_up(world)
        cancelling = asyncio.create_task(world.post(f"/v1/runs/{run_id}/cancel", None))
        await held_up(world, 2)
    assert (await deleting).status_code == 204
    assert error_of(await cancelling) == (404, "not_found")


@pytest.mark.long
async def test_a_running_run_ends_with_its_session(world: World, server: Server) -> None:
    deleted, other = (await created(world))["id"], (await created(world))["id"]
    with working(server.database_url, server.data_dir):
        await world.submit(deleted, "demo: slow 60")
        await started(world, deleted)
        assert (await world.delete(f"/v1/sessions/{deleted}")).status_code == 204

        async def no_job() -> bool:
            query = "SELECT FROM run_jobs WHERE session_id = %s"
            return not await world.fetch(query, deleted)

        await eventually(no_job)
        await world.submit(other)
        await at_rest(world, other)
    assert [entry["type"] for entry in await log_of(world, other)][-1] == "run.succeeded"


async def test_readers_of_a_deleted_session_are_ended(world: World, server: Server) -> None:
    session_id = (await created(world))["id"]
    async with reading(server.url, session_id, world.key) as reader:
        await reader.next()
        assert (await world.delete(f"/v1/sessions/{session_id}")).status_code == 204
        assert await reader.ends(10)


@pytest.mark.long
async def test_inputs_and_tokens_race_with_a_deletion(world: World) -> None:
    """Whoever comes too late is told that there is no such session; nobody gets a fault of the server."""
    for _ in range(5):
        session_id = (await created(world))["id"]
        path = f"/v1/sessions/{session_id}"
        racing = [
            asyncio.create_task(sending)
            for _ in range(6)
            for sending in (
                world.submit(session_id),
                world.post(f"{path}/tokens", {}),
                world.patch(path, {"title": str(uuid4())}),
            )
        ]
        racing += [asyncio.create_task(world.delete(path)) for _ in range(2)]
        statuses = [answer.status_code for answer in await asyncio.gather(*racing)]
        assert set(statuses) <= {200, 201, 204, 404}
        assert statuses.count(204) == 1
        assert await world.fetch("SELECT FROM runs WHERE session_id = %s", session_id) == []
