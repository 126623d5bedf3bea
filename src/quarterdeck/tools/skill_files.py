"""The tools that read the files of the session's skills, and the instructions about them."""

from collections.abc import Mapping, Sequence
from typing import Any

from quarterdeck.core.errors import ServiceError
from quarterdeck.core.logging import log
from quarterdeck.sandbox.model import Refusal
from quarterdeck.skills.model import shown
from quarterdeck.skills.session_skills import RunSkill, SkillReader
from quarterdeck.tools.model import BuiltIn, ToolSpec
from quarterdeck.tools.tool import CallContext, CarryOut, Effect, Output, Tool, bounded_text, parameters, text_argument

SKILL_MD = "SKILL.md"


def skill_tools(skills: Sequence[RunSkill], reader: SkillReader, result_bytes: int) -> list[Tool]:
    """No tools without skills."""
    if not skills:
        return []
    files = _SkillFiles(by_unique_name(skills), reader, result_bytes)
    names = list(files.skills)
    skill = {"type": "string", "enum": names, "description": "The name of the skill."}
    path = {"type": "string", "description": f"Path of the file within the skill. By default {SKILL_MD}."}
    read = ToolSpec(
        BuiltIn.READ_SKILL_FILE,
        "Read one text file of a skill.",
        parameters({"skill": skill, "path": path}, ["path"]),
    )
    listing = ToolSpec(
        BuiltIn.LIST_SKILL_FILES, "List the files of a skill with their sizes.", parameters({"skill": skill})
    )
    return [
        Tool(spec=read, effect=Effect.READS, carry_out=_with_reported_faults(files.read)),
        Tool(spec=listing, effect=Effect.READS, carry_out=_with_reported_faults(files.list)),
    ]


def _with_reported_faults(carry_out: CarryOut) -> CarryOut:
    async def call(arguments: dict[str, Any], context: CallContext) -> str | Output:
        try:
            return await carry_out(arguments, context)
        except (OSError, ServiceError) as fault:
            log.warning("a skill file could not be read", exc_info=fault)
            raise Refusal("the skill's files cannot be read at the moment.") from fault

    return call


class _SkillFiles:
    def __init__(self, skills: dict[str, RunSkill], reader: SkillReader, result_bytes: int) -> None:
        self.skills = skills
        self._reader = reader
        self._result_bytes = result_bytes

    async def list(self, arguments: dict[str, Any], context: CallContext) -> str:
        files = await self._reader.files(self._skill(arguments))
        lines = "".join(f"{file.path} ({file.bytes} bytes)\n" for file in files).encode()
        return bounded_text(lines, len(lines), self._result_bytes)

    async def read(self, arguments: dict[str, Any], context: CallContext) -> str:
        skill = self._skill(arguments)
        path = text_argument(arguments, "path", SKILL_MD).removeprefix("./") or SKILL_MD
        file = next((file for file in await self._reader.files(skill) if file.path == path), None)
        if file is None:
            raise Refusal(f'this skill has no file "{shown(path)}". {BuiltIn.LIST_SKILL_FILES} names those it has.')
        data = await self._reader.read(file, self._result_bytes)
        try:
            text = bounded_text(data, file.bytes, self._result_bytes)
        except UnicodeDecodeError:
            text = "\0"
        # PostgreSQL cannot store U+0000 in text.
        return f"This is a binary file of {file.bytes} bytes; only text can be read." if "\0" in text else text

    def _skill(self, arguments: dict[str, Any]) -> RunSkill:
        name = text_argument(arguments, "skill")
        if name not in self.skills:
            raise Refusal(f'there is no skill "{shown(name)}". The skills are: {", ".join(self.skills)}.')
        if self.skills[name].archive is None:
            raise Refusal(f'the skill "{shown(name)}" was deleted.')
        return self.skills[name]


def by_unique_name(skills: Sequence[RunSkill]) -> dict[str, RunSkill]:
    """The skills by unique names. Skills may share a name, but the model can only refer to them by name."""
    found: dict[str, RunSkill] = {}
    for skill in skills:
        name, number = skill.name, 2
        while name in found:
            name, number = f"{skill.name} ({number})", number + 1
        found[name] = skill
    return found


def skill_instructions(skills: Sequence[RunSkill], folders: Mapping[str, str] | None = None) -> str:
    """The part of the instructions that lists the skills. Empty if there are none. `folders`: their folders in the
    sandbox, by unique name. None: the session has no sandbox."""
    if not skills:
        return ""
    lines = [
        f"- {name}{_where(name, folders)}: {' '.join(skill.description.split())}"
        for name, skill in by_unique_name(skills).items()
    ]
    use = (
        "You can read these files but not run them."
        if folders is None
        else "The files are also in your sandbox, in the folder named with the skill, read-only: run scripts there "
        "with bash, for example `python3 skills/NAME/scripts/example.py`."
    )
    return "\n".join(
        [
            "You have skills: folders with instructions and files, each made for one kind of task. When a task fits a "
            f"skill's description, read its {SKILL_MD} with {BuiltIn.READ_SKILL_FILE} before you start, and then those "
            f"of its files that you need; {BuiltIn.LIST_SKILL_FILES} names them. {use}",
            "",
            *lines,
        ]
    )


def _where(name: str, folders: Mapping[str, str] | None) -> str:
    folder = None if folders is None else folders.get(name)
    return "" if folder is None else f" (in {folder})"


def skills_offered(tools: Sequence[ToolSpec]) -> list[str]:
    """The names of the session's skills, read from the tool specifications."""
    for tool in tools:
        if tool.name == BuiltIn.READ_SKILL_FILE:
            names: list[str] = tool.parameters["properties"]["skill"]["enum"]
            return names
    return []
