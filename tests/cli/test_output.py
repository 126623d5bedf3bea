"""Output in terminals and pipes, and error lines."""

import re
import subprocess
from pathlib import Path

import pytest

from quarterdeck import __version__
from quarterdeck.cli.main import LazyCommand, root
from tests.cli.command import QD
from tests.cli.people import Nearby, Person, nearby, person_of
from tests.world import Server, World, bundle, free_port

ESCAPE = "\x1b["


async def test_colour_is_for_terminals(tmp_path: Path, server: Server, world: World) -> None:
    person = nearby(tmp_path, server, world)
    assert ESCAPE not in person.done("keys", "list")
    code, shown = person.at_terminal("keys", "list")
    assert code == 0, shown
    assert f"{ESCAPE}32mactive" in shown
    plain = Nearby(tmp_path, {**person.variables, "NO_COLOR": "1"})
    assert f"{ESCAPE}32m" not in plain.at_terminal("keys", "list")[1]


async def test_a_diff_has_colours_at_a_terminal(tmp_path: Path, server: Server, world: World) -> None:
    person = nearby(tmp_path, server, world)
    skill_id = await world.new_skill()
    for words in ("old words\n", "new words\n"):
        assert (await world.push(skill_id, bundle(notes=words))).status_code == 201
    shown = person.at_terminal("skills", "diff", skill_id, "1", "2")[1]
    assert f"{ESCAPE}31m-old words" in shown
    assert f"{ESCAPE}32m+new words" in shown
    assert ESCAPE not in person.done("skills", "diff", skill_id, "1", "2")


async def test_a_transfer_has_a_bar_at_a_terminal_only(tmp_path: Path, server: Server, world: World) -> None:
    person = nearby(tmp_path, server, world)
    (tmp_path / "packed.tar.gz").write_bytes(bundle("packed"))
    pushed = person.qd("skills", "push", "packed", "packed.tar.gz", "--create")
    assert (pushed.returncode, pushed.stderr) == (0, "")
    assert "Pushing packed" in person.at_terminal("skills", "push", "packed", "packed.tar.gz", "--force")[1]
    assert "Downloading packed version 1" in person.at_terminal("skills", "download", "packed", "1")[1]
    assert person.qd("skills", "download", "packed", "1").stderr == ""


async def test_a_pipe_gets_whole_lines(tmp_path: Path, server: Server, world: World) -> None:
    """However narrow the terminal is that the command was started in."""
    person = nearby(tmp_path, server, world)
    narrow = Nearby(tmp_path, {**person.variables, "COLUMNS": "20"})
    title = "A title that is long enough to be wrapped, folded or cut"
    await world.post("/v1/sessions", {"title": title})
    (line,) = narrow.done("sessions", "list").splitlines()[1:]
    assert title in line
    assert line == line.rstrip()


async def test_a_narrow_terminal_loses_no_column(tmp_path: Path, server: Server, world: World) -> None:
    person = nearby(tmp_path, server, world)
    narrow = Nearby(tmp_path, {**person.variables, "COLUMNS": "40"})
    shown = narrow.at_terminal("keys", "list")[1]
    assert "LAST USED" in shown
    assert "workspace.read key.manage session.manage action.resolve skill.manage" in shown


async def test_json_escapes_control_characters(tmp_path: Path, server: Server, world: World) -> None:
    person = nearby(tmp_path, server, world)
    hostile = "\x1b]0;owned\x07\x9b31m\u202eback"
    session = (await world.post("/v1/sessions", {"instructions": hostile})).json()["id"]
    text = person.done("sessions", "show", session, "--json")
    assert not re.search("[\x07\x1b\x9b\u202e]", text)
    assert person.json("sessions", "show", session)["session"]["instructions"] == hostile


def test_an_unreachable_server_is_one_line(tmp_path: Path) -> None:
    variables = {"QD_URL": f"http://127.0.0.1:{free_port()}", "QD_KEY": "qd_live_x"}
    code, told = Nearby(tmp_path, variables).refused("sessions", "list")
    assert code == 6
    assert told.startswith(f"Cannot connect ({variables['QD_URL']}): ")


