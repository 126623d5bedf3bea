"""POST /v1/sessions/{session_id}/events: every status and rule of the interface."""

import asyncio
import json
from uuid import UUID, uuid4

import pytest

from quarterdeck.core.actors import CredentialKind, Permission
from quarterdeck.core.secrets import mint
from tests.raw_http import exchange
from tests.raw_http import request as raw_request
from tests.world import Server, World, error_of


async def test_first_input_starts_a_run_and_the_next_steers_it(world: World) -> None:
    session_id = await world.new_session()
    first, second = await world.submit(session_id, "one"), await world.submit(session_id, "two")
    assert (first.status_code, first.json()["outcome"]) == (200, "new_run")
    assert (second.status_code, second.json()["outcome"]) == (200, "steered")
    assert first.json()["run_id"] == second.json()["run_id"]
    assert set(first.json()) == {"outcome", "run_id"}
    UUID(first.json()["run_id"])


@pytest.mark.parametrize("ended", ["succeeded", "failed", "cancelled"])
async def test_an_ended_run_is_not_steered(world: World, ended: str) -> None:
    session_id = await world.new_session()
    first = (await world.submit(session_id)).json()
    await world.execute("UPDATE runs SET state = %s WHERE id = %s", ended, first["run_id"])
    second = (await world.submit(session_id)).json()
    assert second["outcome"] == "new_run"
    assert second["run_id"] != first["run_id"]


async def test_a_running_run_is_steered(world: World) -> None:
    session_id = await world.new_session()
    first = (await world.submit(session_id)).json()
    await world.execute("UPDATE runs SET state = 'running' WHERE id = %s", first["run_id"])
    assert (await world.submit(session_id)).json() == {"outcome": "steered", "run_id": first["run_id"]}


async def test_the_input_is_in_the_log_before_the_answer(world: World) -> None:
    session_id = await world.new_session()
    text = 'quote " backslash \\ braces {} comma , null NULL newline \n tab \t emoji 🙂 end'
    run_id = (await world.submit(session_id, text)).json()["run_id"]
    (event,) = await world.fetch(
        "SELECT type, run_id, data FROM session_events WHERE session_id = %s ORDER BY id", session_id
    )
    assert event[0] == "input.accepted"
    assert str(event[1]) == run_id
    assert event[2]["text"] == text
    ((last_input, consumed_through),) = await world.fetch(
        "SELECT last_input, consumed_through FROM runs WHERE id = %s", run_id
    )
    assert consumed_through == last_input - 1, "a new run has exactly its own input to take up"


@pytest.mark.parametrize("text", ["", " ", "{}", "NULL", '"', "\\", "\\x00", "a" * 900_000])
async def test_any_text_is_kept_as_it_is(world: World, text: str) -> None:
    session_id = await world.new_session()
    assert (await world.submit(session_id, text)).status_code == 200
    assert await world.fetch("SELECT data->>'text' FROM session_events WHERE session_id = %s", session_id) == [(text,)]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"{}",
        b'{"type":"input"}',
        b'{"text":"x"}',
        b'{"text":"x","type":"other"}',
        b'{"text":"x","type":"Input"}',
        b'{"text":1,"type":"input"}',
        b'{"text":null,"type":"input"}',
        b'{"text":"x","type":null}',
        b'{"text":"x","type":"input"} x',
        b'{"text":"\\u0000","type":"input"}',
        b'{"text":"\\ud800","type":"input"}',
        b'{"text":"\xff","type":"input"}',
        b"\xef\xbb\xbf" + b'{"text":"x","type":"input"}',
        b'{"text":NaN,"type":"input"}',
        b"[" * 100_000,
        b'{"text":"x","type":"input","more":' + b"[" * 100_000,
    ],
)
async def test_a_malformed_body_is_400_and_stores_nothing(world: World, body: bytes) -> None:
    session_id = await world.new_session()
    answer = await world.http.post(
        f"/v1/sessions/{session_id}/events",
        content=body,
        headers=world.headers() | {"Content-Type": "application/json"},
    )
    assert error_of(answer) == (400, "invalid_request")
    assert await world.fetch("SELECT FROM runs WHERE session_id = %s", session_id) == []


