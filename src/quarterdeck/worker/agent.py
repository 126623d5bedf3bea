"""The agent of one run: model, instructions, tools, and the part of the conversation that fits into the context."""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from quarterdeck.agents.add_note import add_note
from quarterdeck.agents.attachments import wanted, with_contents, with_selection
from quarterdeck.agents.built_in_tools import BUILT_IN_TOOLS
from quarterdeck.agents.catalog import ModelCatalog
from quarterdeck.agents.context import Split, estimate_tokens, fit_turns, split_turns
from quarterdeck.agents.current_time import current_time
from quarterdeck.agents.model import ContextExceeded, Model, ModelFailure, OnText, Step, Turn
from quarterdeck.agents.output_schema import OutputSchema, output_instructions
from quarterdeck.agents.registry import ModelRegistry
from quarterdeck.agents.retry import step_with_retries
from quarterdeck.agents.skill_files import DELETED, SessionSkill, by_unique_name, skill_instructions, skill_tools
from quarterdeck.agents.summary import SUMMARY_INSTRUCTIONS, cut_summary, summary_request
from quarterdeck.agents.tools import Tool, Toolbox, client_tool
from quarterdeck.agents.workspace.model import WorkspaceKind
from quarterdeck.agents.workspace.place import Place
from quarterdeck.agents.workspace.scan import RESERVED
from quarterdeck.agents.workspace.skill_folders import SkillSource, folder_names
from quarterdeck.agents.workspace.workspace import Workspace
from quarterdeck.agents.workspace_tools import workspace_instructions, workspace_tools
from quarterdeck.blobs.blob_store import BlobStore
from quarterdeck.blobs.model import Blob
from quarterdeck.conversations.events.model import EventType, NewEvent
from quarterdeck.conversations.runs import calls
from quarterdeck.conversations.runs.lifecycle import Lease
from quarterdeck.conversations.runs.model import RunSetup, UsedSkill
from quarterdeck.conversations.sessions import service as sessions
from quarterdeck.core.agent_settings import ModelSettings, SandboxSettings
from quarterdeck.core.logging import fields, log
from quarterdeck.db.database import Connection, Database
from quarterdeck.skills import service as skills
from quarterdeck.skills.archive import Take
from quarterdeck.skills.bundle_files import BundleFiles
from quarterdeck.skills.model import ManifestFile, StoredBundle, UsableVersion
from quarterdeck.worker import journal
from quarterdeck.worker.attachment_loader import AttachmentLoader
from quarterdeck.worker.mcp_tools import McpTools
from quarterdeck.worker.result_images import ResultImages
from quarterdeck.worker.workspaces import Workspaces

# A model that rejects even this much is misconfigured; a shorter conversation would not help.
_MIN_CONTEXT_TOKENS = 500
# Of the context. Less is cut off until more has come together: a summary costs a request.
_MIN_SUMMARISED_SHARE = 0.1


class Compaction(Struct, frozen=True):
    """What the model made of the older turns."""

    step: Step
    split: Split
    # Empty: it wrote none.
    summary: str


