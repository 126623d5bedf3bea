"""Full disks, closed streams, other character sets, Ctrl-C: one line, an exit code, and nothing left behind."""

import json
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.command import QD
from tests.cli.people import Nearby, Person, nearby, person_of
from tests.world import Server, World, bundle

FULL = Path("/dev/full")
needs_full = pytest.mark.skipif(not FULL.is_char_device(), reason="this system has no /dev/full")


def in_shell(person: Person, command: str, **variables: str) -> "subprocess.CompletedProcess[bytes]":
    """`$qd` stands for the command."""
    return subprocess.run(
        ["sh", "-c", command.replace("$qd", " ".join(QD))],
        env=person.environ | variables,
        cwd=person.home,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
    )


def line_of(ended: "subprocess.CompletedProcess[bytes]") -> str:
    (line,) = ended.stderr.decode().splitlines()
    return line


@needs_full
@pytest.mark.parametrize(
    "command",
    [
        "whoami",
        "skills download demo 1 -o -",
        *(pytest.param(each, marks=pytest.mark.long) for each in ("sessions list --json", "--help")),
    ],
)
async def test_an_output_that_is_full(tmp_path: Path, server: Server, world: World, command: str) -> None:
    person = person_of(tmp_path, server, world)
    await pushed(world)
    ended = in_shell(person, f"$qd {command} > {FULL}")
    assert (ended.returncode, line_of(ended)) == (2, "qd: No space left on device")


@needs_full
async def test_a_log_for_a_full_output(tmp_path: Path, server: Server, world: World) -> None:
    session_id = await world.new_session()
    await world.submit(session_id, "hello")
    ended = in_shell(person_of(tmp_path, server, world), f"$qd watch {session_id} > {FULL}")
    assert (ended.returncode, line_of(ended)) == (2, "qd: No space left on device")


@needs_full
async def test_a_download_to_a_device_does_not_replace_it(tmp_path: Path, server: Server, world: World) -> None:
    person = person_of(tmp_path, server, world)
    await pushed(world)
    # A client that replaced the device would need the right to write to its folder, which root has.
    message = f"{FULL}: No space left on device"
    assert person.refused("skills", "download", "demo", "1", "-o", str(FULL)) == (2, message)
    assert FULL.is_char_device()


@pytest.mark.long
@pytest.mark.parametrize("target", ["../outside", "inside", "nothing", "link.tar.gz", "/dev/null"])
async def test_a_download_does_not_follow_a_link(tmp_path: Path, server: Server, world: World, target: str) -> None:
    (tmp_path / "outside").write_bytes(b"before")
    home = tmp_path / "home"
    home.mkdir()
    (home / "inside").write_bytes(b"before")
    person = person_of(home, server, world)
    await pushed(world)
    (home / "link.tar.gz").symlink_to(target)
    # The name that a download has by default, too.
    (home / "demo-1.tar.gz").symlink_to(target)
    for name, options in (("link.tar.gz", ("-o", "link.tar.gz")), ("demo-1.tar.gz", ())):
        code, line = person.refused("skills", "download", "demo", "1", *options)
        assert (code, line) == (2, f"{name}: is a symbolic link, which a download does not follow")
        assert (home / name).readlink() == Path(target)
    assert (tmp_path / "outside").read_bytes() == (home / "inside").read_bytes() == b"before"
    assert not (home / "nothing").exists()
    assert not [path for path in home.iterdir() if path.name.startswith(".download")]


async def test_a_download_through_a_linked_folder(tmp_path: Path, server: Server, world: World) -> None:
    """The person named the folder. /tmp is a link on macOS."""
    person = person_of(tmp_path, server, world)
    await pushed(world)
    (tmp_path / "real").mkdir()
    (tmp_path / "folder").symlink_to("real")
    person.done("skills", "download", "demo", "1", "-o", "folder/x.tar.gz")
    assert (tmp_path / "real" / "x.tar.gz").read_bytes() == bundle()


async def test_a_download_into_a_pipe_goes_through_it(tmp_path: Path, server: Server, world: World) -> None:
    person = person_of(tmp_path, server, world)
    await pushed(world)
    os.mkfifo(tmp_path / "pipe")
    ended = in_shell(person, "cat pipe > copy & $qd skills download demo 1 -o pipe; wait")
    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "pipe").is_fifo()
    assert (tmp_path / "copy").read_bytes() == bundle()


@pytest.mark.long
@pytest.mark.parametrize(
    ("command", "code", "words"),
    [
        ("whoami >&-", 0, None),
        ("nonsense 2>&-", 2, None),
        ("send {session} - <&-", 2, "nothing to send"),
        ("login --key --url {url} <&-", 2, "No key"),
        ("keys revoke {session} <&-", 4, "No such API key"),
    ],
)
async def test_a_closed_stream_is_an_empty_one(
    tmp_path: Path, server: Server, world: World, command: str, code: int, words: str | None
) -> None:
    person = person_of(tmp_path, server, world)
    if command.startswith("login"):
        person = Person(tmp_path)
    given = command.format(session=await world.new_session(), url=server.url)
    ended = in_shell(person, f"$qd {given}")
    assert ended.returncode == code, ended.stderr
    assert words is None or words in line_of(ended)


