"""`qd chat` and `qd watch` in a terminal and in a pipe, with a real server and worker."""

import asyncio
import json
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from tests.cli.command import QD, environment, qd_here_in, qd_in
from tests.cli.screen import Terminal, terminal
from tests.fault.stand_in import Brake, walk_to
from tests.workers import check_log, ended, log_of, working
from tests.world import Server, World, serving

ANSWER = "here is what reached me"


@pytest.fixture(scope="module")
def worker(server: Server) -> Iterator[None]:
    with working(server.database_url, server.data_dir):
        yield


def variables_of(server: Server, world: World) -> dict[str, str]:
    return {"QD_URL": server.url, "QD_KEY": world.key, "QD_WORKSPACE": str(world.workspace_id)}


def session_of(screen: Terminal) -> str:
    # A narrow screen wraps the line.
    text = " ".join(screen.wait("New session", "Type /help").split())
    match = re.search(r"Resume with: qd chat ([0-9a-f-]{36})", text)
    assert match, text
    return match[1]


@pytest.mark.usefixtures("worker")
async def test_a_conversation(server: Server, world: World) -> None:
    with terminal("chat", variables=variables_of(server, world)) as screen:
        session_id = session_of(screen)
        screen.enter("hello there")
        text = screen.wait_once("› hello there", "> hello there", "Demo model: step 1 of 2.", ANSWER, "My tools said:")
        assert "Started a run · Read at step 1" in text
        assert re.search(r"^  ⚙ current_time\(\) → .* UTC$", text, re.MULTILINE)
        screen.enter("/nonsense")
        screen.wait("Unknown command: /nonsense")
        screen.enter("/help")
        screen.wait("Insert a line break")
        screen.enter("/cancel")
        screen.wait("No active run.")
        screen.enter("/quit")
        assert screen.ended() == 0
        assert "The run continues on the server." not in screen.text()
    texts = [entry["data"]["text"] for entry in await log_of(world, session_id) if entry["type"] == "input.accepted"]
    assert texts == ["hello there"], "commands are not inputs"


@pytest.mark.long
@pytest.mark.usefixtures("worker")
async def test_the_answer_streams_while_the_next_input_is_typed(server: Server, world: World) -> None:
    with terminal("chat", variables=variables_of(server, world)) as screen:
        session_id = session_of(screen)
        async with Brake(world, session_id) as brake:
            screen.enter("demo: slow 1")
            await brake.let_pass()
            # The answer to the first step is given, and cannot be stored.
            await walk_to(brake, "store call")
            screen.wait("Read at step 1")
            screen.wait("Demo model: step 1 of 2.")
            assert not [entry for entry in await log_of(world, session_id) if entry["type"] == "message"], (
                "not stored yet"
            )
            screen.type("be brie")
            screen.wait("› be brie")
            screen.type("f\r")
            await brake.let_pass(2)
            screen.wait("› be brief", "Queued for the current run")
            screen.enter("and kind")
            await brake.let_pass(2)
        screen.wait("steered me with:", "> and kind", "My tools said:")
        text = screen.wait_once("› be brief", "› and kind", "step 1 of 2. I look", ANSWER)
        assert "Queued for" not in text
        assert text.count("Steered the run · Read at step 2") == 2
        assert text.index("› be brief") < text.index("› and kind"), "in their order"
        screen.type("\x04")
        assert screen.ended() == 0
    check_log(await log_of(world, session_id))


@pytest.mark.long
@pytest.mark.usefixtures("worker")
async def test_ctrl_c_cancels_and_keeps_what_is_typed(server: Server, world: World) -> None:
    with terminal("chat", variables=variables_of(server, world)) as screen:
        session_id = session_of(screen)
        # Without an active run Ctrl-C asks once.
        screen.type("demo: ")
        screen.interrupt()
        screen.wait("Press Ctrl-C again to quit.", "› demo:")
        async with Brake(world, session_id) as brake:
            screen.enter("slow 99")
            await brake.let_pass()
            # The run begins. What comes after that is for the next step.
            await brake.let_pass()
        screen.wait("Running · Ctrl-C to cancel", "Read at step 1")
        screen.enter("never read")
        screen.wait("Queued for the current run")
        screen.type("half a li")
        screen.interrupt()
        screen.wait("Cancelling the run.", "Run cancelled.", "Discarded: The run was cancelled.", "› half a li")
        screen.wait_for(lambda text: "● Running" not in text, "the end of the run")
        assert screen.process.poll() is None
        screen.interrupt()
        screen.interrupt()
        assert screen.ended() == 0
    log = await log_of(world, session_id)
    assert log[-1]["type"] == "run.cancelled"
    check_log(log)


@pytest.mark.long
@pytest.mark.usefixtures("worker")
async def test_ctrl_c_twice_cancels_and_quits(server: Server, world: World) -> None:
    with terminal("chat", variables=variables_of(server, world)) as screen:
        session_id = session_of(screen)
        screen.enter("demo: slow 99")
        screen.wait("Running · Ctrl-C to cancel", "Read at step 1")
        screen.type("\x03\x03")
        assert screen.ended() == 0
        screen.wait("Run cancelled.")
    assert (await log_of(world, session_id))[-1]["type"] == "run.cancelled"