async def test_unknown_fields_are_400(world: World) -> None:
    session_id = await world.new_session()
    body = {"type": "input", "text": "x", "mood": {"deep": [1, 2]}}
    answer = await world.post(f"/v1/sessions/{session_id}/events", body)
    assert error_of(answer) == (400, "invalid_request")
    assert "unknown field `mood`. Known: " in answer.json()["error"]["message"]
    assert await world.fetch("SELECT FROM runs WHERE session_id = %s", session_id) == []


@pytest.mark.parametrize(
    "content_type",
    [None, "text/plain", "application/gzip", "application/json; charset=latin-1", "application/jsonx", ""],
)
async def test_wrong_or_missing_content_type_is_400(world: World, content_type: str | None) -> None:
    session_id = await world.new_session()
    headers = world.headers() | ({} if content_type is None else {"Content-Type": content_type})
    answer = await world.http.post(
        f"/v1/sessions/{session_id}/events", content=b'{"text":"x","type":"input"}', headers=headers
    )
    assert error_of(answer) == (400, "invalid_request")


@pytest.mark.parametrize("content_type", ["application/json", "Application/JSON", 'application/json; charset="UTF-8"'])
async def test_content_type_is_read_as_http_writes_it(world: World, content_type: str) -> None:
    session_id = await world.new_session()
    answer = await world.http.post(
        f"/v1/sessions/{session_id}/events",
        content=b'{"text":"x","type":"input"}',
        headers=world.headers() | {"Content-Type": content_type},
    )
    assert answer.status_code == 200


async def test_content_encoding_is_400(world: World) -> None:
    session_id = await world.new_session()
    answer = await world.post(
        f"/v1/sessions/{session_id}/events", {"type": "input", "text": "x"}, headers={"Content-Encoding": "identity"}
    )
    assert error_of(answer) == (400, "invalid_request")


async def test_a_body_over_the_limit_is_413_after_access_is_checked(world: World, server: Server) -> None:
    """Only the head is sent: a server may close the connection while a client still sends a refused body."""
    session_id = await world.new_session()

    def outcome(session: str, key: str) -> tuple[int, str]:
        lines = (f"Authorization: Bearer {key}", "Content-Type: application/json", "Content-Length: 1100000")
        return exchange(server.port, raw_request("POST", f"/v1/sessions/{session}/events", *lines)).error()

    assert outcome(session_id, world.key) == (413, "invalid_request")
    assert outcome(session_id, await world.new_key(Permission.WORKSPACE_READ)) == (403, "forbidden")
    assert outcome(str(uuid4()), world.key) == (404, "not_found")
    assert outcome(session_id, await world.revoked_key()) == (401, "unauthorized")


async def test_order_of_checks(world: World) -> None:
    """A bad credential wins over everything, a bad path over visibility, visibility over permission and body."""
    session_id, bad_body = await world.new_session(), {"type": "nonsense"}
    reader = await world.new_key(Permission.WORKSPACE_READ)
    revoked = await world.revoked_key()

    async def outcome(session: str, body: object, key: str) -> tuple[int, str]:
        return error_of(await world.post(f"/v1/sessions/{session}/events", body, key=key))

    assert await outcome("nonsense", bad_body, revoked) == (401, "unauthorized")
    assert await outcome(session_id, bad_body, revoked) == (401, "unauthorized")
    assert await outcome("nonsense", bad_body, reader) == (400, "invalid_request")
    assert await outcome(str(uuid4()), bad_body, reader) == (404, "not_found")
    assert await outcome(session_id, bad_body, reader) == (403, "forbidden")
    assert await outcome(session_id, bad_body, world.key) == (400, "invalid_request")


async def test_a_session_token_works_on_its_own_session_only(world: World) -> None:
    own, other = await world.new_session(), await world.new_session()
    token = await world.new_token(own)
    assert (await world.submit(own, key=token)).status_code == 200
    foreign, absent = await world.submit(other, key=token), await world.submit(str(uuid4()), key=token)
    assert error_of(foreign) == error_of(absent) == (404, "not_found")
    assert foreign.content == absent.content
    bad = await world.post(f"/v1/sessions/{other}/events", {"type": "bad"}, key=token)
    assert error_of(bad) == (404, "not_found")


