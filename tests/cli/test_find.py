"""Objects named by ID, ID prefix or name; completion; and the commands that list objects."""

from pathlib import Path
from unittest.mock import create_autospec
from uuid import UUID

import pytest

from quarterdeck.cli import find
from quarterdeck.client import Client
from quarterdeck.core.ids import new_id
from tests.cli.people import Nearby, nearby
from tests.world import Server, World, bundle


def unique_prefix(wanted: str, others: list[str]) -> str:
    """The shortest beginning, of at least four digits, that no other ID has."""
    return next(wanted[:end] for end in range(4, 37) if not any(one.startswith(wanted[:end]) for one in others))


def test_a_full_id_needs_no_request() -> None:
    no_client, wanted = create_autospec(Client, instance=True), new_id()
    assert find.session_id(no_client, str(wanted)) == wanted
    assert find.run_id(no_client, str(wanted)) == wanted
    assert find.key_id(no_client, str(wanted)) == wanted
    assert find.webhook_id(no_client, str(wanted)) == wanted
    assert no_client.method_calls == []


@pytest.mark.parametrize("given", ["01a", "01a1-e46e", "01a1e46ex", "release", "", "0" * 33])
def test_what_is_no_beginning_of_an_id(given: str) -> None:
    assert find.prefix_range(given) is None


def test_the_range_of_a_prefix() -> None:
    for given in ("01a1e46e-cc", "01A1E46Ecc"):
        found = find.prefix_range(given)
        assert found is not None
        assert UUID("01a1e46e-cc80-7076-9062-b87dafa2b4fe") in found
        assert UUID("01a1e46e-cd00-7076-9062-b87dafa2b4fe") not in found


async def test_sessions_and_runs(tmp_path: Path, server: Server, world: World) -> None:
    person = nearby(tmp_path, server, world)
    long_title = "A title that goes on and on " * 5
    plan, other, twin = [
        (await world.post("/v1/sessions", {"title": title})).json()["id"]
        for title in ("Release plan", long_title.strip(), "release PLAN")
    ]
    code, told = person.refused("sessions", "show", "Release plan")
    assert code == 2
    assert f"{plan} Release plan" in told
    assert f"{twin} release PLAN" in told
    assert told.endswith("Use the ID.")
    code, told = person.refused("sessions", "show", plan[:4])
    assert (code, told.endswith("Use more of the ID.")) == (2, True), "all begin with the same digits"
    assert person.json("sessions", "show", unique_prefix(plan, [other, twin]))["session"]["id"] == plan
    # Archived sessions are found if no other matches.
    person.done("sessions", "archive", twin)
    assert person.json("sessions", "show", "release plan")["session"]["id"] == plan
    assert person.json("sessions", "show", unique_prefix(twin, [plan, other]))["session"]["id"] == twin
    assert person.refused("sessions", "show", "Nothing like it")[0] == 4
    assert person.refused("sessions", "show", "0123456789")[0] == 4

    row = next(line for line in person.done("sessions", "list").splitlines() if line.startswith(other))
    assert "A title that goes on and on" in row
    assert "…" in row
    assert any(one["title"] == long_title.strip() for one in person.json("sessions", "list")["items"])

    assert {"LAST", "RUN", "ACTIVITY"} <= set(person.done("sessions", "list").split())
    assert "Default (demo)" in row

    person.done("sessions", "rename", plan, "Launch")
    changed = person.json("sessions", "edit", "launch", "--model", "demo", "--instructions", "Be brief.")
    assert (changed["title"], changed["model"], changed["instructions"]) == ("Launch", "demo", "Be brief.")
    assert person.json("sessions", "edit", plan, "--default-model")["model"] is None
    assert person.refused("sessions", "edit", plan)[0] == 2
    assert person.refused("send", plan, "  ") == (2, "The message is empty")

    _, run_id = person.done("send", "Launch", "hello").split()
    assert person.json("runs", "list", "Launch")["items"][0]["id"] == run_id
    table = person.done("runs", "list", "Launch")
    assert {"TOKENS", "DURATION", "queued"} <= set(table.split())
    assert person.json("runs", "show", run_id[:20])["id"] == run_id
    assert person.json("runs", "show", run_id[:20], "--session", "Launch")["id"] == run_id
    assert person.refused("runs", "show", "0123456789")[0] == 4
    assert person.done("runs", "cancel", run_id[:20]) == f"cancelled {run_id}\n"
    assert f"{run_id}\tLaunch" in complete(person, "qd runs retry ")

    # A session token knows its own session only.
    guest = nearby(tmp_path, server, world, await world.new_token(plan))
    assert guest.json("sessions", "show", "Launch")["session"]["id"] == plan
    assert guest.json("sessions", "show", plan[:20])["session"]["id"] == plan
    assert guest.refused("send", "Other", "hi") == (4, f"This session token only works in the session {plan}")


