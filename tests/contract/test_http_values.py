"""How identifiers, numbers and keys are read: one strict form each, on the path, in headers and in the query."""

import json
from collections.abc import Callable
from urllib.parse import quote
from uuid import uuid4

import pytest

from tests.raw_http import RawAnswer, exchange, request
from tests.world import Server, World, error_of

INPUT = b'{"type":"input","text":"x"}'
SMALL = ("Content-Type: application/json", f"Content-Length: {len(INPUT)}")


def submit(server: Server, world: World, session_id: str, *headers: str | bytes) -> RawAnswer:
    authorization = f"Authorization: Bearer {world.key}"
    path = f"/v1/sessions/{quote(session_id, safe='')}/events"
    return exchange(server.port, request("POST", path, authorization, *SMALL, *headers, body=INPUT))


def list_keys(server: Server, world: World, query: str = "", *headers: str | bytes) -> RawAnswer:
    given = headers or (f"Service-Workspace: {world.workspace_id}",)
    authorization = f"Authorization: Bearer {world.key}"
    return exchange(server.port, request("GET", f"/v1/api-keys{query}", authorization, *given))


# --- UUIDs ---


def full_width(text: str) -> str:
    return "".join(chr(ord(c) + 0xFEE0) if c.isdigit() else c for c in text)


WRONG_FORMS: dict[str, Callable[[str], str]] = {
    "braces": lambda u: f"{{{u}}}",
    "urn": lambda u: f"urn:uuid:{u}",
    "no hyphens": lambda u: u.replace("-", ""),
    "hyphens elsewhere": lambda u: u.replace("-", "")[:4] + "-" + u.replace("-", "")[4:],
    "full-width digits": full_width,
    "cut off": lambda u: u[:-1],
    "too long": lambda u: u + "0",
    "not hex": lambda u: u[:-1] + "g",
    "space before": lambda u: f" {u}",
    "space after": lambda u: f"{u} ",
    "newline after": lambda u: f"{u}\n",
    "NUL after": lambda u: f"{u}\0",
    "quoted": lambda u: f'"{u}"',
    "twice": lambda u: f"{u},{u}",
    "0x": lambda u: "0x" + u[2:],
    "word": lambda u: "me",
}
# An HTTP header cannot hold these, or loses them on the way.
NOT_IN_A_HEADER = {"space before", "space after", "newline after", "NUL after"}


@pytest.mark.parametrize("form", WRONG_FORMS)
async def test_other_forms_of_a_uuid_are_400_everywhere(world: World, server: Server, form: str) -> None:
    wrong = WRONG_FORMS[form]
    session_id = await world.new_session()
    assert submit(server, world, wrong(session_id)).error() == (400, "invalid_request")
    key_id = (await world.list_keys()).json()["items"][0]["id"]
    assert list_keys(server, world, f"?after={quote(wrong(key_id))}").error() == (400, "invalid_request")
    if form not in NOT_IN_A_HEADER:
        header = f"Service-Workspace: {wrong(str(world.workspace_id))}"
        assert list_keys(server, world, "", header).error() == (400, "invalid_request")
        assert submit(server, world, session_id, header).error() == (400, "invalid_request")


async def test_a_uuid_is_read_in_either_case(world: World, server: Server) -> None:
    await world.new_key()
    session_id = await world.new_session()
    assert submit(server, world, session_id.upper()).status == 200
    workspace = f"Service-Workspace: {str(world.workspace_id).upper()}"
    cursor = (await world.list_keys("?limit=1")).json()["next_cursor"]
    answer = list_keys(server, world, f"?after={cursor.upper()}", workspace)
    assert answer.status == 200
    # By their ids: when a key was last used may be written down in between.
    listed = (json.loads(each.body) for each in (answer, list_keys(server, world, f"?after={cursor}")))
    upper, lower = ([item["id"] for item in page["items"]] for page in listed)
    assert upper == lower != []


async def test_the_smallest_and_the_largest_uuid_are_only_unknown(world: World, server: Server) -> None:
    for digit in "0f":
        uuid = f"{digit * 8}-{digit * 4}-{digit * 4}-{digit * 4}-{digit * 12}"
        assert submit(server, world, uuid).error() == (404, "not_found")
        assert list_keys(server, world, "", f"Service-Workspace: {uuid}").error() == (404, "not_found")
        assert list_keys(server, world, f"?after={uuid}").error() == (400, "invalid_request")


async def test_an_empty_id_in_a_path_is_no_path(world: World, server: Server) -> None:
    assert submit(server, world, "").error() == (404, "not_found")


# --- numbers ---


@pytest.mark.parametrize(
    "limit",
    [
        "",
        "0",
        "201",
        "-1",
        "-0",
        "+5",
        "%2B5",
        "5_0",
        "%205",
        "5%20",
        "5%0A",
        "5%00",
        "%EF%BC%95",
        "%D9%A5",
        "%C2%B2",
        "5.0",
        "5e1",
        "0x5",
        "five",
        "null",
        "%FF",
        "5,6",
        "9" * 19,
        "9" * 20,
        "1" + "0" * 5_000,
        "9223372036854775808",
        "18446744073709551617",
    ],
)
async def test_numbers_out_of_range_are_400(world: World, server: Server, limit: str) -> None:
    assert list_keys(server, world, f"?limit={limit}").error() == (400, "invalid_request")


