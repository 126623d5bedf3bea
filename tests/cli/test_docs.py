"""The commands in the docs, run as they are written, and the completeness of docs/use/cli.md."""

import base64
import json
import re
import stat
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from quarterdeck.cli import connection
from quarterdeck.cli.errors import ExitCode
from quarterdeck.cli.main import SERVER_COMMANDS, LazyCommand, root
from quarterdeck.client import AsyncClient
from quarterdeck.client.models import WebhookEvent
from tests.cli.people import Person
from tests.cli.screen import terminal
from tests.cli.shell import shell
from tests.pages import ROOT, blocks_of, texts_of
from tests.receivers import Receiver, receiving
from tests.workers import eventually

PAGE = ROOT / "docs" / "use" / "cli.md"


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.slowest
def test_the_commands_run_from_top_to_bottom(tmp_path: Path) -> None:
    with shell(tmp_path, MODEL_DEMO_PAUSE_SECONDS="0.01") as at:
        shown = "\n".join(at.run(texts_of(blocks_of("docs/use/cli.md", "sh"))))
    assert "> Plan our release." in shown
    assert "+Always say ahoy." in shown
    assert "greeting: sessions use the latest version (now 2)" in shown
    assert "revoked qd_live_" in shown
    assert (tmp_path / "greeting.tar.gz").read_bytes()[:2] == b"\x1f\x8b"
    assert (tmp_path / "files" / "out" / "loud.txt").read_text() == "RELEASE 7 IS PLANNED FOR MAY.\n"
    profiles = Person(tmp_path).profiles
    assert stat.S_IMODE(profiles.stat().st_mode) == 0o600
    assert '"work"' not in profiles.read_text()


@pytest.mark.long
@pytest.mark.timeout(400)
def test_pages_for_operators_run_from_top_to_bottom(tmp_path: Path) -> None:
    with shell(tmp_path) as at:
        blocks = texts_of(blocks_of("docs/run/admin.md", "sh"))
        blocks += texts_of(blocks_of("docs/run/encryption-keys.md", "sh"))
        blocks += texts_of(blocks_of("docs/run/backups.md", "sh"))
        admin, audit, *_, key = at.run([*blocks, "printenv QUARTERDECK_ENCRYPTION_KEYS"])
    assert "owner ann@example.com" in admin
    assert re.search(r"qd_live_\w+…  revoked  ci", admin)
    assert [event["action"] for event in json.loads(audit)["items"]] == ["create_api_key"]
    assert len(base64.b64decode(key, validate=True)) == 32


@pytest.mark.long
@pytest.mark.timeout(400)
def test_people_page_runs(tmp_path: Path) -> None:
    """Except what needs somebody with a browser: `tests/cli/test_sign_in.py` and `test_people.py` try that."""
    with shell(tmp_path) as at:
        invited, operated = at.run(texts_of(blocks_of("docs/use/people.md", "sh")))
        (announced,) = texts_of(blocks_of("docs/use/people.md", "text"))
        printed = at.serving.output.read_text()
    assert re.search(r"link http://127.0.0.1:\d+/#/invitation\?token=qdi_live_\w+\n", invited)
    assert re.search(r"grace@example.com +member +pending", invited)
    assert re.search(r"  admin  bob@example.com\n", operated)
    assert announced.splitlines()[0] in printed
    assert re.search(r"/#/invitation\?token=qdi_live_\w+\n", printed)


@pytest.mark.long
async def test_webhooks_page_runs_and_deliveries_match(tmp_path: Path) -> None:
    (arrives,) = texts_of(blocks_of("docs/use/webhooks.md", "http"))
    head, _, body = arrives.partition("\n\n")
    allowed = {"WEBHOOK_ALLOW_PRIVATE_ADDRESSES": "true", "WEBHOOK_ALLOW_HTTP": "true"}
    with shell(tmp_path, MODEL_DEMO_PAUSE_SECONDS="0", **allowed) as at:
        (created,) = at.run(texts_of(blocks_of("docs/use/webhooks.md", "sh")))
        assert json.loads(created)["secret"].startswith("whsec_")
        async with receiving() as receiver, AsyncClient(at.variables["QD_URL"], at.variables["QD_KEY"]) as client:
            await client.create_webhook(url=receiver.url("/quarterdeck"), events=[WebhookEvent.RUN_SUCCEEDED])
            session = await client.create_session()
            await client.submit_input(session.id, text="Hello.")
            await eventually(partial(arrived, receiver))
    (received,) = receiver.received
    assert head.splitlines()[0] == f"POST {received.path} HTTP/1.1"
    names = {line.partition(":")[0].lower() for line in head.splitlines()[1:]}
    assert names <= set(received.headers)
    assert shape(json.loads(body)) == shape(received.json)


