"""`qd actions`, `qd usage`, and the options of sessions and tokens for tools and limits."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.cli.people import nearby
from tests.workers import ended, eventually, working
from tests.world import Server, World

TOOLS = [{"name": "weather", "description": "Tells the weather.", "parameters": {"type": "object"}}]


async def opened(world: World, session_id: str, text: str) -> dict[str, Any]:
    """Sends an input and returns the action that its run waits for."""
    answer = await world.submit(session_id, text)
    assert answer.status_code == 200, answer.text

    async def look() -> Any:
        return (await world.get(f"/v1/actions?state=open&session_id={session_id}")).json()["items"]

    found: list[dict[str, Any]] = await eventually(look)
    return found[0]


async def has_waited_two_days(world: World, run_id: str) -> None:
    """As if the answer to the run had come two days later."""
    query = """
        UPDATE runs SET started_at = started_at - interval '2 days', waited_seconds = waited_seconds + 2 * 86400
        WHERE id = %s
    """
    async with await world.connect() as connection:
        await connection.execute(query, (run_id,))


async def test_listing_and_answering(tmp_path: Path, server: Server, world: World) -> None:
    person = nearby(tmp_path, server, world)
    (tmp_path / "tools.json").write_text(json.dumps(TOOLS))
    options = ("--title", "Weather report", "--tools", "tools.json", "--max-tokens", "400", "--policy", "x_*=deny")
    session_id = person.done("sessions", "create", *options).strip()
    assert person.qd("actions", "list").stderr == "Nothing is waiting for an answer.\n"

    def resolve(action: dict[str, Any], *options: str) -> str:
        return person.done("actions", "resolve", action["id"], *options)

    with working(server.database_url, server.data_dir):
        action = await opened(world, session_id, "note: buy milk")
        listed = person.done("actions", "list", "--session", "Weather report", "--kind", "approval")
        for part in (action["id"], session_id, "add_note", '{"text":"buy milk"}', "in 7d"):
            assert part in listed
        assert person.json("actions", "list", "--kind", "budget")["items"] == []
        shown = person.done("sessions", "show", session_id)
        for part in ("waiting", 'Approval required: add_note({"text":"buy milk"})', f"resolve {action['id']} --allow"):
            assert part in shown
        assert "waiting for" in person.done("runs", "show", action["run_id"])
        # By the beginning of the ID: as much of it as no other action has.
        shown = person.done("actions", "show", action["id"][:30])
        for part in ('"text": "buy milk"', "--allow or --deny", "Weather report"):
            assert part in shown
        changed = resolve(action, "--allow", "--arguments", '{"text": "buy tea"}', "--remember")
        assert changed.startswith("Allowed for this session by ")
        assert 'with changed arguments {"text":"buy tea"}' in changed
        run = await ended(world, action["run_id"])
        # The time that it waited is not part of its duration.
        assert run["waited_seconds"] > 0
        await has_waited_two_days(world, action["run_id"])
        shown = person.done("runs", "show", action["run_id"])
        assert re.search(r"^duration +\d+\.\ds$", shown, re.MULTILINE)
        assert re.search(r"^waited +48h 0m$", shown, re.MULTILINE)
        # The same answer again, and another one.
        resolve(action, "--allow", "--arguments", '{"text": "buy tea"}', "--remember")
        assert person.refused("actions", "resolve", action["id"], "--deny")[0] == 5
        assert "state      resolved" in person.done("actions", "show", action["id"])

        action = await opened(world, session_id, "call: weather")
        person.done("actions", "resolve", action["id"], "--result", "-", given='{"rain": [1, 2]}')
        run = await ended(world, action["run_id"])
        assert run["state"] == "succeeded"

        action = await opened(world, session_id, "call: weather\n" + "long " * 400)
        resolve(action, "--result", "no connection", "--error")
        action = await opened_budget(world, session_id)
        assert "of 400 tokens used, the limit of the run" in person.done("actions", "list")
        code, message = person.refused("actions", "resolve", action["id"], "--raise", "--max-tokens", "401")
        assert code == 2, message
        resolve(action, "--raise", "--max-tokens", "100000")
        await ended(world, action["run_id"])
    states = {each["state"] for each in person.json("actions", "list", "--state", "all")["items"]}
    assert states == {"resolved"}
    assert len(person.json("actions", "list", "--state", "resolved", "--limit", "2")["items"]) == 2
    by_day, by_session = (person.done("usage", "--by", by) for by in ("day", "session"))
    assert "Weather report" in by_session
    assert by_day.splitlines()[0].split() == ["DAY", "RUNS", "TOKENS", "IN", "CACHED", "WRITTEN", "OUT", "COST"]
    assert person.json("usage", "--by", "api-key")["items"][0]["label"] == "test"
    nothing = person.qd("usage", "--by", "model", "--from", "2020-01-01", "--to", "2020-02-01")
    assert nothing.stderr == "No usage in this time.\n"

    table = person.done("retention", "--set", "events=30", "--set", "receipts=14", "--yes").splitlines()
    assert [line.split() for line in table[:5]] == [
        ["KIND", "DAYS", "SET", "BY"],
        ["runs", "forever", "server"],
        ["events", "30", "workspace"],
        ["files", "forever", "server"],
        ["receipts", "14", "workspace"],
    ]
    assert person.done("retention", "--set", "receipts=default", "-y") != "\n".join(table)
    kept = person.json("retention")
    assert (kept["retention"]["event_days"], kept["effective_retention"]["receipt_days"]) == (30, 7)
    for wrong in ("events", "events=0", "events=forever", "skills=1"):
        assert person.refused("retention", "--set", wrong)[0] == 2
    assert "--yes" in person.refused("retention", "--set", "events=1")[1], "it cannot be undone"


async def opened_budget(world: World, session_id: str) -> dict[str, Any]:
    async def look() -> Any:
        answer = await world.get(f"/v1/actions?state=open&kind=budget&session_id={session_id}")
        return answer.json()["items"]

    found: list[dict[str, Any]] = await eventually(look)
    return found[0]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "No answer given. Approvals: --allow or --deny."),
        (("--allow", "--stop"), "Use only one of --allow, --stop"),
        (("--allow", "--message", "x"), "--message cannot be used with --allow"),
        (("--deny", "--remember"), "--remember cannot be used with --deny"),
        (("--result", "x", "--max-tokens", "3"), "--max-tokens cannot be used with --result"),
        (("--retry", "--result", "x"), "--result cannot be used with --retry"),
        (("--raise", "--max-cost-usd", "inf"), "'inf' is not an amount in US dollars"),
        (("--raise",), "Use --max-tokens or --max-cost-usd"),
        (("--allow", "--arguments", "[1]"), "not a JSON object"),
        (("--error",), "No answer given."),
    ],
)
def test_options_that_do_not_fit_are_refused_before_any_request(
    tmp_path: Path, server: Server, world: World, options: tuple[str, ...], words: str
) -> None:
    """The server does not exist."""
    person = nearby(tmp_path, server, world)
    person.variables["QD_URL"] = "http://127.0.0.1:1"
    code, message = person.refused("actions", "resolve", "0192f0c4-77d8-7a10-8e52-6b0d4f8a1c02", *options)
    assert code == 2
    assert words in message


async def test_the_wrong_kind_and_unknown_actions(tmp_path: Path, server: Server, world: World) -> None:
    person = nearby(tmp_path, server, world)
    session_id = await world.new_session()
    with working(server.database_url, server.data_dir):
        action = await opened(world, session_id, "note: x")
    code, message = person.refused("actions", "resolve", action["id"], "--stop")
    assert (code, message) == (2, "This action is of the kind approval. Use --allow or --deny.")
    assert person.refused("actions", "show", "0192f0c4-77d8-7a10-8e52-6b0d4f8a1c02")[0] == 4
    assert person.refused("actions", "show", "0192f0c4")[0] == 4
    assert person.refused("actions", "show", "nonsense")[0] == 2
    token = person.json("tokens", "create", session_id, "--label", "phone", "--may-resolve")
    assert "phone" in person.done("tokens", "list", session_id)
    guest = nearby(tmp_path, server, world, token["token"])
    assert guest.done("actions", "resolve", action["id"], "--deny", "--message", "no").startswith("Denied by ")
    other = nearby(tmp_path, server, world, person.json("tokens", "create", session_id)["token"])
    assert other.refused("actions", "show", action["id"])[0] == 4


async def test_tools_and_limits_of_a_session(tmp_path: Path, server: Server, world: World) -> None:
    person = nearby(tmp_path, server, world)
    (tmp_path / "tools.json").write_text(json.dumps(TOOLS))
    limits = ("--max-cost-usd", "2.50", "--session-max-tokens", "1000000")
    session_id = person.done("sessions", "create", "--policy", "add_note=allow", *limits).strip()
    edit = ("sessions", "edit", session_id)
    changed = person.json(*edit, "--policy", "add_note=ask", "--policy", "*=deny", "--tools", "tools.json")
    assert changed["tool_policy"] == {"add_note": "ask", "*": "deny"}
    assert changed["client_tools"] == TOOLS
    # Limits that are not given stay.
    changed = person.json(*edit, "--max-tokens", "500")
    assert changed["limits"] == {
        "run": {"max_cost_usd": 2.5, "max_tokens": 500},
        "session": {"max_cost_usd": None, "max_tokens": 1000000},
    }
    shown = person.done("sessions", "show", session_id)
    for part in ("run: $2.50, 500 tokens", "session: 1,000,000 tokens", "add_note: ask", "*: deny", "weather"):
        assert part in shown
    changed = person.json(*edit, "--no-policy", "--no-tools", "--no-limits", "--max-tokens", "7")
    assert (changed["tool_policy"], changed["client_tools"]) == ({}, [])
    assert changed["limits"]["run"] == {"max_cost_usd": None, "max_tokens": 7}
    (tmp_path / "broken.json").write_text('[{"name": 1}]')
    for options, words in (
        (("--policy", "add_note=maybe"), "TOOL=allow"),
        (("--max-cost-usd", "nan"), "US dollars"),
        (("--max-tokens", "0"), "a whole number from 1"),
        (("--tools", "missing.json"), "missing.json: No such file"),
        (("--tools", "broken.json"), "not a JSON list of tools"),
        (("--tools", "tools.json", "--no-tools"), "either --tools or --no-tools"),
    ):
        code, message = person.refused(*edit, *options)
        assert code == 2
        assert words in message