async def test_a_token_ends_with_its_key_and_with_its_time(world: World) -> None:
    session_id = await world.new_session()
    maker, maker_id = await world.new_key_record((Permission.SESSION_MANAGE,))
    made = (await world.post(f"/v1/sessions/{session_id}/tokens", {}, key=maker)).json()
    timed = (await world.post(f"/v1/sessions/{session_id}/tokens", {})).json()
    assert (await world.submit(session_id, key=made["token"])).status_code == 200
    await world.execute("UPDATE api_keys SET revoked_at = now() WHERE id = %s", maker_id)
    assert error_of(await world.submit(session_id, key=made["token"])) == (401, "unauthorized")
    await world.execute("UPDATE session_tokens SET expires_at = now() WHERE id = %s", timed["id"])
    assert error_of(await world.submit(session_id, key=timed["token"])) == (401, "unauthorized")


async def test_service_workspace_is_optional_and_a_foreign_one_hides_the_session(world: World) -> None:
    session_id = await world.new_session()
    path, body = f"/v1/sessions/{session_id}/events", {"type": "input", "text": "x"}

    async def with_workspace(value: str, key: str | None = None) -> int:
        return (await world.post(path, body, key=key, headers={"Service-Workspace": value})).status_code

    token = await world.new_token(session_id)
    assert await with_workspace(str(world.workspace_id)) == 200
    assert await with_workspace(str(world.workspace_id).upper()) == 200
    assert await with_workspace(str(world.workspace_id), token) == 200
    assert await with_workspace(str(uuid4())) == 404
    assert await with_workspace(str(uuid4()), token) == 404
    assert await with_workspace("nonsense") == 400


async def test_repeated_key_returns_the_same_bytes_and_no_second_input(world: World) -> None:
    session_id = await world.new_session()
    first = await world.submit(session_id, "once", idempotency_key="k")
    again = await world.submit(session_id, "once", idempotency_key="k")
    assert (first.status_code, first.content) == (again.status_code, again.content)
    assert "idempotency-replayed" not in first.headers
    assert again.headers["idempotency-replayed"] == "true"
    ((count,),) = await world.fetch("SELECT count(*) FROM session_events WHERE session_id = %s", session_id)
    assert count == 1


async def test_the_receipt_outlives_the_run(world: World) -> None:
    session_id = await world.new_session()
    first = await world.submit(session_id, "once", idempotency_key="k")
    await world.execute("UPDATE runs SET state = 'succeeded' WHERE session_id = %s", session_id)
    assert (await world.submit(session_id, "once", idempotency_key="k")).content == first.content


async def test_the_same_json_written_differently_is_the_same_input(world: World) -> None:
    session_id = await world.new_session()
    headers = world.headers() | {"Content-Type": "application/json", "Idempotency-Key": "k"}
    forms = [
        b'{"text":"\\u00e9","type":"input"}',
        ' { "type" : "input", "text" : "é" } '.encode(),
        json.dumps({"text": "é", "type": "input"}, indent=2).encode(),
    ]
    answers = [
        await world.http.post(f"/v1/sessions/{session_id}/events", content=form, headers=headers) for form in forms
    ]
    assert {answer.content for answer in answers} == {answers[0].content}
    assert answers[0].status_code == 200


async def test_a_key_used_for_something_else_is_409_without_retry_after(world: World) -> None:
    session_id, other = await world.new_session(), await world.new_session()
    await world.submit(session_id, "one", idempotency_key="k")
    for answer in (
        await world.submit(session_id, "two", idempotency_key="k"),
        await world.submit(other, "one", idempotency_key="k"),
    ):
        assert error_of(answer) == (409, "conflict")
        assert "retry-after" not in answer.headers
    assert await world.fetch("SELECT FROM runs WHERE session_id = %s", other) == []


async def test_keys_are_scoped_by_caller(world: World) -> None:
    session_id = await world.new_session()
    other_key, token = await world.new_key(), await world.new_token(session_id)
    first = await world.submit(session_id, "a", idempotency_key="k")
    by_other_key = await world.submit(session_id, "b", key=other_key, idempotency_key="k")
    by_token = await world.submit(session_id, "c", key=token, idempotency_key="k")
    assert [first.status_code, by_other_key.status_code, by_token.status_code] == [200, 200, 200]
    second_token = await world.new_token(session_id)
    shared = await world.submit(session_id, "c", key=second_token, idempotency_key="k")
    assert shared.content == by_token.content, "tokens of one session share its scope"
    assert shared.headers["idempotency-replayed"] == "true"


