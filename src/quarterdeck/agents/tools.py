"""The tools of every model: the current time, and the files of the session's skills. Nothing is executed.

Every call gets a result of bounded size. Errors of the model become results, not exceptions.
"""

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from msgspec import Struct

from quarterdeck.agents.model import MALFORMED_ARGUMENTS, ToolCall, ToolResult, ToolSpec
from quarterdeck.core.errors import ServiceError
from quarterdeck.core.logging import fields, log
from quarterdeck.skills.model import Archive, BundleError, ManifestFile, shown

CURRENT_TIME, READ_SKILL_FILE, LIST_SKILL_FILES = "current_time", "read_skill_file", "list_skill_files"
SKILL_MD = "SKILL.md"


class SessionSkill(Struct, frozen=True):
    """A skill in one run, at its pinned version or the version that was current when the attempt began."""

    name: str
    description: str
    skill_id: UUID
    version: int
    archive: Archive


# The files of one skill, as in its manifest. Read for each call and not kept: a session may have a hundred skills with
# ten thousand files each.
ListFiles = Callable[[SessionSkill], Awaitable[list[ManifestFile]]]
# (skill, its files, one of them, max_bytes) → the first bytes of the file.
ReadFile = Callable[[SessionSkill, list[ManifestFile], ManifestFile, int], Awaitable[bytes]]


class _Refusal(Exception):
    """An error that is reported to the model as the result of its call."""


class Toolbox:
    def __init__(
        self,
        skills: Sequence[SessionSkill],
        list_files: ListFiles,
        read_file: ReadFile,
        result_bytes: int,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._skills = by_unique_name(skills)
        self._list_files = list_files
        self._read_file = read_file
        self._result_bytes = result_bytes
        self._now = now
        self.specs = _specs(list(self._skills))

    async def call(self, call: ToolCall) -> ToolResult:
        try:
            content = await self._answer(call)
        except _Refusal as refusal:
            content = f"Error: {refusal}"
        except (BundleError, OSError, ServiceError) as fault:
            log.warning("a skill file could not be read", exc_info=fault, extra=fields(tool=call.name))
            content = "Error: the skill's files cannot be read at the moment."
        return ToolResult(call.id, call.name, content)

    async def _answer(self, call: ToolCall) -> str:
        if call.name not in [spec.name for spec in self.specs]:
            raise _Refusal(f'there is no tool "{shown(call.name)}".')
        if MALFORMED_ARGUMENTS in call.arguments:
            raise _Refusal("the arguments of this call are not a JSON object. Call the tool again.")
        if call.name == CURRENT_TIME:
            return self._now().astimezone(UTC).strftime("%A %Y-%m-%d %H:%M:%S UTC")
        skill = self._skill(call.arguments)
        if call.name == LIST_SKILL_FILES:
            lines = "".join(f"{file.path} ({file.bytes} bytes)\n" for file in await self._list_files(skill))
            return self._bounded(lines.encode(), len(lines.encode()))
        return await self._content(skill, _text(call.arguments, "path", SKILL_MD))

    def _skill(self, arguments: dict[str, Any]) -> SessionSkill:
        name = _text(arguments, "skill", None)
        if name not in self._skills:
            raise _Refusal(f'there is no skill "{shown(name)}". The skills are: {", ".join(self._skills)}.')
        return self._skills[name]

    async def _content(self, skill: SessionSkill, path: str) -> str:
        path = path.removeprefix("./") or SKILL_MD
        files = await self._list_files(skill)
        file = next((file for file in files if file.path == path), None)
        if file is None:
            raise _Refusal(f'this skill has no file "{shown(path)}". {LIST_SKILL_FILES} names those it has.')
        return self._bounded(await self._read_file(skill, files, file, self._result_bytes), file.bytes)

    def _bounded(self, data: bytes, size: int) -> str:
        """`data` is the beginning of `size` bytes."""
        kept = data[: self._result_bytes]
        try:
            # The cut may have split a character, so up to three bytes at the end are dropped.
            text = kept.decode() if len(kept) == size else _decode_start(kept)
        except UnicodeDecodeError:
            text = "\0"
        # PostgreSQL cannot store U+0000 in text.
        if "\0" in text:
            return f"This is a binary file of {size} bytes; only text can be read."
        return text if len(kept) == size else f"{text}\n[Cut here: these are the first {len(kept)} of {size} bytes.]"


def _decode_start(data: bytes) -> str:
    for missing in range(4):
        try:
            return data[: len(data) - missing].decode()
        except UnicodeDecodeError:
            continue
    return data.decode()


def _text(arguments: dict[str, Any], name: str, default: str | None) -> str:
    value = arguments.get(name, default)
    if value is None and default is not None:
        return default
    if not isinstance(value, str):
        raise _Refusal(f'the argument "{name}" must be a text.')
    return value


def by_unique_name(skills: Sequence[SessionSkill]) -> dict[str, SessionSkill]:
    """The skills by unique names. Skills may share a name, but the model can only refer to them by name."""
    found: dict[str, SessionSkill] = {}
    for skill in skills:
        name, number = skill.name, 2
        while name in found:
            name, number = f"{skill.name} ({number})", number + 1
        found[name] = skill
    return found


def skill_instructions(skills: Sequence[SessionSkill]) -> str:
    """The part of the instructions that lists the skills. Empty if there are none."""
    if not skills:
        return ""
    lines = [f"- {name}: {' '.join(skill.description.split())}" for name, skill in by_unique_name(skills).items()]
    return "\n".join(
        [
            "You have skills: folders with instructions and files, each made for one kind of task. When a task fits a "
            f"skill's description, read its {SKILL_MD} with {READ_SKILL_FILE} before you start, and then those of its "
            f"files that you need; {LIST_SKILL_FILES} names them. You can read these files but not run them.",
            "",
            *lines,
        ]
    )


def _specs(skill_names: list[str]) -> list[ToolSpec]:
    specs = [ToolSpec(CURRENT_TIME, "The current date and time in UTC.", _object({}))]
    if skill_names:
        skill = {"type": "string", "enum": skill_names, "description": "The name of the skill."}
        path = {"type": "string", "description": f"Path of the file within the skill. By default {SKILL_MD}."}
        specs += [
            ToolSpec(READ_SKILL_FILE, "Read one text file of a skill.", _object({"skill": skill, "path": path})),
            ToolSpec(LIST_SKILL_FILES, "List the files of a skill with their sizes.", _object({"skill": skill})),
        ]
    return specs


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    required = [name for name in properties if name != "path"]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def skills_offered(tools: Sequence[ToolSpec]) -> list[str]:
    """The names of the session's skills, read from the tool specifications."""
    for tool in tools:
        if tool.name == READ_SKILL_FILE:
            names: list[str] = tool.parameters["properties"]["skill"]["enum"]
            return names
    return []