@pytest.mark.long
@pytest.mark.parametrize("encoding", ["ascii", pytest.param("latin-1", marks=pytest.mark.long)])
async def test_a_terminal_that_knows_few_characters(
    tmp_path: Path, server: Server, world: World, encoding: str
) -> None:
    person = person_of(tmp_path, server, world)
    title = "Größe ✓ \N{GRINNING FACE}"
    session_id = (await world.post("/v1/sessions", {"title": title})).json()["id"]
    run_id = (await world.submit(session_id, title)).json()["run_id"]
    await world.post(f"/v1/runs/{run_id}/cancel", None)
    for command in ("sessions list", f"watch {session_id} --until-idle"):
        ended = in_shell(person, f"$qd {command}", PYTHONIOENCODING=encoding)
        assert (ended.returncode, ended.stderr) == (0, b"")
    watched = in_shell(person, f"$qd watch {session_id} --until-idle --json", PYTHONIOENCODING=encoding)
    assert json.loads(watched.stdout.splitlines()[0])["data"]["text"] == title
    listed = in_shell(person, "$qd sessions list --json", PYTHONIOENCODING=encoding)
    assert [item["title"] for item in json.loads(listed.stdout)["items"]] == [title]


async def test_input_that_is_not_utf_8_is_sent_with_replacements(tmp_path: Path, server: Server, world: World) -> None:
    person = person_of(tmp_path, server, world)
    with subprocess.Popen(
        [*QD, "chat", await world.new_session()],
        env=person.environ | {"PYTHONIOENCODING": "utf-8:strict"},
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(b"h\xe4llo\n")
        process.stdin.close()
        told = process.stderr.readline().decode()
        # There is no worker. Cancelling the run ends the conversation.
        process.send_signal(signal.SIGINT)
        assert b"Traceback" not in process.stderr.read()
    assert told == "  Started a run: h\N{REPLACEMENT CHARACTER}llo\n"


def test_where_a_folder_is_expected(tmp_path: Path) -> None:
    person = Nearby(tmp_path)
    (tmp_path / "file").write_text("x")
    assert person.refused("skills", "init", "file") == (2, "file: not a folder")
    assert person.refused("skills", "init", "file/inner") == (2, "file/inner: Not a directory")
    person.done("skills", "init", "skill")
    assert person.refused("skills", "init", "skill") == (2, "skill/SKILL.md: already exists")


async def test_a_refused_push_says_that_the_skill_exists(tmp_path: Path, server: Server, world: World) -> None:
    person = nearby(tmp_path, server, world)
    (tmp_path / "file").write_text("no archive")
    code, told = person.refused("skills", "push", "named", "file", "--create", "--force")
    assert code == 2
    assert told.endswith("The skill named exists but has no versions.")
    assert [skill["name"] for skill in person.json("skills", "list")["items"]] == ["named"]


async def test_nothing_to_send_is_not_sent(tmp_path: Path, server: Server, world: World) -> None:
    person = nearby(tmp_path, server, world)
    session_id = await world.new_session()
    assert person.refused("send", session_id, "-", given=" \n")[0] == 2
    assert (await world.get(f"/v1/sessions/{session_id}/runs")).json()["items"] == []


async def test_an_invalid_key_and_its_hint(tmp_path: Path, server: Server) -> None:
    told = Nearby(tmp_path, {"QD_URL": server.url, "QD_KEY": "qd_live_wrong"}).refused("whoami")
    assert told[0] == 3
    assert "Run `qd login` to use another. QD_KEY overrides the saved login." in told[1]


@pytest.mark.long
def test_a_new_database_is_announced(tmp_path: Path) -> None:
    person = Person(tmp_path)
    assert person.qd("migrate").stderr == f"Creating a new database in {tmp_path / 'data'}.\n"
    assert person.qd("migrate").stderr == ""


@contextmanager
def slow_reader(skill: bytes) -> Iterator[tuple[str, threading.Event]]:
    """A server that returns one skill and then reads only the start of a push. Yields its address and an event for the
    start of the push."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    done, push_started = threading.Event(), threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(head % len(skill) + skill)
            # Uploads have a connection of their own.
            connection, _ = listener.accept()
            with connection:
                connection.recv(1)
                push_started.set()
                done.wait(60)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}", push_started
        finally:
            done.set()
            thread.join(30)


@pytest.mark.long
async def test_ctrl_c_during_an_upload(tmp_path: Path, server: Server, world: World) -> None:
    skill_id = await world.new_skill()
    (tmp_path / "big").mkdir()
    (tmp_path / "big" / "SKILL.md").write_text("---\nname: big\ndescription: Big.\n---\nBig.\n")
    (tmp_path / "big" / "data").write_bytes(os.urandom(8_000_000))
    before = set(tmp_path.rglob("*"))
    with slow_reader((await world.get(f"/v1/skills/{skill_id}")).content) as (url, push_started):
        process = subprocess.Popen(
            [*QD, "skills", "push", skill_id, "big", "--force"],
            env=person_of(tmp_path, server, world).environ | {"QD_URL": url, "TMPDIR": str(tmp_path)},
            cwd=tmp_path,
            stderr=subprocess.PIPE,
        )
        assert push_started.wait(60)
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=30)
    assert (process.returncode, told) == (130, b"qd: Interrupted\n")
    assert set(tmp_path.rglob("*")) == before


async def pushed(world: World) -> None:
    assert (await world.push(await world.new_skill(), bundle())).status_code == 201