async def test_an_invalid_key_is_one_line(tmp_path: Path, server: Server) -> None:
    variables = {"QD_URL": server.url, "QD_KEY": "qd_live_wrong"}
    code, told = Nearby(tmp_path, variables).refused("skills", "list")
    assert code == 3
    assert "qd_live_wrong" not in told


async def test_another_server_is_recognized(tmp_path: Path, server: Server) -> None:
    """The docs page is not an API."""
    variables = {"QD_URL": f"{server.url}/docs", "QD_KEY": "qd_live_wrong"}
    assert Nearby(tmp_path, variables).refused("whoami")[0] in (4, 7)


@pytest.mark.parametrize(
    "arguments",
    [("nothing",), ("keys", "nothing"), ("keys", "create"), ("send",), ("sessions", "list", "--limit", "0")],
    ids=lambda given: " ".join(given),
)
def test_wrong_usage_is_one_line(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    assert Nearby(tmp_path).refused(*arguments)[0] == 2


async def test_a_closed_pipe_is_no_traceback(tmp_path: Path, server: Server, world: World) -> None:
    person = nearby(tmp_path, server, world)
    # More than the pipe buffer holds.
    for _ in range(10):
        await world.post("/v1/sessions", {"title": "x" * 200, "instructions": "y"})
    process = subprocess.Popen(
        [*QD, "sessions", "list", "--json"], env=person.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    with process.stderr as stderr:
        assert b"Traceback" not in stderr.read()
    assert process.wait(30) != 0


def test_completion_knows_the_commands(tmp_path: Path) -> None:
    asked = {"_QD_COMPLETE": "complete_bash", "COMP_WORDS": "qd skills ro", "COMP_CWORD": "2"}
    assert Person(tmp_path, asked).done().split() == ["rollback"]
    assert "_QD_COMPLETE=complete_bash" in Person(tmp_path, {"_QD_COMPLETE": "source_bash"}).done()


async def test_commands_load_only_what_they_need(tmp_path: Path, server: Server, world: World) -> None:
    """Nothing of the server, and no module of another command."""
    unneeded = {"psycopg", "starlette", "granian", "pydantic_ai", "prompt_toolkit"}
    unneeded |= {"rich", "pygments", "quarterdeck.core.settings", "quarterdeck.cli.admin", "quarterdeck.cli.skills"}
    environ = person_of(tmp_path, server, world).environ
    assert not loaded(environ, "whoami") & unneeded
    assert not loaded(environ, "--help") & (unneeded | {"quarterdeck.client", "msgspec", "httpx2", "pydantic", "rich"})


def loaded(environ: dict[str, str], *arguments: str) -> set[str]:
    """The modules that a command has imported."""
    ended = subprocess.run(
        [QD[0], "-X", "importtime", *QD[1:], *arguments], env=environ, capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 0, ended.stderr
    return {line.rpartition("|")[2].strip() for line in ended.stderr.splitlines()}


def test_the_list_of_commands_shows_the_first_sentence_of_each(tmp_path: Path) -> None:
    """The list is written by hand, so that `qd --help` imports no command."""
    for name, command in root().commands.items():
        assert isinstance(command, LazyCommand)
        summary, described = command.help, command.load().help
        assert (described or "").startswith((summary or "?").removesuffix(".")), name
    assert Nearby(tmp_path).done("--version") == f"qd {__version__}\n"


def test_a_group_without_a_verb_shows_its_verbs(tmp_path: Path) -> None:
    person = Nearby(tmp_path)
    groups = {
        name: verbs
        for name, command in root().commands.items()
        if isinstance(command, LazyCommand) and (verbs := getattr(command.load(), "commands", {}))
    }
    assert len(groups) > 10
    for name, verbs in groups.items():
        shown = person.done(name)
        assert [verb for verb, each in verbs.items() if not each.hidden and f"\n  {verb} " not in shown] == []
        assert shown == person.done(name, "--help")