class Agent:
    def __init__(
        self,
        model: Model,
        instructions: str,
        tools: Toolbox,
        settings: ModelSettings,
        place: Place | None,
        attachments: AttachmentLoader,
        images: ResultImages,
        output: OutputSchema | None,
    ) -> None:
        self._model = model
        self._output = output
        self._attachments = attachments
        self.images = images
        self._instructions = instructions
        # As long as what the model is told beside the conversation.
        self._told = instructions if output is None else instructions + output_instructions(output.schema)
        self.tools = tools
        self._place = place
        self._settings = settings
        self._context_tokens = settings.context_tokens
        self._dropped_turns = 0
        self._reported_turns = 0
        # Until a summary fails. Then older turns are cut off.
        self._summarises = settings.compaction == "summarise"

    @property
    def model_name(self) -> str:
        return self._model.name

    @property
    def conversation_tokens(self) -> int:
        """How much of the conversation is kept to select from. More than fits: the sizes in the log, where JSON has
        blanks, are compared with it too."""
        return self._settings.context_tokens * 5 // 4

    @property
    def result_bytes(self) -> int:
        """Largest size of a tool's result."""
        return self._settings.tool_result_bytes

    @property
    def workspace(self) -> Workspace | None:
        return None if self._place is None else self._place.workspace

    def close(self) -> None:
        """Gives the folder back to the worker."""
        if self._place is not None:
            self._place.close()

    async def step(self, turns: Sequence[Turn], left_out: int, on_text: OnText) -> Step:
        """`left_out`: the number of older turns that are not in `turns`. Raises ContextExceeded if the model rejects
        the conversation as too long: see `shorten`."""
        kept, dropped = self._fit(turns)
        self._dropped_turns = left_out + dropped
        kept = with_contents(kept, await self._attachments.load(wanted(kept)))
        schema = None if self._output is None else self._output.schema
        tools = self.tools.specs
        return await step_with_retries(self._model, self._instructions, kept, tools, on_text, self._settings, schema)

    def shorten(self, fault: ContextExceeded) -> None:
        """Halves the context: the model's window may be smaller than the setting, and tokens are estimated."""
        if self._context_tokens // 2 < _MIN_CONTEXT_TOKENS:
            raise fault
        self._context_tokens //= 2

    async def summarise(self, turns: Sequence[Turn]) -> Compaction | None:
        """Has the model summarise the older turns. None: all fit, or they are to be cut off."""
        while self._summarises and self._fit(turns)[1] > 0:
            # Half of the context stays free, so that the next summary is not needed soon.
            split = split_turns(turns, (self._context_tokens - estimate_tokens(self._told)) // 2)
            if split is None or split.older_tokens < self._context_tokens * _MIN_SUMMARISED_SHARE:
                return None
            request = summary_request(split.older, self._context_tokens)
            try:
                step = await step_with_retries(
                    self._model, SUMMARY_INSTRUCTIONS, [request], [], lambda _: None, self._settings
                )
            except ModelFailure as fault:
                if isinstance(fault, ContextExceeded) and self._context_tokens // 2 >= _MIN_CONTEXT_TOKENS:
                    self.shorten(fault)
                    continue
                log.warning("no summary", extra=fields(model=self._model.name, reason=str(fault)))
                self._summarises = False
                return None
            max_tokens = min(self._settings.summary_tokens, self._context_tokens // 4)
            summary = cut_summary(step.turn.text, max_tokens)
            self._summarises = bool(summary)
            self._reported_turns = 0
            return Compaction(step, split, summary)
        return None

    def _fit(self, turns: Sequence[Turn]) -> tuple[list[Turn], int]:
        selected = with_selection(turns, self._model.name, self._settings, self._context_tokens)
        return fit_turns(selected, self._context_tokens, self._told)

    async def checked(self, step: Step) -> tuple[Step, str | None]:
        """The step as it is stored, and why its answer does not match the output schema. None: it does, or it need
        not."""
        if self._output is None or step.turn.tool_calls:
            return step, None
        answer = self._output.cleaned(step.turn.text)
        step = replace(step, turn=replace(step.turn, text=answer))
        # Large answers take a second.
        return step, await asyncio.to_thread(self._output.mismatch, answer)

    def check_corrections(self, turns: Sequence[Turn]) -> None:
        """Raises ModelFailure if the model has been corrected often enough."""
        if journal.corrections(turns) > self._settings.output_retries:
            raise ModelFailure(f"The answer does not match output_schema. {journal.mismatch_of(turns)}")

    def notices(self) -> list[NewEvent]:
        """Events about the last step besides the model's answer."""
        if self._dropped_turns == self._reported_turns:
            return []
        self._reported_turns = self._dropped_turns
        return [NewEvent(EventType.CONTEXT_TRIMMED, {"dropped_turns": self._dropped_turns})]


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

    async def setup_of(self, connection: Connection, session_id: UUID) -> RunSetup:
        """The setup of a run that begins now. All its attempts keep it."""
        return await sessions.run_setup(connection, self._catalog, session_id)

    async def load(self, lease: Lease) -> Agent:
        setup = lease.setup
        session_skills = await self._skills(lease.workspace_id, setup.skills) if setup.skills else []
        model = await self._models.resolve(setup.model, setup.settings)
        has_workspace = setup.workspace is WorkspaceKind.SANDBOX
        of_servers = await self._mcp_tools.load(lease)
        # In a thread: it imports a library. Before the folder is taken, which must be given back.
        schema = setup.output_schema
        output = None if schema is None else await asyncio.to_thread(OutputSchema, schema)
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
            self._toolbox(lease, session_skills, own, of_servers.tools),
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
        self, lease: Lease, session_skills: list[SessionSkill], of_workspace: list[Tool], of_servers: list[Tool]
    ) -> Toolbox:
        list_files = partial(self._list_files, lease.workspace_id)
        read_file = partial(self._read_file, lease.workspace_id)
        built_in = [
            current_time(),
            *skill_tools(session_skills, list_files, read_file, self._model_settings.tool_result_bytes),
            add_note(partial(self._store_note, lease)),
            *of_workspace,
        ]
        assert all(tool.name in BUILT_IN_TOOLS for tool in built_in), "callers could have tools of the same name"
        # First: a tool that a later release adds must not take the place of the caller's tool of that name.
        return Toolbox([*map(client_tool, lease.setup.client_tools), *built_in, *of_servers])

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
