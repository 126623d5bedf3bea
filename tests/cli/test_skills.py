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
    made = person.done("skills", "init", "greeting", "--description", "Says hello.")
    assert made == "wrote greeting/SKILL.md\n"
    linted = person.qd("skills", "lint", "greeting")
    assert (linted.returncode, linted.stderr) == (0, "")
    assert linted.stdout.startswith("greeting: OK: 1 file, ")

    with (tmp_path / "greeting" / "SKILL.md").open("a") as file:
        file.write("Say ahoy.\n")
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
    third = person.qd("skills", "push", "greeting", "greeting", "--force")
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
    assert (code, told.startswith("bad/SKILL.md:2: invalid name ")) == (2, True)
    code, told = person.refused("skills", "push", "greeting", "bad", "--force")
    assert (code, '"SKILL.md", line 2' in told) == (2, True)
    assert person.refused("skills", "push", "greeting", "text.tar.gz")[0] == 2
    assert person.refused("skills", "rollback", "greeting", "1")[0] == 2
    assert person.refused("skills", "rollback", "greeting")[0] == 2
    assert person.refused("skills", "diff", "greeting", "0", "1")[0] == 2


async def test_a_push_that_is_probably_a_mistake_needs_force(tmp_path: Path, server: Server, world: World) -> None:
    person = nearby(tmp_path, server, world)
    person.done("skills", "init", "greeting")
    push = ("skills", "push", "greeting", "greeting", "--create")
    refused = {}
    refused["template"] = person.refused(*push)
    assert (
        "SKILL.md: warning: the description is the one of the template."
        in person.qd("skills", "lint", "greeting").stderr
    )
    (tmp_path / "greeting" / "SKILL.md").unlink()
    person.done("skills", "init", "greeting", "--description", 'Say "hello": loudly')
    assert person.qd("skills", "lint", "greeting").stderr == ""
    assert person.refused(*push) == refused["template"]
    refused["name"] = person.refused("skills", "push", "other", "greeting", "--create")
    folder_with(tmp_path / "bad", SKILL__md=skill_md("bad", description="''"), a__txt="")
    (tmp_path / "bad" / "aux").write_text("")
    refused["invalid"] = person.refused("skills", "push", "bad", "bad", "--create")
    assert person.json("skills", "list")["items"] == [], "nothing was created"

    (tmp_path / "greeting" / "SKILL.md").write_text(skill_md())
    assert person.json(*push)["version"] == 1
    refused["unchanged"] = person.refused(*push)
    # The comparison is one of content, not of archives.
    with tarfile.open(tmp_path / "greeting.tgz", "w:gz") as tar:
        tar.add(tmp_path / "greeting" / "SKILL.md", "SKILL.md")
    assert person.refused("skills", "push", "greeting", "greeting.tgz") == refused["unchanged"]
    assert refused == {
        "template": (2, "SKILL.md is the unchanged template of `qd skills init`. Use --force to push anyway."),
        "name": (2, "the name in SKILL.md is 'greeting', but the skill is 'other'. Use --force to push anyway."),
        "invalid": (2, "bad/SKILL.md:3: the description is empty. 1 more: see `qd skills lint bad`."),
        "unchanged": (2, "no changes since version 1 of greeting. Use --force to push anyway."),
    }
    assert person.json(*push, "--force")["version"] == 2
    assert person.json("skills", "push", "other", "greeting", "--create", "--force")["version"] == 1
    (tmp_path / "greeting" / "SKILL.md").unlink()
    person.done("skills", "init", "greeting")
    assert person.json(*push, "--force")["version"] == 3