@pytest.mark.parametrize(("limit", "items"), [("1", 1), ("2", 2), ("%32", 2), ("002", 2), ("200", 3), ("%31%30", 3)])
async def test_numbers_in_range_are_taken(world: World, server: Server, limit: str, items: int) -> None:
    await world.new_key()
    await world.new_key()
    answer = list_keys(server, world, f"?limit={limit}")
    assert answer.status == 200
    assert answer.body.count(b'"prefix"') == items


@pytest.mark.parametrize(
    "query",
    [
        "?limit=5&limit=5",
        "?limit=5&limit=",
        "?limit=5&%6Cimit=5",
        "?order=asc&order=asc",
        "?order=ASC",
        "?order=",
        "?order=asc%20",
        "?after=",
        "?limit",
        "?limit=5&" + "&".join(f"x{n}=1" for n in range(200)),
    ],
)
async def test_repeated_or_malformed_parameters_are_400(world: World, server: Server, query: str) -> None:
    assert list_keys(server, world, query).error() == (400, "invalid_request")


@pytest.mark.parametrize("query", ["?cursor=x", "?Limit=5", "?limit=5&page=2", "?=", "?%00=1", f"?{'x' * 5000}=1"])
async def test_unknown_parameters_are_400(world: World, server: Server, query: str) -> None:
    """A cursor under another name would give the first page for ever."""
    answer = list_keys(server, world, query)
    assert answer.error() == (400, "invalid_request")
    message = json.loads(answer.body)["error"]["message"]
    assert message.endswith("Known: after, limit, order.")
    assert len(message) < 300


async def test_unknown_parameters_come_after_the_credential(world: World, server: Server) -> None:
    session_id = await world.new_session()
    path = f"/v1/sessions/{session_id}?colour=blue"
    assert error_of(await world.http.get(path)) == (401, "unauthorized")
    answer = await world.get(path)
    assert error_of(answer) == (400, "invalid_request")
    assert answer.json()["error"]["message"] == 'Unknown query parameter "colour". This operation has none.'


# --- headers that must be given once ---


async def test_repeated_headers_are_400(world: World, server: Server) -> None:
    session_id, workspace = await world.new_session(), f"Service-Workspace: {world.workspace_id}"
    assert list_keys(server, world, "", workspace, workspace).error() == (400, "invalid_request")
    assert submit(server, world, session_id, workspace, workspace).error() == (400, "invalid_request")
    for keys in (("a", "a"), ("a", "b"), ("a", "")):
        headers = [f"Idempotency-Key: {key}" for key in keys]
        assert submit(server, world, session_id, *headers).error() == (400, "invalid_request")
    assert await world.fetch("SELECT FROM runs WHERE session_id = %s", session_id) == []


async def test_an_empty_workspace_header_is_400(world: World, server: Server) -> None:
    assert list_keys(server, world, "", "Service-Workspace:").error() == (400, "invalid_request")
    assert submit(server, world, await world.new_session(), "Service-Workspace:").error() == (400, "invalid_request")


@pytest.mark.parametrize(
    "key",
    [
        b"simple",
        b"with spaces inside",
        b'"quoted", with {braces} and \\backslash',
        b"NULL",
        "ключ 🔑".encode(),
        b"\xe9\xff",
        ("é" * 255).encode(),
    ],
)
async def test_any_printable_idempotency_key_works(world: World, server: Server, key: bytes) -> None:
    session_id = await world.new_session()
    first, again = (submit(server, world, session_id, b"Idempotency-Key: " + key) for _ in range(2))
    assert (first.status, again.status) == (200, 200)
    assert first.body == again.body
    assert (first.header("idempotency-replayed"), again.header("idempotency-replayed")) == (None, "true")
    ((count,),) = await world.fetch("SELECT count(*) FROM session_events WHERE session_id = %s", session_id)
    assert count == 1


@pytest.mark.parametrize(
    "key",
    [
        b"a\tb",
        b"",
        b"   ",
        "a\u0085b".encode(),
        "a\u200bb".encode(),
        "a\u2028b".encode(),
        "a\u00a0b".encode(),
        "\ufeffa".encode(),
        ("é" * 256).encode(),
    ],
)
async def test_idempotency_keys_with_unprintable_characters_are_400(world: World, server: Server, key: bytes) -> None:
    answer = submit(server, world, await world.new_session(), b"Idempotency-Key: " + key)
    assert answer.error() == (400, "invalid_request")


@pytest.mark.parametrize("byte", [0x00, 0x01, 0x0B, 0x1B, 0x7F])
async def test_control_characters_in_a_header_are_refused(world: World, server: Server, byte: int) -> None:
    """Refused by the parser before there is a request."""
    session_id = await world.new_session()
    answer = submit(server, world, session_id, b"Idempotency-Key: a" + bytes([byte]) + b"b")
    assert (answer.status, answer.header("connection")) == (400, "close")
    assert await world.fetch("SELECT FROM runs WHERE session_id = %s", session_id) == []


async def test_a_cursor_of_another_workspace_is_answered_like_an_unknown_one(world: World, server: Server) -> None:
    other = await World.create(world.database_url, world.http)
    foreign = (await other.list_keys()).json()["items"][0]["id"]
    answers = [list_keys(server, world, f"?after={cursor}") for cursor in (foreign, uuid4())]
    assert {answer.error() for answer in answers} == {(400, "invalid_request")}
    assert len({answer.body for answer in answers}) == 1
