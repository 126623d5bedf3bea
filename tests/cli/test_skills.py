"""`qd skills` against a server, and `qd skills lint` without one."""

import gzip
import hashlib
import json
import tarfile
from pathlib import Path

import pytest

from tests.cli.people import Nearby, nearby
from tests.world import Server, World, bundle


def folder_with(folder: Path, **files: str) -> Path:
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)
    return folder


def skill_md(name: str = "greeting", description: str = "Says hello.", body: str = "Say ahoy.\n") -> str:
    return f"---\nname: {name}\ndescription: {description}\n---\n{body}"


async def test_from_an_empty_folder_and_back(tmp_path: Path, server: Server, world: World) -> None:
    person = nearby(tmp_path, server, world)
    assert person.done("skills", "init", "greeting") == "wrote greeting/SKILL.md\n"
    linted = person.qd("skills", "lint", "greeting")
    assert (linted.returncode, linted.stderr) == (0, "")
    assert linted.stdout.startswith("greeting: OK: 1 file, ")

    code, told = person.refused("skills", "push", "greeting", "greeting")
    assert (code, "No skill matches 'greeting'." in told) == (4, True)
    assert person.done("skills", "push", "greeting", "greeting", "--create").startswith("pushed greeting version 1 (")
    with (tmp_path / "greeting" / "SKILL.md").open("a") as file:
        file.write("\tOne line more, with a tab.\n")
    second = person.json("skills", "push", "greeting", "greeting", "--create")
    assert second["version"] == 2
    (skill,) = person.json("skills", "list")["items"]
    assert (skill["id"], skill["name"], skill["latest_version"]) == (second["skill_id"], "greeting", 2)

    first = person.json("skills", "versions", "greeting")["items"][1]
    assert [line.split()[:2] for line in person.done("skills", "versions", "greeting").splitlines()[1:]] == [
        ["2", "yes"],
        ["1", str(first["bundle_bytes"])],
    ]
    patch = person.done("skills", "diff", "greeting", "1", "2")
    assert patch.splitlines()[-1] == "+\tOne line more, with a tab."
    assert person.qd("skills", "diff", skill["id"], "2", "2").stderr == "No differences.\n"

    assert person.done("skills", "rollback", "greeting", "1") == "greeting: sessions use version 1\n"
    assert person.json("skills", "list")["items"][0]["default_version"] == 1
    third = person.qd("skills", "push", "greeting", "greeting")
    assert "Sessions still use version 1" in third.stderr
    assert person.done("skills", "rollback", "greeting", "--latest").endswith("the latest version (now 3)\n")
    assert person.json("skills", "list")["items"][0]["default_version"] is None


async def test_downloads_are_what_was_pushed(tmp_path: Path, server: Server, world: World) -> None:
    person = nearby(tmp_path, server, world)
    archive = bundle("packed", notes="words")
    (tmp_path / "packed.tar.gz").write_bytes(archive)
    pushed = person.json("skills", "push", "packed", "packed.tar.gz", "--create")
    assert pushed["manifest"]["archive_sha256"] == hashlib.sha256(archive).hexdigest()
    assert person.done("skills", "download", "packed", "1").startswith("wrote packed-1.tar.gz (")
    assert (tmp_path / "packed-1.tar.gz").read_bytes() == archive
    person.done("skills", "download", "packed", "1", "-o", "elsewhere.tgz")
    with tarfile.open(tmp_path / "elsewhere.tgz") as tar:
        assert sorted(tar.getnames()) == ["SKILL.md", "notes"]
    code, told = person.refused("skills", "download", "packed", "1", "-o", "no/such/folder.tgz")
    assert (code, told) == (2, "no/such/folder.tgz: No such file or directory")
    assert person.refused("skills", "download", "packed", "2")[0] == 4


async def test_invalid_bundles_are_one_line(tmp_path: Path, server: Server, world: World) -> None:
    person = nearby(tmp_path, server, world)
    await world.post("/v1/skills", {"name": "greeting"})
    folder_with(tmp_path / "empty")
    folder_with(tmp_path / "bad", SKILL__md=skill_md(name="Not A Name"))
    (tmp_path / "text.tar.gz").write_text("no archive")
    assert person.refused("skills", "push", "greeting", "nowhere") == (2, "nowhere: no such file or folder.")
    assert person.refused("skills", "push", "greeting", "empty")[0] == 2
    code, told = person.refused("skills", "push", "greeting", "bad")
    assert (code, '"SKILL.md", line 2' in told) == (2, True)
    assert person.refused("skills", "push", "greeting", "text.tar.gz")[0] == 2
    assert person.refused("skills", "rollback", "greeting", "1")[0] == 2
    assert person.refused("skills", "rollback", "greeting")[0] == 2
    assert person.refused("skills", "diff", "greeting", "0", "1")[0] == 2


async def test_an_ambiguous_name_needs_an_id(tmp_path: Path, server: Server, world: World) -> None:
    person = nearby(tmp_path, server, world)
    for _ in range(2):
        await world.post("/v1/skills", {"name": "twin"})
    folder_with(tmp_path / "twin", SKILL__md=skill_md("twin"))
    code, told = person.refused("skills", "push", "twin", "twin", "--create")
    assert (code, "'twin' is ambiguous" in told) == (2, True)


