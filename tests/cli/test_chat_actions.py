"""Answering what a run waits for in `qd chat`, by single keys in a real terminal, and the hints without one."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import QD, environment, qd_in
from tests.cli.screen import Terminal, terminal
from tests.cli.shell import install
from tests.cli.test_chat import variables_of
from tests.workers import ended, eventually, log_of, losing_notes, working
from tests.world import Server, World

WEATHER = {"name": "weather", "description": "Tells the weather.", "parameters": {"type": "object"}}
KEYS = "a allow · d deny · e edit arguments · s allow for this session · m write a message"
CTRL_U = "\x15"


@pytest.fixture(scope="module")
def worker(server: Server) -> Iterator[None]:
    with working(server.database_url, server.data_dir):
        yield


async def new_session(world: World, **fields: Any) -> str:
    answer = await world.post("/v1/sessions", fields)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


async def notes(world: World, session_id: str) -> list[str]:
    return [entry["data"]["text"] for entry in await log_of(world, session_id) if entry["type"] == "note"]


async def open_action(world: World, session_id: str) -> dict[str, Any]:
    async def look() -> Any:
        return (await world.get(f"/v1/actions?state=open&session_id={session_id}")).json()["items"]

    found: list[dict[str, Any]] = await eventually(look)
    return found[0]


def waits(screen: Terminal, *words: str) -> None:
    screen.wait("○ Waiting for an answer · Ctrl-C to cancel", *words)


def goes_on(screen: Terminal, *words: str) -> None:
    screen.wait(*words)
    screen.wait_for(lambda text: " · Ctrl-C to cancel" not in text, "the end of the run")


@pytest.mark.long
@pytest.mark.usefixtures("worker")
async def test_approvals(server: Server, world: World) -> None:
    session_id = await new_session(world)
    with terminal("chat", session_id, columns=110, rows=50, variables=variables_of(server, world)) as screen:
        screen.wait("Type /help")
        screen.enter("note: first")
        waits(screen, '? Approval required: add_note({"text":"first"})', KEYS)
        screen.type("z")
        screen.type("a")
        goes_on(screen, 'add_note({"text":"first"}) → Allowed', "Note: first")

        screen.enter("note: second")
        waits(screen, '({"text":"second"})')
        screen.type("d")
        screen.wait("message ›")
        screen.type("\x1b")
        screen.wait(KEYS)
        screen.type("dnot today\r")
        goes_on(screen, "→ Denied", ": not today")

        screen.enter("note: third")
        waits(screen, '({"text":"third"})')
        screen.type("e")
        screen.wait("arguments ›", '"text": "third"')
        screen.type("oops\r")
        screen.wait("Not a JSON object:")
        # The whole text: to its end, and back to its start.
        screen.type("\x1b>" + CTRL_U + "\x7f" + CTRL_U + "\x7f" + CTRL_U + '{"text": "edited"}\r')
        goes_on(screen, 'with changed arguments {"text":"edited"}', "Note: edited")

        screen.enter("note: fourth")
        waits(screen, '({"text":"fourth"})')
        # A message goes to the same run.
        screen.type("m")
        screen.wait("input ›")
        screen.type("after that, stop\r")
        screen.wait("› after that, stop", "Queued for the current run")
        screen.type("s")
        goes_on(screen, "Allowed for this session", "Steered the run")
        screen.enter("note: fifth")
        goes_on(screen, "Note: fifth")

        await world.patch(f"/v1/sessions/{session_id}", {"tool_policy": {"add_note": "ask"}})
        screen.enter("/quit")
        assert screen.ended() == 0
    assert await notes(world, session_id) == ["first", "edited", "fourth", "fifth"]
    told = [entry["data"]["text"] for entry in await log_of(world, session_id) if entry["type"] == "tool.result"]
    assert "Denied: not today" in told


@pytest.mark.long
@pytest.mark.usefixtures("worker")
async def test_results_and_answers_of_others(server: Server, world: World) -> None:
    session_id = await new_session(world, client_tools=[WEATHER])
    with terminal("chat", session_id, columns=110, rows=50, variables=variables_of(server, world)) as screen:
        screen.wait("Type /help")
        screen.enter('call: weather {"city": "Oslo"}')
        waits(screen, '? Result required: weather({"city":"Oslo"})', "r type the result · x type an error")
        screen.type("r")
        screen.wait("result ›")
        screen.type('{"rain": true}\r')
        goes_on(screen, 'weather({"city":"Oslo"}) → Result sent', '⚙ weather({"city":"Oslo"}) → {"rain":true}')
        screen.enter("call: weather")
        waits(screen, "weather()")
        screen.type("x\r")
        screen.wait('Type a result. An empty one is "".')
        screen.type("no such city\r")
        goes_on(screen, "weather() → Error sent", "Error: no such city")

        # Somebody else answers while this user types.
        screen.enter('call: weather {"city": "Rome"}')
        waits(screen, '({"city":"Rome"})')
        screen.type("rhalf an ans")
        screen.wait("result › half an ans")
        action = await open_action(world, session_id)
        await world.post(f"/v1/actions/{action['id']}/resolve", {"result": "sunny"})
        goes_on(screen, '⚙ weather({"city":"Rome"}) → sunny')
        assert "half an ans" not in screen.text()

        # A new start of the chat finds what is open, and Ctrl-C cancels.
        screen.enter('call: weather {"city": "Lima"}')
        waits(screen, '({"city":"Lima"})')
        screen.enter("/quit")
        assert screen.ended() == 0
    with terminal("chat", session_id, columns=110, rows=50, variables=variables_of(server, world)) as screen:
        # Below the last block that is printed: while blocks are printed, no key is read.
        waits(screen, "Type /help", '? Result required: weather({"city":"Lima"})')
        screen.interrupt()
        goes_on(screen, 'weather({"city":"Lima"}) → Cancelled', "Run cancelled.")


@pytest.mark.long
@pytest.mark.usefixtures("worker")
async def test_limits_and_the_editor(server: Server, world: World, tmp_path: Path) -> None:
    """The editor of the user replaces a word."""
    install(tmp_path / "edit", '#!/bin/sh\nsed -i s/draft/final/ "$1"\n')
    variables = variables_of(server, world) | {"EDITOR": str(tmp_path / "edit")}
    session_id = await new_session(world, limits={"run": {"max_tokens": 5}})
    with terminal("chat", session_id, columns=110, rows=50, variables=variables) as screen:
        screen.wait("Type /help")
        screen.enter("note: draft")
        waits(screen, '({"text":"draft"})')
        screen.type("e")
        screen.wait("arguments ›", '"text": "final"')
        screen.type("\r")
        waits(
            screen,
            "? Limit reached:",
            "of 5 tokens used, the limit of the run",
            "r raise the limit for this run · s stop the run",
        )
        screen.type("r")
        screen.wait("New limit for this run, in tokens.", "new limit ›")
        screen.type("5\r")
        screen.wait("The new limit must be above what is used")
        screen.type(CTRL_U + "1,000,000\r")
        goes_on(screen, "Limit raised", "1,000,000 tokens")
        screen.enter("hello")
        waits(screen, "? Limit reached:")
        screen.type("s")
        goes_on(screen, "→ Stopped", "Run failed:")
    assert await notes(world, session_id) == ["final"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("typed", "expected"),
    [("oIn the book.", "Marked as done"), ("f", "Marked as failed"), ("t", "Retry requested")],
)
@pytest.mark.usefixtures("worker")
async def test_unknown_outcomes(server: Server, world: World, typed: str, expected: str) -> None:
    session_id = await new_session(world, tool_policy={"add_note": "allow"})
    with terminal("chat", session_id, columns=110, rows=50, variables=variables_of(server, world)) as screen:
        screen.wait("Type /help")
        async with losing_notes(world, session_id):
            screen.enter("note: once")
            waits(screen, "? Outcome unknown: add_note(", "t try again · o it was done · f it failed")
        screen.type(typed)
        # Nothing is sent without Enter.
        screen.wait("Esc goes back")
        screen.type("\r")
        goes_on(screen, expected, *(["In the book."] if typed[0] == "o" else []))
        [run] = (await world.get(f"/v1/sessions/{session_id}/runs")).json()["items"]
        await ended(world, run["id"])
    assert await notes(world, session_id) == (["once"] if typed == "t" else [])


@pytest.mark.long
@pytest.mark.usefixtures("worker")
async def test_without_a_terminal_a_line_says_how_to_answer(server: Server, world: World) -> None:
    """`qd chat` in a pipe and `qd send --wait` wait, `qd watch` shows readable lines."""
    environ = environment() | variables_of(server, world)
    session_id = await new_session(world)
    for command in (["chat", session_id], ["send", session_id, "note: from a pipe", "--wait"]):
        process = subprocess.Popen(
            [*QD, *command], env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert process.stdin is not None
        process.stdin.write(b"note: from a pipe\n" if command[0] == "chat" else b"")
        process.stdin.close()
        process.stdin = None
        action = await open_action(world, session_id)
        done = qd_in(environ, "actions", "resolve", action["id"], "--allow")
        assert done.returncode == 0, done.stderr
        _, said = process.communicate(timeout=60)
        assert process.returncode == 0, said
        text = said.decode()
        assert 'Approval required: add_note({"text":"from a pipe"})' in text
        assert f"Answer with: qd actions resolve {action['id']} --allow or --deny" in text
    run_id = (await world.submit(session_id, "note: never")).json()["run_id"]
    await open_action(world, session_id)
    await world.post(f"/v1/runs/{run_id}/cancel", None)
    await ended(world, run_id)
    lines = qd_in(environ, "watch", session_id, "--until-idle").stdout
    assert "{}" not in lines
    assert '"action_id"' not in lines
    assert '"discarded_input_ids"' not in lines
    for part in ("Approval required: add_note(", "add_note: Allowed by ", "add_note: Cancelled", "note  ", "attempt 1"):
        assert part in lines