@pytest.mark.long
async def test_pages_about_runs_and_files_run_from_top_to_bottom(tmp_path: Path) -> None:
    with shell(tmp_path, MODEL_DEMO_PAUSE_SECONDS="0") as at:
        submitted, waiting, resolved = map(json.loads, at.run(texts_of(blocks_of("docs/use/actions.md", "sh"))))
        async with AsyncClient(at.variables["QD_URL"], at.variables["QD_KEY"]) as client:

            async def note() -> Any:
                page = await client.list_session_events(resolved["session_id"])
                return [event.data["text"] for event in page.items if event.type == "note"]

            assert await eventually(note) == ["The release is done."]
            uploaded, listed, attached = map(json.loads, at.run(texts_of(blocks_of("docs/use/files.md", "sh"))))
            await eventually(partial(has_ended, client, attached["run_id"]))
            usage, workspace = map(json.loads, at.run(texts_of(blocks_of("docs/use/usage.md", "sh"))))
            (kept,) = at.run(texts_of(blocks_of("docs/run/retention.md", "sh")))
            (sent,) = at.run(texts_of(blocks_of("docs/use/batches.md", "sh")))
            assert (await client.get_run(sent.split()[-1])).priority == "batch"
    assert (uploaded["media_type"], listed["items"], attached["outcome"]) == ("text/csv", [], "new_run")
    assert submitted["outcome"] == "new_run"
    assert (waiting["state"], waiting["tool"], waiting["run_id"]) == ("open", "add_note", submitted["run_id"])
    assert (resolved["state"], resolved["resolution"]["decision"]) == ("resolved", "allow")
    assert [item["group"] for item in usage["items"]] == ["demo"]
    assert workspace["limits"]["day"] == {"max_cost_usd": 20, "max_tokens": None}
    assert re.search(r"runs +365 +workspace\nevents +365 +runs\nfiles +90 +workspace", kept)


async def has_ended(client: AsyncClient, run_id: str) -> bool:
    return (await client.get_run(run_id)).finished_at is not None


async def arrived(receiver: Receiver) -> bool:
    return bool(receiver.received)


def shape(value: Any) -> Any:
    """Names and types. null and text count as the same."""
    if isinstance(value, dict):
        return {name: shape(inner) for name, inner in value.items()}
    return "text" if value is None else "number" if isinstance(value, int) else "text"


@pytest.mark.long
def test_chat_page_runs_and_matches(tmp_path: Path) -> None:
    in_a_terminal, *in_a_pipe = texts_of(blocks_of("docs/use/chat.md", "sh"))
    picture, waiting = texts_of(blocks_of("docs/use/chat.md", "text"))
    expected = [line.split("  ←")[0].rstrip() for line in picture.splitlines() if line and "you type" not in line]
    with shell(tmp_path) as at:
        command = ["sh", "-eu", "-c", in_a_terminal]
        with terminal(variables=at.environ(), command=command, cwd=tmp_path) as screen:
            screen.wait("New session", "Type /help")
            first, second = (line.removeprefix("› ") for line in expected if line.startswith("› "))
            screen.enter(first)
            screen.wait("Read at step 1")
            screen.enter(second)
            screen.wait_for(lambda text: set(expected) <= set(text.splitlines()), f"{expected}")
            screen.interrupt()
            screen.wait("cancelled")
            screen.enter("note: Buy milk.")
            # The screen wraps lines.
            screen.wait_for(lambda text: " ".join(waiting.split()) in " ".join(text.split()), waiting)
            screen.interrupt()
            screen.wait_for(lambda text: "Waiting for an answer" not in text, "the end of the run")
            screen.enter("/quit")
            assert screen.ended() == 0
        piped, watched = at.run(in_a_pipe)
    assert "> Keep it to one page." in piped
    *entries, last = watched.splitlines()
    assert any("Keep it to one page." in line for line in entries)
    assert json.loads(last)["type"] == "run.succeeded"


def test_the_page_has_every_command() -> None:
    page = PAGE.read_text("utf-8")
    missing = [words for words in commands() if not re.search(rf"`?qd {words}\b|`{words.split()[-1]}\b", page)]
    assert missing == []


def test_the_page_has_every_exit_code_and_variable() -> None:
    page = PAGE.read_text("utf-8")
    assert {int(code) for code in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)} == {0, *ExitCode}
    names = [getattr(connection, name) for name in ("URL", "KEY", "WORKSPACE", "PROFILE", "ALLOW_HTTP")]
    assert [name for name in names if f"`{name}" not in page] == []


def commands() -> Iterator[str]:
    """The commands for users, such as `keys list`."""
    for name, command in root().commands.items():
        if name in SERVER_COMMANDS:
            continue
        assert isinstance(command, LazyCommand)
        below = getattr(command.load(), "commands", None)
        yield from [name] if below is None else (f"{name} {inner}" for inner in below)
