"""The tools of a model: bounded texts, faults told to the model."""

from datetime import UTC, datetime
from typing import cast
from uuid import uuid4

import pytest

from quarterdeck.core import errors
from quarterdeck.db.database import Database
from quarterdeck.events.model import NewEvent
from quarterdeck.models.model import ToolCall, ToolResult
from quarterdeck.runs.lifecycle import Lease
from quarterdeck.sandbox.model import Refusal
from quarterdeck.skills.model import SkillFile
from quarterdeck.skills.session_skills import RunSkill, SkillReader
from quarterdeck.tools.model import ToolSpec
from quarterdeck.tools.skill_files import skill_instructions, skill_tools, skills_offered
from quarterdeck.tools.tool import CallContext, Effect, Toolbox, client_tool
from quarterdeck.worker.agent import add_note, current_time
from tests.unit.archives import SKILL_MD

FILES = {
    "SKILL.md": SKILL_MD,
    "big.txt": "ä".encode() * 3000,
    "ends.txt": b"x" * 999 + "日".encode() * 10,
    "empty.txt": b"",
    "picture.png": b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR",
    "latin1.txt": "Gr\xfc\xdfe".encode("latin-1"),
    "zeros.txt": b"a\0b",
    "forms/a.md": b"Form A",
}
SKILL = RunSkill("pdf-tools", uuid4(), 3, uuid4(), "Fill in\n PDF forms.", "ab" * 32)
Files = list[SkillFile]


class FilesInMemory(SkillReader):
    def __init__(self) -> None:
        pass

    async def files(self, skill: RunSkill) -> Files:
        return [SkillFile(name, len(data), "", False) for name, data in sorted(FILES.items())]

    async def read(self, file: SkillFile, max_bytes: int) -> bytes:
        return FILES[file.path][:max_bytes]


class ManyFiles(FilesInMemory):
    async def files(self, skill: RunSkill) -> Files:
        return [SkillFile(f"file-{number}", 1, "", False) for number in range(10_000)]


class Unreadable(FilesInMemory):
    def __init__(self, fault: Exception) -> None:
        self._fault = fault

    async def read(self, file: SkillFile, max_bytes: int) -> bytes:
        raise self._fault


def toolbox(reader: SkillReader | None = None, skills: tuple[RunSkill, ...] = (SKILL,)) -> Toolbox:
    time = current_time(lambda: datetime(2026, 11, 3, 12, 34, 56, tzinfo=UTC))
    return Toolbox([time, *skill_tools(skills, reader or FilesInMemory(), 1000)])


async def carry_out(box: Toolbox, call: ToolCall) -> ToolResult:
    tool = box.find(call.name)
    assert tool is not None
    assert tool.carry_out is not None
    try:
        return ToolResult(call.id, call.name, str(await tool.carry_out(call.arguments, CallContext("the key"))))
    except Refusal as refusal:
        return ToolResult(call.id, call.name, f"Error: {refusal}")


async def call(name: str, reader: SkillReader | None = None, /, **arguments: object) -> str:
    return (await carry_out(toolbox(reader), ToolCall("id", name, arguments))).content


async def test_the_time() -> None:
    assert await call("current_time") == "Tuesday 2026-11-03 12:34:56 UTC"


async def test_a_file_is_read() -> None:
    assert await call("read_skill_file", skill="pdf-tools") == SKILL_MD.decode()
    assert await call("read_skill_file", skill="pdf-tools", path="./forms/a.md") == "Form A"
    assert await call("read_skill_file", skill="pdf-tools", path="") == SKILL_MD.decode()
    assert await call("read_skill_file", skill="pdf-tools", path=None) == SKILL_MD.decode()
    assert await call("read_skill_file", skill="pdf-tools", path="empty.txt") == ""


async def test_files_are_listed() -> None:
    listed = await call("list_skill_files", skill="pdf-tools")
    assert listed.splitlines()[0] == f"SKILL.md ({len(SKILL_MD)} bytes)"
    assert len(listed.splitlines()) == len(FILES)


async def test_a_long_list_is_cut() -> None:
    listed = await call("list_skill_files", ManyFiles(), skill="pdf-tools")
    assert len(listed.encode()) < 1100
    assert "[Cut here: these are the first 1000 of " in listed