async def test_skills_keys_tokens_and_audit(tmp_path: Path, server: Server, world: World) -> None:
    person = nearby(tmp_path, server, world)
    skill_id = (await world.post("/v1/skills", {"name": "greeting"})).json()["id"]
    assert (await world.push(skill_id, bundle("greeting"))).status_code == 201
    assert person.json("skills", "versions", "Greeting")["items"][0]["skill_id"] == skill_id
    assert person.json("skills", "versions", skill_id[:20])["items"][0]["skill_id"] == skill_id
    session_id = await world.new_session()
    assert person.json("sessions", "edit", session_id, "--skill", "greeting@1")["skills"] == [
        {"skill_id": skill_id, "version": 1}
    ]
    assert "greeting@1\n" in person.done("sessions", "show", session_id)
    assert person.json("sessions", "edit", session_id, "--no-skills")["skills"] == []

    created = person.json("keys", "create", "--label", "ci", "--permission", "workspace.read")
    assert person.json("keys", "rotate", created["id"][:20], "--overlap", "0s")["label"] == "ci"
    assert person.refused("keys", "revoke", "ci", "--yes")[0] == 2, "the old one has the same label"
    assert person.refused("keys", "revoke", "nothing", "--yes")[0] == 4

    token = person.json("tokens", "create", session_id, "--expires-in", "1h")
    assert (await world.get(f"/v1/sessions/{session_id}/events", key=token["token"])).status_code == 200
    assert "active" in person.done("tokens", "list", session_id)
    assert person.done("tokens", "revoke", session_id, token["id"][:20], "--yes").startswith("revoked qds_")
    assert (await world.get(f"/v1/sessions/{session_id}/events", key=token["token"])).status_code == 401

    listed = person.json("audit", "--type", "session_token", "--since", "1h")["items"]
    assert [event["action"] for event in listed] == ["revoke_session_token", "create_session_token"]
    first = person.json("audit", "--oldest-first", "--object", session_id, "--limit", "1")
    assert (first["items"][0]["action"], first["more"]) == ("create_session", True)
    assert "revoke_session_token" in person.done("audit", "--action", "revoke_session_token")
    assert person.refused("audit", "--type", "nothing")[0] == 2
    for given in ("greeting", skill_id[:20]):
        assert person.json("audit", "--object", given, "--oldest-first")["items"][0]["action"] == "create_skill"
    assert person.refused("audit", "--object", "greeting", "--type", "session")[0] == 4
    assert person.refused("audit", "--object", "nothing")[0] == 4
    actor = person.json("audit", "--limit", "1")["items"][0]["actor"]
    for given in (actor["primary_email"].upper(), actor["user_id"][:20]):
        assert person.json("audit", "--user", given, "--limit", "1")["items"][0]["actor"] == actor
    assert person.refused("audit", "--user", "nobody@example.com")[0] == 4
    assert "a date such as 2027-01-31, or a duration" in person.refused("audit", "--since", "soon")[1]


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("sessions list --in foo", "'--in': 'foo' is not one of titles, conversations"),
        ("sessions create --temperature warm", "'--temperature': 'warm' is not a number from 0 to 2"),
        ("sessions create --temperature 9", "'--temperature': '9' is not a number from 0 to 2"),
        ("skills rollback greeting x", "'VERSION': 'x' is not a whole number from 1 to 2147483647"),
        ("sessions create --title=", "'--title': must not be empty"),
        (f"sessions create --title={'x' * 201}", "'--title': must be at most 200 characters long"),
        ("sessions create --title=a\x07", "'--title': must be one line without control characters"),
        ("skills rollback greeting", "Use either VERSION or --latest"),
        ("login --url notaurl", "'notaurl' is not a URL such as https://quarterdeck.example.com"),
    ],
)
def test_messages_about_options(tmp_path: Path, command: str, told: str) -> None:
    person = Nearby(tmp_path, {"QD_URL": "http://127.0.0.1:9", "QD_KEY": "qd_live_x"})
    expected = f"Invalid value for {told}" if told.startswith("'") and "not a URL" not in told else told
    assert person.refused(*command.split(" ")) == (2, expected)


