"""Puts together the agent of a run from its setup: model, instructions and tools."""

from collections.abc import Mapping
from functools import partial
from uuid import UUID

from quarterdeck.blobs.blob_store import BlobStore
from quarterdeck.blobs.model import Blob
from quarterdeck.core.settings import ModelSettings, SandboxSettings
from quarterdeck.db.database import Connection, Database
from quarterdeck.events.model import EventType, NewEvent
from quarterdeck.models.catalog import ModelCatalog
from quarterdeck.models.demo import DEMO
from quarterdeck.models.model import Model
from quarterdeck.models.output_schema import OutputSchema, SchemaChecks
from quarterdeck.models.registry import ModelRegistry
from quarterdeck.runs import calls
from quarterdeck.runs.lifecycle import Lease
from quarterdeck.runs.model import RunSetup, UsedSkill
from quarterdeck.sandbox.manifest import WorkspaceKind
from quarterdeck.sandbox.run_folders import Place
from quarterdeck.sandbox.scan import RESERVED
from quarterdeck.sandbox.skill_folders import SkillSource, folder_names
from quarterdeck.sessions import service as sessions
from quarterdeck.skills import service as skills
from quarterdeck.skills.archive import Take
from quarterdeck.skills.bundle_files import BundleFiles
from quarterdeck.skills.model import ManifestFile, StoredBundle, UsableVersion
from quarterdeck.tools.add_note import add_note
from quarterdeck.tools.built_in_tools import BUILT_IN_TOOLS
from quarterdeck.tools.current_time import current_time
from quarterdeck.tools.sandbox_tools import workspace_instructions, workspace_tools
from quarterdeck.tools.skill_files import DELETED, SessionSkill, by_unique_name, skill_instructions, skill_tools
from quarterdeck.tools.tool import Tool, Toolbox, client_tool
from quarterdeck.worker.agent import Agent
from quarterdeck.worker.attachment_loader import AttachmentLoader, ResultImages
from quarterdeck.worker.mcp_tools import McpTools
from quarterdeck.worker.session_files import Workspaces


class AgentLoader:
    def __init__(
        self,
        database: Database,
        blobs: BlobStore,
        files: BundleFiles,
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
        self._files = files
        self._models = models
        self._model_settings = model_settings
        self._catalog = ModelCatalog(model_settings)
        self._schemas = SchemaChecks()

    async def setup_of(self, connection: Connection, session_id: UUID) -> RunSetup:
        """The setup of a run that begins now. All its attempts keep it."""
        return await sessions.run_setup(connection, self._catalog, session_id)

    async def load(self, lease: Lease) -> Agent:
        setup = lease.setup
        session_skills = await self._skills(lease.workspace_id, setup.skills) if setup.skills else []
        model = await self._models.resolve(setup.model, setup.settings)
        has_workspace = setup.workspace is WorkspaceKind.SANDBOX
        of_servers = await self._mcp_tools.load(lease)
        schema = setup.output_schema
        output = None if schema is None else OutputSchema(self._schemas, lease.workspace_id, schema)
        place = self._place(lease, session_skills) if has_workspace else None
        instructions = [
            setup.instructions or "",
            workspace_instructions(self._sandbox_settings) if has_workspace else "",
            skill_instructions(session_skills, _folders(session_skills) if has_workspace else None),
            of_servers.instructions,
        ]
        own = workspace_tools(place, self._sandbox_settings) if has_workspace else []
        return Agent(
            model,
            "\n\n".join(filter(None, instructions)),
            self._toolbox(lease, session_skills, [*own, *self._demo_tools(lease, model)], of_servers.tools),
            self._model_settings,
            place,
            AttachmentLoader(self._database, self._blobs),
            ResultImages(self._database, self._blobs, lease.workspace_id),
            output,
        )

    def _place(self, lease: Lease, session_skills: list[SessionSkill]) -> Place | None:
        if self._workspaces is None:
            return None
        folders = folder_names(by_unique_name(session_skills))
        sources = {
            folders[name]: SkillSource(
                skill.archive,
                partial(self._list_files, lease.workspace_id, skill),
                partial(self._unpack, lease.workspace_id, skill.archive),
            )
            for name, skill in by_unique_name(session_skills).items()
            if skill.archive is not None
        }
        return self._workspaces.place(lease, sources)

    async def _unpack(
        self, workspace_id: UUID, archive: Blob, files: list[ManifestFile], takers: Mapping[str, Take]
    ) -> None:
        await self._files.unpack(StoredBundle(workspace_id, archive, files), files, takers)

    async def _skills(self, workspace_id: UUID, used: list[UsedSkill]) -> list[SessionSkill]:
        async def read(connection: Connection) -> list[UsableVersion]:
            return await skills.used_versions(connection, workspace_id, [(one.skill_id, one.version) for one in used])

        found = {version.skill_id: version for version in await self._database.read(read)}
        return [_session_skill(one, found.get(one.skill_id)) for one in used]

    def _toolbox(
        self, lease: Lease, session_skills: list[SessionSkill], others: list[Tool], of_servers: list[Tool]
    ) -> Toolbox:
        list_files = partial(self._list_files, lease.workspace_id)
        read_file = partial(self._read_file, lease.workspace_id)
        built_in = [
            current_time(),
            *skill_tools(session_skills, list_files, read_file, self._model_settings.tool_result_bytes),
            *others,
        ]
        assert all(tool.name in BUILT_IN_TOOLS for tool in built_in), "callers could have tools of the same name"
        of_caller = [
            client_tool(spec, partial(self._schemas.arguments_mismatch, lease.workspace_id, spec.parameters))
            for spec in lease.setup.client_tools
        ]
        # First: a tool that a later release adds must not take the place of the caller's tool of that name.
        return Toolbox([*of_caller, *built_in, *of_servers])

    def _demo_tools(self, lease: Lease, model: Model) -> list[Tool]:
        return [add_note(partial(self._store_note, lease))] if model.name == DEMO else []

    async def _store_note(self, lease: Lease, text: str, key: str) -> None:
        await calls.append(self._database, lease, NewEvent(EventType.NOTE, {"text": text, "key": key}))

    async def _list_files(self, workspace_id: UUID, skill: SessionSkill) -> list[ManifestFile]:
        async def read(connection: Connection) -> list[ManifestFile]:
            return await skills.files_of(connection, workspace_id, skill.skill_id, skill.version)

        return await self._database.read(read)

    async def _read_file(
        self, workspace_id: UUID, skill: SessionSkill, files: list[ManifestFile], file: ManifestFile, max_bytes: int
    ) -> bytes:
        assert skill.archive is not None, "a skill without an archive has no files"
        bundle = StoredBundle(workspace_id, skill.archive, files)
        return b"".join([piece async for piece in self._files.pieces(bundle, file, 0, min(file.bytes, max_bytes))])


def _folders(session_skills: list[SessionSkill]) -> dict[str, str]:
    """The folders of the skills that have one, as a model names them."""
    skills = by_unique_name(session_skills)
    return {name: f"{RESERVED}/{folder}" for name, folder in folder_names(skills).items() if skills[name].archive}


def _session_skill(used: UsedSkill, version: UsableVersion | None) -> SessionSkill:
    return SessionSkill(
        name=used.name,
        description=DELETED if version is None else version.description,
        skill_id=used.skill_id,
        version=used.version,
        archive=None if version is None else version.archive,
    )