@pytest.mark.parametrize("path", ["big.txt", "ends.txt"])
async def test_a_long_file_is_cut_between_characters(path: str) -> None:
    text = await call("read_skill_file", skill="pdf-tools", path=path)
    start, note = text.split("\n")
    assert FILES[path].decode().startswith(start)
    assert note == f"[Cut here: these are the first 1000 of {len(FILES[path])} bytes.]"
    assert len(start.encode()) in (999, 1000)


@pytest.mark.parametrize("path", ["picture.png", "latin1.txt", "zeros.txt"])
async def test_binary_files_are_only_named(path: str) -> None:
    text = await call("read_skill_file", skill="pdf-tools", path=path)
    assert text == f"This is a binary file of {len(FILES[path])} bytes; only text can be read."


@pytest.mark.parametrize(
    ("name", "arguments", "answer"),
    [
        ("read_skill_file", {"skill": "other"}, 'Error: there is no skill "other". The skills are: pdf-tools.'),
        ("read_skill_file", {}, 'Error: the argument "skill" must be a text.'),
        ("read_skill_file", {"skill": 7}, 'Error: the argument "skill" must be a text.'),
        ("read_skill_file", {"skill": "pdf-tools", "path": ["a"]}, 'Error: the argument "path" must be a text.'),
        ("read_skill_file", {"skill": "pdf-tools", "path": "../etc/passwd"}, "Error: this skill has no file"),
        ("read_skill_file", {"skill": "pdf-tools", "path": "/etc/passwd"}, "Error: this skill has no file"),
        ("read_skill_file", {"skill": "pdf-tools", "path": "forms"}, "Error: this skill has no file"),
        ("read_skill_file", {"skill": "pdf-tools", "path": "\0" * 10_000}, "Error: this skill has no file"),
        ("list_skill_files", {"skill": "x" * 10_000}, "Error: there is no skill"),
    ],
)
async def test_errors_are_reported_to_the_model(name: str, arguments: dict[str, object], answer: str) -> None:
    told = await call(name, **arguments)
    assert told.startswith(answer)
    assert len(told) < 1000
    assert "\0" not in told


@pytest.mark.parametrize("fault", [FileNotFoundError(), errors.unavailable(), errors.internal()])
async def test_unreadable_file_is_reported_to_the_model(fault: Exception) -> None:
    assert await call("read_skill_file", Unreadable(fault), skill="pdf-tools") == (
        "Error: the skill's files cannot be read at the moment."
    )


def test_without_skills_there_is_only_the_time() -> None:
    assert [tool.name for tool in toolbox(skills=()).specs] == ["current_time"]
    assert skill_instructions([]) == ""


def test_the_instructions_name_each_skill_on_a_line() -> None:
    assert skill_instructions([SKILL]).splitlines()[-1] == "- pdf-tools: Fill in PDF forms."
    assert skills_offered(toolbox().specs) == ["pdf-tools"]


async def test_skills_of_one_name_can_be_told_apart() -> None:
    assert skills_offered(toolbox(skills=(SKILL, SKILL, SKILL)).specs) == [
        "pdf-tools",
        "pdf-tools (2)",
        "pdf-tools (3)",
    ]
    assert "\n- pdf-tools (2): " in skill_instructions([SKILL, SKILL])


async def test_a_note_is_stored_with_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    stored: list[tuple[str, str]] = []

    async def append(database: Database, lease: Lease, entry: NewEvent) -> None:
        stored.append((entry.data["text"], entry.data["key"]))

    monkeypatch.setattr("quarterdeck.runs.calls.append", append)
    box = Toolbox([add_note(cast(Database, None), cast(Lease, None))])
    results = [
        (await carry_out(box, ToolCall("id", "add_note", arguments))).content
        for arguments in ({"text": "x"}, {"text": 7})
    ]
    assert stored == [("x", "the key")]
    assert results == ["The note is stored.", 'Error: the argument "text" must be a text.']


def test_tools_of_the_caller_go_before_others_of_their_name() -> None:
    mine = client_tool(ToolSpec("current_time", "Mine", {"type": "object"}))
    box = Toolbox([mine, current_time()])
    assert box.find("current_time") is mine
    assert [spec.description for spec in box.specs] == ["Mine"]
    assert (mine.effect, mine.is_repeatable) == (Effect.EXTERNAL, False)
    assert box.find("other") is None