@pytest.mark.parametrize(
    "group", ["", "sessions", "runs", "skills", "keys", "tokens", "members", "devices", "webhooks", "admin"]
)
def test_summaries_fit_in_help(tmp_path: Path, group: str) -> None:
    shown = Nearby(tmp_path, {"COLUMNS": "80"}).done(*group.split(), "--help")
    assert not [line for line in shown.splitlines()[1:] if line.endswith("...")]


async def test_webhooks(tmp_path: Path, server: Server, world: World) -> None:
    person = nearby(tmp_path, server, world)
    url = "https://hooks.example.com/quarterdeck"
    created = person.json("webhooks", "create", url, "--event", "run.failed", "--description", "Alerts")
    assert created["secret"].startswith("whsec_")
    webhook_id = created["id"]
    for given in ("alerts", webhook_id[:10], url):
        assert person.json("webhooks", "show", given)["url"] == url
    assert {"url", "run.failed", "enabled"} <= set(person.done("webhooks", "show", "Alerts").split())
    assert person.json("webhooks", "rotate", "Alerts", "--overlap", "1h")["secret"] != created["secret"]
    sent = person.done("webhooks", "test", "Alerts").split()
    assert sent[0] == "pending"
    (delivery,) = person.json("webhooks", "deliveries", "Alerts")["items"]
    assert (delivery["id"], delivery["event"]) == (sent[1], "webhook.test")
    assert person.json("webhooks", "redeliver", "Alerts", sent[1][:20])["id"] == sent[1]
    assert person.done("webhooks", "disable", "Alerts") == f"disabled {webhook_id}\n"
    assert person.done("webhooks", "enable", "Alerts") == f"enabled {webhook_id}\n"
    assert webhook_id in person.done("webhooks", "list")
    assert person.refused("webhooks", "create", url, "--event", "run.started")[0] == 2
    assert person.refused("webhooks", "delete", "Alerts")[0] == 2
    person.done("webhooks", "delete", "Alerts", "--yes")
    assert person.json("webhooks", "list")["items"] == []


async def test_completion_offers_ids_with_names(tmp_path: Path, server: Server, world: World) -> None:
    person = nearby(tmp_path, server, world)
    session_id = (await world.post("/v1/sessions", {"title": "Release plan"})).json()["id"]
    await world.post("/v1/skills", {"name": "greeting"})
    await world.post("/v1/skills", {"name": "gr$(touch owned)"})
    hostile = (await world.post("/v1/sessions", {"title": "a\\$(touch owned)`b`'\";|<c"})).json()["id"]
    assert f"{hostile}\ta touch owned b c" in complete(person, "qd sessions show ")
    assert f"{session_id}\tRelease plan" in complete(person, "qd sessions show ")
    assert f"{session_id}\tRelease plan" in complete(person, f"qd send {session_id[:10]}")
    assert [line.split("\t")[0] for line in complete(person, "qd skills versions gr")] == ["greeting"]
    assert any(line.endswith("\ttest") for line in complete(person, "qd keys revoke "))
    token_id = (await world.post(f"/v1/sessions/{session_id}/tokens", {})).json()["id"]
    (offered,) = complete(person, "qd tokens revoke 'Release plan' ")
    assert offered.startswith(f"{token_id}\tqds_")
    assert "demo" in complete(person, "qd sessions create --model d")
    assert complete(person, "qd sessions create --skill gre")[0].startswith("greeting\t")
    assert complete(person, "qd audit --type ses") == ["session", "session_token"]
    assert complete(person, "qd webhooks create --event run.f") == ["run.failed"]
    # Without a server there is nothing to offer, and no message.
    away = Nearby(tmp_path, {"QD_URL": "http://127.0.0.1:9", "QD_KEY": "qd_live_x"})
    assert complete(away, "qd sessions show ") == [""]


def complete(person: Nearby, words: str) -> list[str]:
    asked = {
        "_QD_COMPLETE": "complete_fish",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        "_TYPER_COMPLETE_ARGS": words,
    }
    ended = Nearby(person.home, person.variables | asked).qd()
    assert ended.stderr == ""
    return ended.stdout.splitlines()
