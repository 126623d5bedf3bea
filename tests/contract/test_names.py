"""Unique names that look alike: one spelling is stored, and characters that nobody sees are refused."""

from typing import Any

import pytest

from tests.world import World, error_of

# Each kind of object whose name is unique and free text.
KINDS: dict[str, dict[str, Any]] = {
    "agents": {},
    "credentials": {"kind": "bearer", "secret": "s3cret-s3cret"},
    "skills": {},
}
NFC, NFD = "Caf\u00e9 bot", "Cafe\u0301 bot"


@pytest.mark.parametrize("kind", KINDS)
async def test_one_spelling_is_stored(world: World, kind: str) -> None:
    path = f"/v1/{kind}"
    made = await world.post(path, {"name": f"  {NFD}\u00a0\u3000 x "} | KINDS[kind])
    assert (made.status_code, made.json()["name"]) == (201, f"{NFC} x")
    for alike in (f"{NFC} x", f"{NFC}  x", f"{NFD} x", f"{NFC}\u2003x\u00a0"):
        assert error_of(await world.post(path, {"name": alike} | KINDS[kind])) == (409, "conflict"), alike
    other = await world.post(path, {"name": f"{NFC} y"} | KINDS[kind])
    assert other.status_code == 201
    if kind == "credentials":
        return
    one = f"{path}/{other.json()['id']}"
    assert error_of(await world.patch(one, {"name": f" {NFD}  x"})) == (409, "conflict")
    renamed = await world.patch(one, {"name": f" {NFD}  z"})
    assert (renamed.status_code, renamed.json()["name"]) == (200, f"{NFC} z")
    same = await world.patch(one, {"name": f"{NFD} z"})
    assert same.json()["revision"] == renamed.json()["revision"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("a\u200bb", "U+200B"),
        ("a\ufeff", "U+FEFF"),
        ("a\u200db", "U+200D"),
        ("\u202eabc", "U+202E"),
        ("a\u00adb", "U+00AD"),
        ("a\u3164", "U+3164"),
        ("a\tb", "U+0009"),
        ("a\U000e0041", "U+E0041"),
        (" \u3000", "blank"),
        ("", "length"),
    ],
)
async def test_what_nobody_sees_is_refused(world: World, kind: str, name: str, told: str) -> None:
    refused = await world.post(f"/v1/{kind}", {"name": name} | KINDS[kind])
    assert error_of(refused) == (400, "invalid_request")
    assert told in refused.json()["error"]["message"]


@pytest.mark.parametrize("name", ["👩\u200d💻 Coder", "⚙\ufe0f Ops", "1\ufe0f\u20e3 First", "Αθήνα", "東京"])
async def test_emoji_and_other_scripts_are_names(world: World, name: str) -> None:
    made = await world.post("/v1/agents", {"name": name})
    assert (made.status_code, made.json()["name"]) == (201, name)


async def test_names_of_mcp_servers_are_plain_ascii(world: World) -> None:
    body = {"name": "caf\u00e9", "url": "https://example.com/mcp"}
    assert error_of(await world.post("/v1/mcp-servers", body)) == (400, "invalid_request")
