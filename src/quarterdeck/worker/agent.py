"""The agent of one run: model, instructions, tools, and the part of the conversation that fits into the context."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from quarterdeck.blobs.blob_store import BlobStore
from quarterdeck.core.logging import fields, log
from quarterdeck.core.settings import ModelSettings, SandboxSettings
from quarterdeck.db.database import Database
from quarterdeck.events.model import EventType, NewEvent
from quarterdeck.models.attachments import omitted_files, wanted, with_contents, with_selection
from quarterdeck.models.catalog import ModelCatalog
from quarterdeck.models.context import (
    SUMMARY_INSTRUCTIONS,
    Split,
    cut_summary,
    estimate_tokens,
    fit_turns,
    seen_turns,
    split_turns,
    summary_request,
    turn_tokens,
)
from quarterdeck.models.demo import DEMO
from quarterdeck.models.model import (
    Batches,
    ContextExceeded,
    Model,
    ModelFailure,
    OnRetry,
    OnText,
    QuotaExceeded,
    Step,
    StepRequest,
    Turn,
)
from quarterdeck.models.output_schema import OutputSchema, SchemaChecks, output_instructions
from quarterdeck.models.registry import ModelRegistry
from quarterdeck.models.retry import step_with_retries
from quarterdeck.runs import calls
from quarterdeck.runs.lifecycle import Lease
from quarterdeck.runs.model import Priority
from quarterdeck.sandbox.adapter import SANDBOX_FOLDER
from quarterdeck.sandbox.run_folders import RunSandbox, folder_names
from quarterdeck.sandbox.scan import RESERVED
from quarterdeck.sandbox.session_folder import SessionFolder
from quarterdeck.skills.session_skills import RunSkill, SkillReader
from quarterdeck.tools.bash import OUTPUT_FOLDER, bash
from quarterdeck.tools.files import edit_file, list_files, read_file, search_files, write_file
from quarterdeck.tools.model import BuiltIn, ToolSpec
from quarterdeck.tools.skill_files import by_unique_name, skill_instructions, skill_tools
from quarterdeck.tools.tool import CallContext, Effect, Tool, Toolbox, client_tool, parameters, text_argument
from quarterdeck.worker import journal
from quarterdeck.worker.mcp_tools import McpTools
from quarterdeck.worker.run_files import AttachmentLoader, ResultImages, SessionFolders

# A model that rejects even this much is misconfigured; a shorter conversation would not help.
_MIN_CONTEXT_TOKENS = 500
# The smallest share of the context that is summarised. Less is cut off until more has come together: a summary costs
# a request.
_MIN_SUMMARISED_SHARE = 0.1


class Trimmed(Struct, frozen=True, omit_defaults=True):
    """How a request was shortened. Data of the event context.trimmed."""

    # Not in the request.
    dropped_turns: int
    # Texts that were cut in the middle.
    cut_turns: int = 0
    # Attachments and images that are only mentioned, to make room for newer ones.
    omitted_files: int = 0


_WHOLE = Trimmed(0)


class Compaction(Struct, frozen=True):
    """The older turns are no longer sent."""

    split: Split
    # What the model made of them. Empty: nothing.
    summary: str = ""
    # None: it was not asked.
    step: Step | None = None


class Agent:
    def __init__(
        self,
        model: Model,
        resolve: Callable[[str], Awaitable[Model]],
        instructions: str,
        tools: Toolbox,
        settings: ModelSettings,
        sandbox: RunSandbox | None,
        attachments: AttachmentLoader,
        images: ResultImages,
        output: OutputSchema | None,
        priority: Priority,
        batches_of: Callable[[Model], Batches | None],
    ) -> None:
        """`resolve` finds a fallback model by its name, `batches_of` the batch interface of a model, if any."""
        self._model = model
        self._resolve = resolve
        self.asks_once = False
        self._priority = priority
        self._batches_of = batches_of
        self._output = output
        self._attachments = attachments
        self.images = images
        self._instructions = instructions
        # As long as what the model is told beside the conversation.
        self._told = instructions if output is None else instructions + output_instructions(output.schema)
        self.tools = tools
        self._sandbox = sandbox
        self._settings = settings
        self.result_bytes = settings.tool_result_bytes
        # Of models whose window is smaller than the setting.
        self._windows: dict[str, int] = {}
        # How the last request was shortened, and what the log says about it.
        self._trimmed = _WHOLE
        self._reported = _WHOLE
        # Not sent with the last request to each model, and not reported yet.
        self._ignored_settings: dict[str, tuple[str, ...]] = {}
        self._summarises = settings.compaction == "summarise"
        # The model did not summarise the older turns: they are cut off, and the next run asks again.
        self._summary_failed = False

    @property
    def model_name(self) -> str:
        """Of the model that answers now."""
        return self._model.name

    @property
    def batches(self) -> Batches | None:
        """None: its requests are not part of batches."""
        return self._batches_of(self._model) if self._priority is Priority.BATCH else None

    async def use(self, model_name: str, *, once: bool) -> None:
        """The model that answers from now on. `once`: a request to it that fails is not repeated, since another model
        may answer: TransientFailure is raised."""
        if model_name != self._model.name:
            self._model = await self._resolve(model_name)
        self.asks_once = once

    @property
    def _context_tokens(self) -> int:
        return self._windows.get(self._model.name, self._settings.context_tokens)

    @property
    def conversation_tokens(self) -> int:
        """How much of the conversation is kept to select from. More than fits: the sizes in the log, where JSON has
        blanks, are compared with it too."""
        return self._settings.context_tokens * 5 // 4

    @property
    def session_folder(self) -> SessionFolder | None:
        return None if self._sandbox is None else self._sandbox.session_folder

    def close(self) -> None:
        """Gives the folder back to the worker."""
        if self._sandbox is not None:
            self._sandbox.close()

    async def step(
        self,
        turns: Sequence[Turn],
        left_out: int,
        on_text: OnText,
        on_retry: OnRetry,
        pause_seconds: Callable[[], float],
    ) -> Step:
        """`left_out`: the number of older turns that are not in `turns`. Raises ContextExceeded if the model rejects
        the conversation as too long: see `shorten`."""
        request = replace(await self.request(turns, left_out), pause_seconds=pause_seconds)
        return self._noted(
            await step_with_retries(self._model, request, on_text, on_retry, self._settings, once=self.asks_once)
        )

    async def decoded(self, batches: Batches, body: str, turns: Sequence[Turn], left_out: int) -> Step:
        """The answer of a batch to the request for these turns."""
        return self._noted(await batches.decode(body, await self.request(turns, left_out)))

    async def request(self, turns: Sequence[Turn], left_out: int) -> StepRequest:
        kept, dropped = await asyncio.to_thread(self._fit, turns)
        self._trimmed = Trimmed(left_out + dropped, sum(turn.is_cut for turn in kept), omitted_files(kept))
        kept = with_contents(kept, await self._attachments.load(wanted(kept)))
        schema = None if self._output is None else self._output.schema
        return StepRequest(self._instructions, kept, self.tools.specs, schema)

    def _noted(self, step: Step) -> Step:
        ignored = ("priority",) if self._priority is Priority.BATCH and self.batches is None else ()
        self._ignored_settings.setdefault(self._model.name, (*step.ignored_settings, *ignored))
        return step

    async def estimated_tokens(self, turns: Sequence[Turn]) -> int:
        """Of the next request, without its answer."""

        def estimate() -> int:
            return estimate_tokens(self._told) + sum(map(turn_tokens, turns))

        # In a thread for the same reason as `_fit`.
        return min(await asyncio.to_thread(estimate), self._context_tokens)

    def shorten(self, fault: ContextExceeded) -> None:
        """Halves the context: the model's window may be smaller than the setting, and tokens are estimated."""
        if self._context_tokens // 2 < _MIN_CONTEXT_TOKENS:
            raise fault
        self._windows[self._model.name] = self._context_tokens // 2

    async def compact(self, turns: Sequence[Turn], on_retry: OnRetry) -> Compaction | None:
        """Leaves the older turns out, and has the model summarise them. None: all fit, or they are to be cut off.

        Much at once and seldom: what follows it changes its place, so that no cache of the provider has it."""
        while not self._summary_failed and await asyncio.to_thread(self._changes_sent_turns, turns):
            # Half of the context stays free, so that the next summary is not needed soon.
            split = split_turns(turns, (self._context_tokens - estimate_tokens(self._told)) // 2)
            if split is None or split.older_tokens < self._context_tokens * _MIN_SUMMARISED_SHARE:
                return None
            self._reported = _WHOLE
            if not self._summarises:
                return Compaction(split)
            older = await asyncio.to_thread(summary_request, split.older, self._context_tokens)
            request = StepRequest(SUMMARY_INSTRUCTIONS, [older])
            try:
                step = await step_with_retries(
                    self._model, request, lambda _: None, on_retry, self._settings, once=self.asks_once
                )
            except QuotaExceeded:
                raise
            except ModelFailure as fault:
                if isinstance(fault, ContextExceeded) and self._context_tokens // 2 >= _MIN_CONTEXT_TOKENS:
                    self.shorten(fault)
                    continue
                log.warning("no summary", extra=fields(model=self._model.name, reason=str(fault)))
                self._summary_failed = True
                return None
            max_tokens = min(self._settings.summary_tokens, self._context_tokens // 4)
            summary = cut_summary(step.turn.text, max_tokens)
            self._summary_failed = not summary
            return Compaction(split, summary, step)
        return None

    def _changes_sent_turns(self, turns: Sequence[Turn]) -> bool:
        """Whether turns that the model has answered would be left out or cut."""
        kept, dropped = self._fit(turns)
        return dropped > 0 or any(turn.is_cut for turn in seen_turns(kept))

    def _fit(self, turns: Sequence[Turn]) -> tuple[list[Turn], int]:
        """In a thread: tens of thousands of short turns take a tenth of a second."""
        selected = with_selection(turns, self._model.takes, self._settings, self._context_tokens)
        return fit_turns(selected, self._context_tokens, self._told)

    async def checked(self, step: Step) -> tuple[Step, str | None]:
        """The step as it is stored, and why its answer does not match the output schema. None: it does, or it need
        not."""
        if self._output is None or step.turn.tool_calls:
            return step, None
        answer = self._output.cleaned(step.turn.text)
        step = replace(step, turn=replace(step.turn, text=answer))
        return step, await self._output.mismatch(answer)

    def check_corrections(self, turns: Sequence[Turn], run_id: UUID) -> None:
        """Raises ModelFailure if the model has been corrected often enough in this run."""
        if journal.corrections(turns, run_id) > self._settings.output_retries:
            raise ModelFailure(f"The answer does not match output_schema. {journal.mismatch_of(turns)}")

    def notices(self) -> list[NewEvent]:
        """Events about the last step besides the model's answer."""
        found: list[NewEvent] = []
        if ignored := self._ignored_settings.get(self._model.name):
            data = {"model": self._model.name, "settings": list(ignored)}
            found.append(NewEvent(EventType.SETTINGS_IGNORED, data))
            self._ignored_settings[self._model.name] = ()
        if self._trimmed != self._reported:
            self._reported = self._trimmed
            found.append(NewEvent(EventType.CONTEXT_TRIMMED, to_builtins(self._trimmed)))
        return found


# Puts together the agent of a run from its setup: model, instructions and tools.


class AgentLoader:
    def __init__(
        self,
        database: Database,
        blobs: BlobStore,
        skills: SkillReader,
        models: ModelRegistry,
        model_settings: ModelSettings,
        sandbox_settings: SandboxSettings,
        session_folders: SessionFolders | None,
        mcp_tools: McpTools,
    ) -> None:
        """`session_folders` is None if the worker has no sandbox."""
        self._mcp_tools = mcp_tools
        self._database = database
        self._blobs = blobs
        self._sandbox_settings = sandbox_settings
        self._session_folders = session_folders
        self._skills = skills
        self._models = models
        self._model_settings = model_settings
        self.catalog = ModelCatalog(model_settings)
        self.schemas = SchemaChecks()

    async def load(self, lease: Lease) -> Agent:
        setup = lease.setup
        skills = await self._skills.load(
            [RunSkill(one.name, one.skill_id, one.version, lease.workspace_id) for one in setup.skills]
        )
        named = by_unique_name(skills)
        # The names of their folders, for those that have files.
        folders = {name: folder for name, folder in folder_names(named).items() if named[name].archive is not None}
        conversation = str(lease.session_id)
        model = await self._models.resolve(setup.model, setup.settings, conversation)
        of_servers = await self._mcp_tools.load(lease)
        schema = setup.output_schema
        sandbox = None
        tools: list[Tool] = []
        instructions = [setup.instructions or ""]
        if setup.sandbox is not None:
            if self._session_folders is not None:
                sandbox = self._session_folders.run_sandbox(
                    lease, {folder: named[name] for name, folder in folders.items()}
                )
            tools += sandbox_tools(sandbox, self._sandbox_settings)
            instructions.append(sandbox_instructions(self._sandbox_settings))
        paths = {name: f"{RESERVED}/{folder}" for name, folder in folders.items()}
        instructions.append(skill_instructions(skills, None if setup.sandbox is None else paths))
        instructions.append(of_servers.instructions)
        return Agent(
            model,
            lambda name: self._models.resolve(name, setup.settings, conversation),
            "\n\n".join(filter(None, instructions)),
            self._toolbox(lease, skills, [*tools, *self._demo_tools(lease, model)], of_servers.tools),
            self._model_settings,
            sandbox,
            AttachmentLoader(self._database, self._blobs),
            ResultImages(self._database, self._blobs, lease.workspace_id),
            None if schema is None else OutputSchema(self.schemas, lease.workspace_id, schema),
            lease.priority,
            self._models.batches,
        )

    def _toolbox(self, lease: Lease, skills: list[RunSkill], others: list[Tool], of_servers: list[Tool]) -> Toolbox:
        result_bytes = self._model_settings.tool_result_bytes
        built_in = [current_time(), *skill_tools(skills, self._skills, result_bytes), *others]
        assert all(tool.name in set(BuiltIn) for tool in built_in), "callers could have tools of the same name"
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
    spec = ToolSpec(BuiltIn.ADD_NOTE, "Store a note in the log of this session.", parameters(properties))
    return Tool(spec=spec, effect=Effect.WRITES, carry_out=add)


def sandbox_tools(sandbox: RunSandbox | None, settings: SandboxSettings) -> list[Tool]:
    """`sandbox` is None if the worker has none. Then every call is refused."""
    return [
        bash(sandbox, settings),
        read_file(sandbox),
        write_file(sandbox),
        edit_file(sandbox),
        list_files(sandbox),
        search_files(sandbox),
    ]


def sandbox_instructions(settings: SandboxSettings) -> str:
    network = "It has access to the network." if settings.network else "It has no network."
    return (
        f"You have a sandbox with a folder of this session, {SANDBOX_FOLDER}, whose files stay from call to call and "
        f"from run to run. {BuiltIn.BASH} runs commands in it. {network} Each command starts anew: only files in "
        f"{SANDBOX_FOLDER} are kept, and no process, variable or file elsewhere. Paths of the file tools are relative "
        f"to {SANDBOX_FOLDER}; prefer {BuiltIn.WRITE_FILE} and {BuiltIn.EDIT_FILE} to commands that write files. "
        f"Files that people attach are in attachments/, long outputs in {OUTPUT_FOLDER}/. {RESERVED}/ cannot be "
        "written."
    )


def current_time(now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> Tool:
    async def tell(arguments: dict[str, Any], context: CallContext) -> str:
        return now().astimezone(UTC).strftime("%A %Y-%m-%d %H:%M:%S UTC")

    spec = ToolSpec(BuiltIn.CURRENT_TIME, "The current date and time in UTC.", parameters({}))
    return Tool(spec=spec, effect=Effect.READS, carry_out=tell)