def test_lint_reports_all_errors_at_once(tmp_path: Path) -> None:
    person = Nearby(tmp_path)
    folder_with(tmp_path / "bad", SKILL__md="---\nname: Bad Name\nlicense: MIT\ndescription: ''\n---\n")
    (tmp_path / "bad" / "a\\b").write_text("")
    linted = person.qd("skills", "lint", "bad")
    assert linted.returncode == 1
    assert linted.stdout.splitlines() == [
        'bad/SKILL.md:2: the name "Bad Name" is not made of a-z, 0-9 and single hyphens between them.',
        "bad/SKILL.md:4: the description is blank.",
        "bad/a\\b: the path has a backslash.",
    ]
    found = json.loads(person.qd("skills", "lint", "bad", "--json").stdout)
    assert [(fault["file"], fault["line"]) for fault in found["faults"]] == [
        ("bad/SKILL.md", 2),
        ("bad/SKILL.md", 4),
        ("bad/a\\b", None),
    ]


def test_lint_reports_the_paths_that_the_server_refuses(tmp_path: Path) -> None:
    person = Nearby(tmp_path)
    folder_with(tmp_path / "bad", SKILL__md="---\nname: bad\ndescription: x\n---\nText.\n")
    for name in ("SKILL\u200b.md", "a.", "aux.txt", "x:y.md", "fine 👨\u200d👩\u200d👧.md"):
        (tmp_path / "bad" / name).write_text("")
    linted = person.qd("skills", "lint", "bad")
    assert linted.returncode == 1
    assert [line.partition(": ")[2] for line in sorted(linted.stdout.splitlines())] == [
        "the path has an invisible character, U+200B.",
        "a part of the path ends with a dot or a space, which Windows removes.",
        '"aux" is the name of a device on Windows.',
        "the path starts with a drive letter.",
    ]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("no frontmatter", 1),
        ("---\nname: x\n", 1),
        ("---\nname: x\ndescription: [\n---\n", 4),
        ("---\nname: x\nname: y\ndescription: z\n---\n", 3),
        ("---\nname: x\n---\n", 1),
    ],
    ids=["no fence", "not closed", "not YAML", "twice", "no description"],
)
def test_lint_reports_the_line(tmp_path: Path, text: str, line: int) -> None:
    folder_with(tmp_path / "x", SKILL__md=text)
    linted = Nearby(tmp_path).qd("skills", "lint", "x")
    assert linted.returncode == 1
    (told,) = linted.stdout.splitlines()
    assert told.startswith(f"x/SKILL.md:{line}: ")


def test_lint_without_a_skill_md(tmp_path: Path) -> None:
    person = Nearby(tmp_path)
    assert person.refused("skills", "lint", "nowhere") == (2, "nowhere: No such file or directory")
    folder_with(tmp_path / "empty")
    assert person.qd("skills", "lint", "empty").stdout == "empty: the archive has no SKILL.md at its root.\n"
    folder_with(tmp_path / "spelt", skill__md=skill_md())
    told = person.qd("skills", "lint", "spelt").stdout
    assert told == "spelt/skill.md: the file must be called SKILL.md, in this spelling.\n"


def test_lint_uses_the_limits_of_the_settings(tmp_path: Path) -> None:
    folder_with(tmp_path / "greeting", SKILL__md=skill_md(), large="x" * 5000)
    assert Nearby(tmp_path).qd("skills", "lint", "greeting").returncode == 0
    strict = Nearby(tmp_path, {"QUARTERDECK_BUNDLE_UNPACKED_BYTES": "1000"})
    linted = strict.qd("skills", "lint", "greeting")
    assert linted.returncode == 1
    assert linted.stdout == "greeting/large: the archive unpacks to more than 1000 bytes.\n"


def test_lint_warnings(tmp_path: Path) -> None:
    folder = folder_with(tmp_path / "other", SKILL__md=skill_md(body=""), notes__log="x", __env="SECRET=1")
    (folder / ".gitignore").write_text("*.log\n")
    (folder / ".DS_Store").write_text("")
    linted = Nearby(tmp_path).qd("skills", "lint", "other")
    assert linted.returncode == 0
    assert [line.split(": ")[0] for line in linted.stderr.splitlines()] == [
        "other",
        "other/.DS_Store",
        "other/.env",
        "other/SKILL.md",
        "other/SKILL.md",
    ]
    assert "notes.log" in linted.stderr


def test_lint_reads_archives(tmp_path: Path) -> None:
    person = Nearby(tmp_path)
    (tmp_path / "good.tar.gz").write_bytes(bundle())
    assert person.done("skills", "lint", "good.tar.gz").startswith("good.tar.gz: OK: ")
    (tmp_path / "bad.tar.gz").write_bytes(gzip.compress(b"no tar"))
    assert person.qd("skills", "lint", "bad.tar.gz").returncode == 1


def test_init_overwrites_nothing(tmp_path: Path) -> None:
    person = Nearby(tmp_path)
    person.done("skills", "init", "My Skill!")
    assert "name: my-skill\n" in (tmp_path / "My Skill!" / "SKILL.md").read_text()
    assert person.refused("skills", "init", "My Skill!")[0] == 2
    (tmp_path / "file").write_text("mine")
    assert person.refused("skills", "init", "file")[0] == 2
    assert (tmp_path / "file").read_text() == "mine"
