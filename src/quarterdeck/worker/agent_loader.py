"""Puts together the agent of a run from its setup: model, instructions and tools."""

from typing import Any

from quarterdeck.blobs.blob_store import BlobStore
from quarterdeck.core.settings import ModelSettings, SandboxSettings
from quarterdeck.db.database import Database
from quarterdeck.events.model import EventType, NewEvent
from quarterdeck.models.catalog import ModelCatalog
from quarterdeck.models.demo import DEMO
from quarterdeck.models.model import Model
from quarterdeck.models.output_schema import OutputSchema, SchemaChecks
from quarterdeck.models.registry import ModelRegistry
from quarterdeck.runs import calls
from quarterdeck.runs.lifecycle import Lease
from quarterdeck.sandbox.manifest import WorkspaceKind
from quarterdeck.sandbox.run_folders import folder_names
from quarterdeck.sandbox.scan import RESERVED
from quarterdeck.skills.session_skills import SessionSkill, SkillReader
from quarterdeck.tools.built_in_tools import (
    ADD_NOTE,
    BUILT_IN_TOOLS,
    current_time,
    workspace_instructions,
    workspace_tools,
)
from quarterdeck.tools.model import ToolSpec
from quarterdeck.tools.skill_files import by_unique_name, skill_instructions, skill_tools
from quarterdeck.tools.tool import CallContext, Effect, Tool, Toolbox, client_tool, parameters, text_argument
from quarterdeck.worker.agent import Agent
from quarterdeck.worker.mcp_tools import McpTools
from quarterdeck.worker.run_files import AttachmentLoader, ResultImages, Workspaces


class AgentLoader:
    def __init__(
        self,
        database: Database,
        blobs: BlobStore,
        skills: SkillReader,
        models: ModelRegistry,
        model_settings: ModelSettings,
        sandbox_settings: SandboxSettings,
        workspaces: Workspaces | None,
        mcp_tools: McpTools,
    ) -> None:
        """`workspaces` is None if the worker has no sandbox."""
        self._mcp_tools = mcp_tools
        self._database = database
        self._blobs = blobs
        self._sandbox_settings = sandbox_settings
        self._workspaces = workspaces
        self._skills = skills
        self._models = models
        self._model_settings = model_settings
        self.catalog = ModelCatalog(model_settings)
        self.schemas = SchemaChecks()

    async def load(self, lease: Lease) -> Agent:
        setup = lease.setup
        skills = await self._skills.load(
            [SessionSkill(one.name, one.skill_id, one.version, lease.workspace_id) for one in setup.skills]
        )
        named = by_unique_name(skills)
        # The names of their folders, for those that have files.
        folders = {name: folder for name, folder in folder_names(named).items() if named[name].archive is not None}
        model = await self._models.resolve(setup.model, setup.settings)
        of_servers = await self._mcp_tools.load(lease)
        schema = setup.output_schema
        has_workspace = setup.workspace is WorkspaceKind.SANDBOX
        place = None
        tools: list[Tool] = []
        instructions = [setup.instructions or ""]
        if has_workspace:
            if self._workspaces is not None:
                place = self._workspaces.place(lease, {folder: named[name] for name, folder in folders.items()})
            tools += workspace_tools(place, self._sandbox_settings)
            instructions.append(workspace_instructions(self._sandbox_settings))
        paths = {name: f"{RESERVED}/{folder}" for name, folder in folders.items()}
        instructions += [skill_instructions(skills, paths if has_workspace else None), of_servers.instructions]
        return Agent(
            model,
            "\n\n".join(filter(None, instructions)),
            self._toolbox(lease, skills, [*tools, *self._demo_tools(lease, model)], of_servers.tools),
            self._model_settings,
            place,
            AttachmentLoader(self._database, self._blobs),
            ResultImages(self._database, self._blobs, lease.workspace_id),
            None if schema is None else OutputSchema(self.schemas, lease.workspace_id, schema),
        )

    def _toolbox(self, lease: Lease, skills: list[SessionSkill], others: list[Tool], of_servers: list[Tool]) -> Toolbox:
        result_bytes = self._model_settings.tool_result_bytes
        built_in = [current_time(), *skill_tools(skills, self._skills, result_bytes), *others]
        assert all(tool.name in BUILT_IN_TOOLS for tool in built_in), "callers could have tools of the same name"
        of_caller = [client_tool(spec) for spec in lease.setup.client_tools]
        # First: a tool that a later release adds must not take the place of the caller's tool of that name.
        return Toolbox([*of_caller, *built_in, *of_servers])

    def _demo_tools(self, lease: Lease, model: Model) -> list[Tool]:
        return [add_note(self._database, lease)] if model.name == DEMO else []


def add_note(database: Database, lease: Lease) -> Tool:
    """Stores a note in the session's log. Stands for tools with effects outside of the database: two calls store two
    notes, and the note is not stored in the transaction of its result."""

    async def add(arguments: dict[str, Any], context: CallContext) -> str:
        note = {"text": text_argument(arguments, "text"), "key": context.key}
        await calls.append(database, lease, NewEvent(EventType.NOTE, note))
        return "The note is stored."

    properties = {"text": {"type": "string", "description": "The note."}}
    spec = ToolSpec(ADD_NOTE, "Store a note in the log of this session.", parameters(properties))
    return Tool(spec=spec, effect=Effect.WRITES, carry_out=add)
