"""The tools that every model has: the time, and the files of the session's skills. Nothing is executed.

Whatever a model asks for, it gets a bounded text; what it did wrong is told to it, never raised.
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
    """A skill as one run sees it: the version that is pinned, or was the latest when the run began."""

    name: str
    description: str
    skill_id: UUID
    version: int
    archive: Archive
    files: list[ManifestFile]


# The first bytes of one file of a skill: path, most bytes. None: the archive has no such file.
ReadFile = Callable[[SessionSkill, str, int], Awaitable[bytes | None]]


class _Refusal(Exception):
    """What the model is told about its call."""


class Toolbox:
    """The tools of one run."""

    def __init__(
        self,
        skills: Sequence[SessionSkill],
        read_file: ReadFile,
        result_bytes: int,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._skills = named(skills)
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
            log.warning("a skill's file could not be read", exc_info=fault, extra=fields(tool=call.name))
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
            lines = "".join(f"{file.path} ({file.bytes} bytes)\n" for file in skill.files)
            return self._bounded(lines.encode(), len(lines.encode()))
        return await self._content(skill, _text(call.arguments, "path", SKILL_MD))

    def _skill(self, arguments: dict[str, Any]) -> SessionSkill:
        name = _text(arguments, "skill", None)
        if name not in self._skills:
            raise _Refusal(f'there is no skill "{shown(name)}". The skills are: {", ".join(self._skills)}.')
        return self._skills[name]

    async def _content(self, skill: SessionSkill, path: str) -> str:
        path = path.removeprefix("./") or SKILL_MD
        size = next((file.bytes for file in skill.files if file.path == path), None)
        data = None if size is None else await self._read_file(skill, path, self._result_bytes)
        if size is None or data is None:
            raise _Refusal(f'this skill has no file "{shown(path)}". {LIST_SKILL_FILES} names those it has.')
        return self._bounded(data, size)

    def _bounded(self, data: bytes, size: int) -> str:
        """`data` is the beginning of `size` bytes."""
        kept = data[: self._result_bytes]
        try:
            # Three bytes at most of a character that the cut went through.
            text = kept.decode() if len(kept) == size else _decode_start(kept)
        except UnicodeDecodeError:
            text = "\0"
        # Text that can be neither stored nor shown is no text.
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


def named(skills: Sequence[SessionSkill]) -> dict[str, SessionSkill]:
    """Each under a name of its own: names of skills need not differ, and a model has nothing else to go by."""
    found: dict[str, SessionSkill] = {}
    for skill in skills:
        name, number = skill.name, 2
        while name in found:
            name, number = f"{skill.name} ({number})", number + 1
        found[name] = skill
    return found


def skill_instructions(skills: Sequence[SessionSkill]) -> str:
    """The part of the instructions that tells the model about its skills. Empty without any."""
    if not skills:
        return ""
    lines = [f"- {name}: {' '.join(skill.description.split())}" for name, skill in named(skills).items()]
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
    """The names of the session's skills, as a model finds them among its tools."""
    for tool in tools:
        if tool.name == READ_SKILL_FILE:
            names: list[str] = tool.parameters["properties"]["skill"]["enum"]
            return names
    return []