@pytest.mark.long
@pytest.mark.usefixtures("worker")
async def test_resuming_shows_the_last_messages(server: Server, world: World) -> None:
    session_id = await world.new_session()
    for number in range(8):
        run_id = (await world.submit(session_id, f"input {number}")).json()["run_id"]
        await ended(world, run_id)
    with terminal("chat", session_id, variables=variables_of(server, world)) as screen:
        text = screen.wait(f"Earlier messages: qd watch {session_id}", "› input 7", "> input 7")
        assert "› input 0" not in text
        assert "another client" not in text
        await world.submit(session_id, "from another client")
        screen.wait("Sent from another client · Started a run · Read", "> from another client")
        screen.enter("demo: slow 99")
        screen.wait_for(
            lambda text: "› demo: slow 99" in text and "Sending…" not in text and "Running · Ctrl-C" in text,
            "the input is accepted and worked on",
        )
        screen.enter("/quit")
        assert screen.ended() == 0
        assert "The run continues on the server." in screen.text()
    runs = (await world.get(f"/v1/sessions/{session_id}/runs?limit=1")).json()["items"]
    await world.post(f"/v1/runs/{runs[0]['id']}/cancel", None)


@pytest.mark.long
async def test_quitting_waits_for_the_response(database_url: str, tmp_path: Path) -> None:
    """There is no worker."""
    with serving(database_url, tmp_path) as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=30) as http:
            world = await World.create(database_url, http)
            with terminal("chat", variables=variables_of(server, world)) as screen:
                session_id = session_of(screen)
                screen.type("hello\r/quit\r")
                assert screen.ended() == 0
                screen.wait("› hello", "Started a run · Queued", "The run continues on the server.")
            assert [entry["type"] for entry in await log_of(world, session_id)] == ["input.accepted"]


@pytest.mark.long
async def test_a_server_restart_loses_and_repeats_nothing(database_url: str, tmp_path: Path) -> None:
    with ExitStack() as stack:
        first = stack.enter_context(ExitStack())
        server = first.enter_context(serving(database_url, tmp_path))
        stack.enter_context(working(database_url, tmp_path))
        http = httpx.AsyncClient(base_url=server.url, timeout=30)
        async with http:
            world = await World.create(database_url, http)
            screen = stack.enter_context(terminal("chat", rows=50, variables=variables_of(server, world)))
            session_id = session_of(screen)
            screen.enter("demo: slow 6")
            screen.wait("Demo model: step")
            first.close()
            screen.wait("Connection lost. Reconnecting…", "○ Reconnecting…")
            screen.enter("sent while it was away")
            screen.enter("and one more")
            screen.wait("› sent while it was away", "› and one more", "Sending…")
            stack.enter_context(serving(database_url, tmp_path, SERVER_PORT=server.port))
            screen.wait("Reconnected.", "> and one more")
            screen.wait_for(lambda text: "● Running" not in text, "the end of the run")
            screen.enter("after all that")
            screen.wait("> after all that")
            inputs = ["demo: slow 6", "sent while it was away", "and one more", "after all that"]
            screen.wait_once(*(f"› {text}" for text in inputs), "Connection lost", "Reconnected.")
            log = await log_of(world, session_id)
            said = [entry["data"]["text"] for entry in log if entry["type"] == "message"]
            screen.wait_for(lambda text: text.count("Demo model:") == len(said), "each answer once")
            screen.enter("/quit")
            assert screen.ended() == 0
    check_log(log)
    assert [entry["data"]["text"] for entry in log if entry["type"] == "input.accepted"] == inputs


@pytest.mark.long
@pytest.mark.usefixtures("worker")
async def test_a_narrow_terminal_that_grows(server: Server, world: World) -> None:
    long = "a line that is a good deal longer than forty columns, and goes on"
    with terminal("chat", columns=40, rows=12, variables=variables_of(server, world)) as screen:
        session_of(screen)
        screen.enter(long)
        screen.wait("My tools said:", "UTC")
        told = f"› {long} Started a run · Read at step 1"
        screen.wait_for(lambda text: told in " ".join(text.split()), told)
        screen.resize(100, 30)
        screen.enter(f"again: {long}")
        screen.wait(f"› again: {long}", f"> again: {long}")
        screen.enter("/quit")
        assert screen.ended() == 0


