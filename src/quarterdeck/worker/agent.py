"""The agent of one run: its model, what it is told, its tools, and as much of the conversation as the model holds."""

from collections.abc import Sequence

from quarterdeck.agents.context import fit
from quarterdeck.agents.model import ContextExceeded, Model, OnText, Step, ToolCall, ToolResult, Turn
from quarterdeck.agents.stepping import model_step
from quarterdeck.agents.tools import SessionSkill, Toolbox, skill_instructions
from quarterdeck.conversations.events.model import EventType, NewEvent
from quarterdeck.conversations.runs.lifecycle import Lease, Superseded
from quarterdeck.conversations.sessions import service as sessions
from quarterdeck.conversations.sessions.model import AgentSetup
from quarterdeck.core.settings import ModelSettings
from quarterdeck.db.database import Connection
from quarterdeck.skills import service as skills
from quarterdeck.skills.model import UsableVersion
from quarterdeck.worker.parts import WorkerParts

# Below this a conversation is no use, and the fault lies elsewhere.
_LEAST_CONTEXT_TOKENS = 500


class Agent:
    def __init__(self, model: Model, instructions: str, tools: Toolbox, settings: ModelSettings) -> None:
        self._model = model
        self._instructions = instructions
        self._tools = tools
        self._settings = settings
        self._context_tokens = settings.context_tokens
        self._dropped = 0
        self._told = 0

    async def step(self, turns: Sequence[Turn], on_text: OnText) -> Step:
        """With half as much of the conversation each time that the model finds it too long: its window may be smaller
        than the setting says, and the count of tokens is an estimate."""
        while True:
            kept, self._dropped = fit(turns, self._context_tokens, self._instructions)
            tools = self._tools.specs
            try:
                return await model_step(self._model, self._instructions, kept, tools, on_text, self._settings)
            except ContextExceeded:
                if self._context_tokens // 2 < _LEAST_CONTEXT_TOKENS:
                    raise
                self._context_tokens //= 2

    def notices(self) -> list[NewEvent]:
        """What the log should say about the last step besides its answer."""
        if self._dropped == self._told:
            return []
        self._told = self._dropped
        return [NewEvent(EventType.CONTEXT_TRIMMED, {"dropped_turns": self._dropped})]

    async def call(self, call: ToolCall) -> ToolResult:
        return await self._tools.call(call)


async def load_agent(parts: WorkerParts, lease: Lease) -> Agent:
    settings = parts.settings

    async def read(connection: Connection) -> tuple[AgentSetup, list[UsableVersion]]:
        setup = await sessions.agent_setup(connection, lease.session_id)
        if setup is None:
            # Deleted since the attempt began.
            raise Superseded
        return setup, await skills.of_session(connection, lease.session_id)

    setup, versions = await parts.database.read(read)
    found = [
        SessionSkill(
            name=one.frontmatter["name"],
            description=one.frontmatter["description"],
            skill_id=one.skill_id,
            version=one.version,
            archive=one.archive,
            files=one.manifest.files,
        )
        for one in versions
    ]

    async def read_file(skill: SessionSkill, path: str, max_bytes: int) -> bytes | None:
        return await skills.read_file(parts.bundles, skill.archive, path, settings.bundle, max_bytes)

    parts_of_instructions = [setup.instructions or "", skill_instructions(found)]
    return Agent(
        await parts.models.resolve(setup.model),
        "\n\n".join(part for part in parts_of_instructions if part),
        Toolbox(found, read_file, settings.model.tool_result_bytes),
        settings.model,
    )