@pytest.mark.long
async def test_search_archive_and_delete(tmp_path: Path, server: Server, world: World) -> None:
    person = nearby(tmp_path, server, world)
    for name, description in (("first", "Writes reports. " * 8), ("second", "Reads mail.")):
        folder_with(tmp_path / name, SKILL__md=skill_md(name, description))
        person.done("skills", "push", name, name, "--create")
    header, *rows = person.done("skills", "list").splitlines()
    assert header.split()[-1] == "DESCRIPTION"
    assert [row.partition(":")[2][4:] for row in rows] == [
        "Reads mail.",
        "Writes reports. Writes reports. Writes reports. Writes repo…",
    ]
    for words, found in (("REPORTS", ["first"]), ("eco", ["second"]), ("s", ["second", "first"]), ("nothing", [])):
        assert [skill["name"] for skill in person.json("skills", "search", words)["items"]] == found
    assert person.qd("skills", "search", "nothing").stderr == "No matching skills.\n"

    assert person.done("skills", "archive", "first") == "archived first\n"
    assert [skill["name"] for skill in person.json("skills", "search", "first", "--archived")["items"]] == ["first"]
    assert person.refused("skills", "archive", "first")[0] == 4
    assert person.done("skills", "unarchive", "first") == "unarchived first\n"
    session_id = person.done("sessions", "create", "--skill", "second").strip()
    code, told = person.refused("skills", "delete", "second", "--yes")
    assert (code, "used by a session" in told) == (5, True)
    person.done("sessions", "delete", session_id, "--yes")
    assert person.refused("skills", "delete", "second")[0] == 2, "it asks first"
    assert person.done("skills", "delete", "second", "--yes") == "deleted second\n"
    person.done("skills", "archive", "first")
    assert person.done("skills", "delete", "first", "--yes") == "deleted first\n"
    assert person.json("skills", "list")["items"] == person.json("skills", "list", "--archived")["items"] == []


def test_lint_reports_all_errors_at_once(tmp_path: Path) -> None:
    person = Nearby(tmp_path)
    folder_with(tmp_path / "bad", SKILL__md="---\nname: Bad Name\nlicense: MIT\ndescription: ''\n---\n")
    (tmp_path / "bad" / "a\\b").write_text("")
    linted = person.qd("skills", "lint", "bad")
    assert linted.returncode == 1
    assert linted.stdout.splitlines() == [
        'bad/SKILL.md:2: invalid name "Bad Name". Use a-z, 0-9 and single hyphens between them.',
        "bad/SKILL.md:4: the description is empty.",
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
    assert person.qd("skills", "lint", "empty").stdout == "empty: no SKILL.md at the root of the archive.\n"
    # Nothing else is read from a folder without one.
    folder_with(tmp_path / "many" / "nested", SKILL__md=skill_md())
    (tmp_path / "many" / "nested" / "broken").symlink_to("nowhere")
    assert person.qd("skills", "lint", "many").stdout == "many: no SKILL.md at the root of the archive.\n"
    assert person.refused("skills", "push", "many", "many") == (2, "many: no SKILL.md found.")
    folder_with(tmp_path / "spelt", skill__md=skill_md())
    told = person.qd("skills", "lint", "spelt").stdout
    assert told == "spelt/skill.md: rename the file to SKILL.md, in upper and lower case as shown.\n"


def test_lint_uses_the_limits_of_the_settings(tmp_path: Path) -> None:
    folder_with(tmp_path / "greeting", SKILL__md=skill_md(), large="x" * 5000)
    assert Nearby(tmp_path).qd("skills", "lint", "greeting").returncode == 0
    strict = Nearby(tmp_path, {"QUARTERDECK_BUNDLE_UNPACKED_BYTES": "1000"})
    linted = strict.qd("skills", "lint", "greeting")
    assert linted.returncode == 1
    assert linted.stdout == "greeting/large: the archive unpacks to more than 1000 bytes.\n"


def test_lint_of_the_current_folder_ignores_no_file(tmp_path: Path) -> None:
    folder = folder_with(tmp_path / "greeting", SKILL__md=skill_md())
    (folder / "notes").mkdir()
    (folder / "notes" / "a.md").write_text("x")
    for given in (".", "./", "../greeting", "./notes/.."):
        linted = Nearby(folder).qd("skills", "lint", given)
        assert (linted.returncode, linted.stderr) == (0, "")
        assert linted.stdout.startswith(f"{given}: OK: 2 files, ")


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