@pytest.mark.long
@pytest.mark.usefixtures("worker")
async def test_control_characters_of_others_do_not_reach_the_terminal(server: Server, world: World) -> None:
    session_id = await world.new_session()
    hostile = "be\x1b]0;owned\x07fore \x1b[2J\x1b[31mafter \x9b5n\x1bc end"
    with terminal("chat", session_id, variables=variables_of(server, world)) as screen:
        screen.wait("Type /help")
        await world.submit(session_id, hostile)
        screen.wait("› before after  end", "> before after  end")
        screen.enter("/quit")
        assert screen.ended() == 0
    for order in (b"owned", b"\x1b[2J", b"\x1b[31m", b"\x9b", b"\xc2\x9b", b"\x1bc"):
        assert order not in screen.raw.replace(b"\xe2\x80\xba", b"")


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.usefixtures("worker")
async def test_a_line_of_a_megabyte_is_cut_and_ctrl_c_works(server: Server, world: World) -> None:
    """In the log when the chat starts, and sent by another client to a run that Ctrl-C cancels."""

    def has_mark(count: str) -> Callable[[str], bool]:
        # The mark is wrapped with its line.
        return lambda text: f"({count} more characters)" in " ".join(text.split())

    session_id, line = await world.new_session(), "x" * 1_000_000
    await ended(world, (await world.submit(session_id, line)).json()["run_id"])
    with terminal("chat", session_id, variables=variables_of(server, world)) as screen:
        screen.wait("Type /help")
        screen.wait_for(has_mark("990,000"), "the mark of the line in the log")
        await world.submit(session_id, f"demo: slow 99\n{line}yz")
        screen.wait_for(has_mark("990,002"), "the mark of the live line")
        screen.wait("Running · Ctrl-C to cancel", "Sent from another client")
        screen.interrupt()
        screen.wait("Run cancelled.")
        screen.wait_for(lambda text: "● Running" not in text, "the end of the run")
        screen.interrupt()
        screen.interrupt()
        assert screen.ended() == 0
    assert len(screen.raw) < 200_000


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.usefixtures("worker")
async def test_a_pipe_and_the_log_have_the_whole_line(server: Server, world: World) -> None:
    line = "x" * 1_000_000
    session_id = await world.new_session()
    environ = environment() | variables_of(server, world)
    done = subprocess.run(
        [*QD, "chat", session_id], input=line, env=environ, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr
    assert f"\n> {line}\n" in done.stdout
    assert line in qd_in(environ, "watch", session_id, "--until-idle").stdout


@pytest.mark.usefixtures("worker")
async def test_in_a_pipe_each_line_is_an_input(server: Server, world: World) -> None:
    done = subprocess.run(
        [*QD, "chat"],
        input="first\n\nsecond, the last without a line break",
        env=environment() | variables_of(server, world),
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout + done.stderr
    assert "\n> first\n" in done.stdout
    assert "\n> second, the last without a line break\n" in done.stdout
    assert ANSWER in done.stdout
    assert "Started a run: first" in done.stderr


@pytest.mark.usefixtures("worker")
async def test_in_a_pipe_a_failed_run_sets_the_exit_code(server: Server, world: World) -> None:
    done = subprocess.run(
        [*QD, "chat"],
        input="demo: fail\n",
        env=environment() | variables_of(server, world),
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 1
    assert "Run failed: Demo model: it was told to fail." in done.stderr


@pytest.mark.long
@pytest.mark.usefixtures("worker")
async def test_watch_until_idle_prints_the_log(server: Server, world: World) -> None:
    session_id = await world.new_session()
    await world.submit(session_id, "demo: slow 1")
    environ = environment() | variables_of(server, world)
    done = qd_in(environ, "watch", session_id, "--json", "--until-idle")
    assert done.returncode == 0, done.stderr
    log = await log_of(world, session_id)
    assert log[-1]["type"] == "run.succeeded"
    assert [json.loads(line) for line in done.stdout.splitlines()] == log
    rest = qd_in(environ, "watch", session_id, "--after", str(log[-2]["id"]), "--until-idle")
    assert re.fullmatch(rf" *{log[-1]['id']}  \d\d:\d\d:\d\d  run.succeeded\n", rest.stdout)


@pytest.mark.parametrize(
    ("arguments", "changed", "code", "words"),
    [
        (["chat", "nonsense"], {}, 4, "No session matches"),
        (["chat"], {"QD_KEY": "", "QD_PROFILE": "nobody"}, 2, "nobody"),
        (["chat"], {"QD_KEY": "qd_test_wrong"}, 3, "Invalid, expired or revoked login or key"),
        (["chat", "8c9f0f5e-3d5a-4f0e-9b1a-2f6f0c1d7e55"], {}, 4, "session"),
        (["watch", "8c9f0f5e-3d5a-4f0e-9b1a-2f6f0c1d7e55"], {}, 4, "session"),
        (["watch", "8c9f0f5e-3d5a-4f0e-9b1a-2f6f0c1d7e55"], {"QD_URL": "http://127.0.0.1:1"}, 6, "Cannot connect"),
        (["chat", "8c9f0f5e-3d5a-4f0e-9b1a-2f6f0c1d7e55", "--title", "x"], {}, 2, "for new sessions"),
    ],
)
async def test_errors_are_one_line(
    server: Server, world: World, arguments: list[str], changed: dict[str, str], code: int, words: str
) -> None:
    environ = environment() | variables_of(server, world) | changed
    # In a thread, because these commands start an event loop.
    done = await asyncio.to_thread(qd_here_in, environ, *arguments)
    assert done.returncode == code
    (line,) = done.stderr.splitlines()
    assert line.startswith("qd: ")
    assert words in line
