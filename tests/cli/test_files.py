"""`qd files`, attachments and the output of tools, with a server, a worker and a sandbox."""

import io
import json
import re
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO
from unittest.mock import patch
from uuid import UUID, uuid4

import pytest

from quarterdeck.cli.chat_view import coloured, without_colours
from quarterdeck.cli.output import coloured_diff
from quarterdeck.client import Client
from tests.cli.people import Nearby, nearby
from tests.cli.screen import terminal
from tests.workers import working
from tests.world import PATIENT, Server, World, clone_database, drop_database, serving


@pytest.fixture(scope="module")
def server(postgres_url: str, template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """With a database that only this worker looks into."""
    url = clone_database(postgres_url, template)
    folder = tmp_path_factory.mktemp("api")
    sandbox = {"SANDBOX_KIND": "bubblewrap"}
    with serving(url, folder, **PATIENT, **sandbox) as server, working(url, server.data_dir, **sandbox):
        yield server
    drop_database(postgres_url, url)


def call(tool: str, **arguments: object) -> str:
    return f"call: {tool} {json.dumps(arguments)}"


@pytest.mark.long
async def test_attach_run_and_get(tmp_path: Path, server: Server, world: World) -> None:
    person = nearby(tmp_path, server, world)
    (tmp_path / "numbers.csv").write_text("a,b\n1,2\n")
    session_id = person.done("sessions", "create", "--title", "Sums", "--model", "demo").strip()
    assert re.search(r"^sandbox +on$", person.done("sessions", "show", "Sums"), re.MULTILINE)

    put = person.qd("files", "put", "numbers.csv", "--name", "other.csv")
    file_id = put.stdout.strip()
    assert f"--attach {file_id}" in put.stderr
    command = call("bash", command="wc -c attachments/* | tee out/sum.txt", timeout_seconds=20)
    made = call("bash", command="mkdir out && ln -s out/sum.txt link")
    text = f"{made}\n{command}"
    person.done("send", "Sums", text, "--attach", "numbers.csv", "--attach", file_id, "--delivery", "queue", "--wait")
    assert person.done("files", "get", "Sums", "out/sum.txt", "-o", "-").endswith("16 total\n")

    listed = person.done("files", "list", "Sums").splitlines()
    assert [line.split()[-1] for line in listed[1:]] == [
        "attachments/numbers.csv",
        "attachments/other.csv",
        "out/sum.txt",
        "out/sum.txt",
    ]
    assert "link -> out/sum.txt" in listed[3]
    items = person.json("files", "list", "Sums", "--prefix", "attachments/", "--limit", "1")
    assert ([item["path"] for item in items["items"]], items["more"]) == (["attachments/numbers.csv"], True)

    check_downloads(person, tmp_path, session_id)

    assert person.refused("files", "delete", file_id)[0] == 2
    person.done("files", "delete", file_id, "--yes")
    assert person.refused("files", "delete", file_id, "--yes")[0] == 4
    code, message = person.refused("send", "Sums", "again", "--attach", file_id)
    assert (code, file_id in message) == (2, True)


def check_downloads(person: Nearby, folder: Path, session_id: str) -> None:
    assert person.done("files", "get", "Sums", "out/sum.txt").startswith("wrote sum.txt")
    code, message = person.refused("files", "get", "Sums", "out/sum.txt")
    assert (code, "--force" in message) == (2, True)
    person.done("files", "get", "Sums", "link", "-o", "sum.txt", "--force")
    assert (folder / "sum.txt").read_text().endswith("16 total\n")
    assert person.refused("files", "get", "Sums", "nothing")[0] == 4
    assert person.refused("files", "get", "Sums")[0] == 2

    person.done("files", "get", session_id, "--all", "-o", "all.tar.gz")
    with tarfile.open(folder / "all.tar.gz") as archive:
        assert "attachments/numbers.csv" in [name.removeprefix("./") for name in archive.getnames()]
    person.done("files", "get", "Sums", "--all", "-o", "all")
    assert (folder / "all" / "out" / "sum.txt").read_text() == (folder / "sum.txt").read_text()
    assert not (folder / "all" / "link").exists()
    assert person.refused("files", "get", "Sums", "--all", "-o", "all")[0] == 2
    person.done("files", "get", "Sums", "--all", "-o", "all", "--force")


@pytest.mark.long
async def test_without_a_workspace_a_wrong_kind_is_refused_and_not_kept(
    tmp_path: Path, server: Server, world: World
) -> None:
    person = nearby(tmp_path, server, world)
    (tmp_path / "data.bin").write_bytes(bytes(range(256)))
    session_id = person.done("sessions", "create", "--model", "demo", "--no-sandbox").strip()
    code, message = person.refused("send", session_id, "Look.", "--attach", "data.bin")
    assert code == 2
    assert "data.bin" in message
    assert await world.fetch("SELECT count(*) FROM files WHERE workspace_id = %s", world.workspace_id) == [(0,)]
    code, message = person.refused("send", session_id, "Look.", "--attach", "missing.bin")
    assert (code, message) == (2, "missing.bin: no such file")
    assert person.json("sessions", "edit", session_id, "--sandbox")["sandbox"] == {}
    person.done("send", session_id, "Look.", "--attach", "data.bin")


@pytest.mark.long
async def test_chat_attaches_files_and_shows_output_as_it_comes(tmp_path: Path, server: Server, world: World) -> None:
    person = nearby(tmp_path, server, world)
    session_id = person.done("sessions", "create", "--model", "demo", "--sandbox").strip()
    (tmp_path / "my report.txt").write_text("one\n")
    variables = {"QD_URL": server.url, "QD_KEY": world.key}
    with (
        terminal("watch", session_id, variables=variables, columns=200) as watching,
        terminal("chat", session_id, variables=variables, cwd=tmp_path, columns=100) as screen,
    ):
        screen.wait("Type /help")
        screen.enter("/attach nothing.txt")
        screen.wait("nothing.txt: No such file")
        screen.type("/attach my\t")
        screen.wait("/attach my report.txt")
        screen.type("\r")
        screen.wait("Attached to the next message: my report.txt (4 B)")
        # The title of the terminal and the screen stay as they are; colours are kept.
        printed = r"printf '\033]0;title\007\033[31m%s-%s\033[0m\n' red alert; sleep 60"
        screen.enter(call("bash", command=printed))
        screen.wait("red-alert", "Calling bash $", "Attached: my report.txt (4 B)")
        assert b"\x1b]0;" not in screen.raw
        assert re.search(rb"\x1b\[[0-9;]*31[0-9;]*mred-alert", screen.raw)
        text = watching.wait("tool.delta", "Attached: my report.txt (4 B)")
        assert re.search(r"\d\d:\d\d:\d\d  tool\.delta +red-alert$", text, re.MULTILINE)
        assert re.search(rb"tool\.delta +\x1b\[31mred-alert\x1b\[0m", watching.raw)
        assert b"\x1b]0;" not in watching.raw
        screen.interrupt()
        screen.wait("no result", "Run cancelled.")
        calls = (
            call("write_file", path="a.txt", content="old\n"),
            call("edit_file", path="a.txt", old="old", new="new"),
        )
        for text in calls:
            screen.enter(text)
        screen.wait("edit_file a.txt", "-old", "+new")
        assert re.search(rb"\x1b\[[0-9;]*32[0-9;]*m\+new", screen.raw)
        screen.enter("/quit")
        assert screen.ended() == 0


def test_only_colours_of_programs_reach_the_terminal() -> None:
    text = "\x1b[1;31mred\x1b[0m \x1b[2J\x1b]0;title\x07\x1b[?1049h\x1bc\x9b31mC1 \x1b[38:5:1mx\x01\x02\u202e\b"
    text += " 10%\r99%\r\ndone"
    assert coloured(text) == "99%\ndone"
    assert coloured(text.replace("\r", "")) == "\x1b[1;31mred\x1b[0m C1 x 10%99%\ndone\x1b[0m"
    assert coloured("\x1b[" + "1" * 5000 + "mtext") == "text"
    assert coloured("\x1b\x1b[31m[2Jx") == "\x1b[31m[2Jx\x1b[0m"
    assert coloured_diff(without_colours("-a\x1b[2J\n+b")) == "\x1b[31m-a\x1b[0m\n\x1b[32m+b\x1b[0m"


def archive_of(*members: tuple[str, bytes | str]) -> bytes:
    """Bytes are a file, text is the target of a link."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in members:
            member = tarfile.TarInfo(name)
            if isinstance(content, str):
                member.type, member.linkname = tarfile.SYMTYPE, content
                archive.addfile(member)
            else:
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def get_all(person: Nearby, archive: bytes, *options: str) -> "subprocess.CompletedProcess[str]":
    def download(client: Client, session_id: UUID, to: BinaryIO, **_: object) -> int:
        return to.write(archive)

    with patch.object(Client, "download_session_archive", download):
        return person.qd("files", "get", str(uuid4()), "--all", "-o", "all", *options)


UNREACHED = {"QD_URL": "http://127.0.0.1:1", "QD_KEY": "qd_live_x"}


@pytest.mark.parametrize(
    "members",
    [
        [("z", "."), ("report.md", "z/z/../../victim.txt")],
        [("report.md", "../victim.txt"), ("report.md", b"changed")],
        [("report.md", "/etc/passwd")],
        [("inside", "folder"), ("inside/report.md", b"changed")],
        [("../victim.txt", b"changed")],
        [("a/../../victim.txt", b"changed")],
    ],
    ids=["through a link", "out, then a file", "absolute", "file below a link", "parent", "parent below a folder"],
)
def test_no_link_and_nothing_outside_is_written(tmp_path: Path, members: list[tuple[str, bytes | str]]) -> None:
    (tmp_path / "victim.txt").write_text("kept")
    got = get_all(Nearby(tmp_path, UNREACHED), archive_of(*members, ("fine.txt", b"fine")))
    assert got.returncode == 0, got.stderr
    assert not [path for path in (tmp_path / "all").rglob("*") if path.is_symlink()]
    assert (tmp_path / "victim.txt").read_text() == "kept"
    assert (tmp_path / "all" / "fine.txt").read_text() == "fine"
    assert f"{members[0][0]}: left out" in got.stderr


def test_links_that_are_in_the_folder_already_are_not_followed_out(tmp_path: Path) -> None:
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim" / "file.txt").write_text("kept")
    (tmp_path / "all").mkdir()
    (tmp_path / "all" / "folder").symlink_to("../victim")
    (tmp_path / "all" / "file.txt").symlink_to("../victim/file.txt")
    members = archive_of(("folder/file.txt", b"changed"), ("file.txt", b"changed"), ("fine.txt", b"fine"))
    got = get_all(Nearby(tmp_path, UNREACHED), members, "--force")
    assert got.stderr.count("left out") == 2, got.stderr
    assert (tmp_path / "victim" / "file.txt").read_text() == "kept"
    assert (tmp_path / "all" / "fine.txt").read_text() == "fine"


def test_two_names_of_one_file_do_not_overwrite_each_other(tmp_path: Path) -> None:
    """As on a file system that ignores case. Here a link makes two names the same."""
    (tmp_path / "all" / "Notes").mkdir(parents=True)
    (tmp_path / "all" / "notes").symlink_to("Notes")
    got = get_all(Nearby(tmp_path, UNREACHED), archive_of(("Notes/a", b"first"), ("notes/a", b"second")), "--force")
    assert (tmp_path / "all" / "Notes" / "a").read_text() == "first"
    assert "notes/a: left out" in got.stderr
    assert "(1 file)" in got.stdout