async def test_a_receipt_is_for_those_still_authorised(world: World) -> None:
    session_id = await world.new_session()
    secret, key_id = await world.new_key_record((Permission.SESSION_MANAGE,))
    assert (await world.submit(session_id, key=secret, idempotency_key="k")).status_code == 200
    await world.execute("UPDATE api_keys SET permissions = '{workspace.read}' WHERE id = %s", key_id)
    assert error_of(await world.submit(session_id, key=secret, idempotency_key="k")) == (403, "forbidden")
    await world.execute("UPDATE api_keys SET revoked_at = now() WHERE id = %s", key_id)
    assert error_of(await world.submit(session_id, key=secret, idempotency_key="k")) == (401, "unauthorized")


async def test_a_failed_request_leaves_the_key_free(world: World) -> None:
    session_id = await world.new_session()
    path = f"/v1/sessions/{session_id}/events"
    refused = await world.post(path, {"type": "input"}, headers={"Idempotency-Key": "k"})
    assert refused.status_code == 400
    assert (await world.submit(str(uuid4()), "x", idempotency_key="k")).status_code == 404
    assert (await world.submit(session_id, "x", idempotency_key="k")).status_code == 200


@pytest.mark.parametrize(("length", "status"), [(1, 200), (255, 200), (0, 400), (256, 400)])
async def test_length_of_the_idempotency_key(world: World, length: int, status: int) -> None:
    session_id = await world.new_session()
    assert (await world.submit(session_id, idempotency_key="k" * length)).status_code == status


async def test_fifty_parallel_inputs_on_an_idle_session_start_one_run(world: World) -> None:
    session_id = await world.new_session()
    answers = await asyncio.gather(*(world.submit(session_id, f"input {n}") for n in range(50)))
    outcomes = [answer.json()["outcome"] for answer in answers]
    assert outcomes.count("new_run") == 1
    assert outcomes.count("steered") == 49
    assert len({answer.json()["run_id"] for answer in answers}) == 1
    texts = await world.fetch("SELECT data->>'text' FROM session_events WHERE session_id = %s", session_id)
    assert sorted(texts) == sorted((f"input {n}",) for n in range(50))


async def test_twenty_requests_with_one_key_have_one_effect(world: World) -> None:
    session_id = await world.new_session()
    answers = await asyncio.gather(*(world.submit(session_id, "x", idempotency_key="k") for _ in range(20)))
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.content for answer in answers}) == 1
    ((count,),) = await world.fetch("SELECT count(*) FROM session_events WHERE session_id = %s", session_id)
    assert count == 1


async def test_one_key_on_many_sessions_at_once_has_one_effect(world: World) -> None:
    sessions = [await world.new_session() for _ in range(10)]
    answers = await asyncio.gather(*(world.submit(session, "x", idempotency_key="k") for session in sessions))
    assert sorted(answer.status_code for answer in answers) == [200] + [409] * 9
    ((count,),) = await world.fetch("SELECT count(*) FROM session_events WHERE session_id = ANY(%s)", sessions)
    assert count == 1


async def test_a_stranger_learns_nothing_from_a_busy_session(world: World) -> None:
    """Who is not let in does not wait for the session's lock either."""
    session_id = await world.new_session()
    stranger = mint(CredentialKind.API_KEY, "test").text
    reader = await world.new_key(Permission.WORKSPACE_READ)
    # No stranger to the process: it has written to a session of its own.
    other = await World.create(world.database_url, world.http)
    assert (await other.submit(await other.new_session())).status_code == 200
    async with await world.connect() as holding, holding.transaction():
        await holding.execute("SELECT pg_advisory_xact_lock(session_lock(%s))", (session_id,))
        assert (
            error_of(await other.submit(session_id)) == error_of(await other.submit(str(uuid4()))) == (404, "not_found")
        )
        assert error_of(await world.submit(session_id, key=stranger)) == (401, "unauthorized")
        assert error_of(await world.submit(session_id, key=reader)) == (403, "forbidden")


async def test_large_inputs_side_by_side(world: World) -> None:
    sessions = [await world.new_session() for _ in range(12)]
    texts = ["🙂" * 240_000 + str(n) for n in range(12)]
    answers = await asyncio.gather(*(world.submit(*pair) for pair in zip(sessions, texts, strict=True)))
    assert {answer.status_code for answer in answers} == {200}
    stored = await world.fetch("SELECT data->>'text' FROM session_events WHERE session_id = ANY(%s)", sessions)
    assert sorted(text for (text,) in stored) == sorted(texts)
