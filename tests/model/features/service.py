"""Quarterdeck in one process, under the control of the test: the real app on the real PostgreSQL, and a worker that
takes a step only while the test waits for it.

The queue of jobs is left out: `settle` drives every run that is queued, or whose worker was killed. All else of the
worker is real. A worker is killed between two of its writes: from then on it writes nothing, not even that it stops.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from contextvars import ContextVar
from itertools import product
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx
import httpx2
import psycopg
from msgspec.structs import replace
from starlette.types import ASGIApp

from quarterdeck.api_keys.model import CreateApiKeyBody
from quarterdeck.app import load_app
from quarterdeck.blobs.blob_store import open_blob_store
from quarterdeck.cli.database import with_server
from quarterdeck.core.actors import Permission
from quarterdeck.core.settings import (
    BlobSettings,
    DatabaseSettings,
    LimitSettings,
    ModelSettings,
    SandboxSettings,
    Settings,
)
from quarterdeck.db.database import Database
from quarterdeck.models.model import Model
from quarterdeck.models.providers import ProviderConnection
from quarterdeck.models.registry import ModelRegistry
from quarterdeck.runs.action_records import release_actions
from quarterdeck.runs.lifecycle import Lease
from quarterdeck.runs.model_pauses import ModelPauses
from quarterdeck.sandbox.choice import find_sandbox
from quarterdeck.skills.session_skills import SkillReader
from quarterdeck.tools.tool import Tool
from quarterdeck.worker.agent import AgentLoader, add_note
from quarterdeck.worker.mcp_tools import McpTools
from quarterdeck.worker.run_driver import RunDriver
from quarterdeck.worker.run_files import SessionFolders
from quarterdeck.workspaces import service as workspaces
from tests.model.features.provider import HeldProvider, driven_run
from tests.world import app_url

MODEL = "openai-chat:stand-in"
CONTEXTS = (1_000, 2_500, 100_000)
COMPACTIONS = ("trim", "summarise")
# Only a fault takes this long.
SETTLE_SECONDS = 30.0
# Actions that have an answer or none, runs that are to be driven.
_TO_DRIVE = "SELECT id FROM runs WHERE workspace_id = %s AND state IN ('queued', 'running') ORDER BY id"


class Killed(BaseException):
    """Not an Exception: the worker must not handle it."""


class _Life:
    """Of one attempt of the worker. `writes`: how many it is granted. None: all."""

    def __init__(self, writes: int | None) -> None:
        self._writes = writes
        self.is_over = False

    def end(self) -> None:
        self.is_over = True

    def before_write(self) -> None:
        if self._writes is not None:
            self._writes -= 1
            self.is_over = self.is_over or self._writes < 0
        self.check()

    def check(self) -> None:
        if self.is_over:
            raise Killed


_life: ContextVar[_Life | None] = ContextVar("life", default=None)


class _WorkerDatabase(Database):
    async def read(self, work: Any, *given: Any, **options: Any) -> Any:  # type: ignore[override]
        if life := _life.get():
            life.check()
        return await super().read(work, *given, **options)

    async def statement(self, work: Any, *given: Any, **options: Any) -> Any:  # type: ignore[override]
        if life := _life.get():
            life.before_write()
        return await super().statement(work, *given, **options)

    async def transaction(self, work: Any, *given: Any, **options: Any) -> Any:  # type: ignore[override]
        if life := _life.get():
            life.before_write()
        return await super().transaction(work, *given, **options)


class _Registry(ModelRegistry):
    """Its models talk to the stand-in."""

    def __init__(self, settings: ModelSettings, provider: HeldProvider) -> None:
        super().__init__(settings)
        self._provider = provider

    def _connect(self, provider: str) -> ProviderConnection:
        from openai import AsyncOpenAI
        from pydantic_ai.models.openai import OpenAIChatModel
        from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

        http = httpx2.AsyncClient(transport=self._provider)
        client = AsyncOpenAI(api_key="no-key", base_url="http://stand-in/v1", max_retries=0, http_client=http)
        provider_of_library = OpenAICompatibleProvider("openai-compatible", openai_client=client)
        return ProviderConnection(
            lambda name: OpenAIChatModel(name, provider=provider_of_library),
            client.close,
            (),
            "openai_reasoning_effort",
        )


class _Agents(AgentLoader):
    """Every model has `add_note`, the tool with effects."""

    def _demo_tools(self, lease: Lease, model: Model) -> list[Tool]:
        return [add_note(self._database, lease)]


class Service:
    def __init__(
        self, http: httpx.AsyncClient, database: Database, owner: "psycopg.AsyncConnection[tuple[Any, ...]]"
    ) -> None:
        self.http = http
        self.database = database
        self._owner = owner
        self._changed = asyncio.Event()
        self.provider = HeldProvider(self._changed.set)
        self.drivers: dict[tuple[int, str], RunDriver] = {}
        # The driver of the current sequence.
        self.driver: RunDriver
        self.workspace_id: UUID
        self._tasks: dict[UUID, tuple[asyncio.Task[None], _Life]] = {}
        self._granted_writes: int | None = None

    # --- a sequence ---

    async def begin(self, context: int, compaction: str) -> str:
        """A new workspace. Returns its key."""
        self.driver = self.drivers[context, compaction]
        self.provider.asked.clear()
        body = CreateApiKeyBody("root", list(Permission), None)
        self.workspace_id = await workspaces.create_workspace(self._owner, "Model", f"{uuid4().hex}@example.com")
        return str((await workspaces.create_key(self._owner, "test", self.workspace_id, body, None)).secret)

    async def end(self) -> None:
        """What is left of the sequence does not concern the next one."""
        for run_id in list(self._tasks):
            await self._kill(run_id)
        self._granted_writes = None
        close = "UPDATE actions SET state = 'cancelled', resolved_at = now() WHERE workspace_id = %s AND state = 'open'"
        await self.execute(close, self.workspace_id)

    async def clean_up(self) -> None:
        """Deletes the sessions of all sequences before."""
        await self.execute("TRUNCATE sessions, runs, session_events, actions, run_jobs CASCADE")

    # --- the worker ---

    def grant_writes(self, count: int) -> None:
        """The next attempt that begins is killed before the write that follows these."""
        self._granted_writes = count

    async def kill(self, run_id: str) -> None:
        await self._kill(UUID(run_id))

    async def _kill(self, run_id: UUID) -> None:
        task, life = self._tasks.pop(run_id)
        life.end()
        task.cancel()
        await asyncio.wait({task})

    async def settle(self, *, release: bool) -> None:
        """Until every run waits: for the model, an answer, its turn, or nothing. `release`: runs wait at a limit, which
        may have been raised."""
        if release:
            await release_actions(self.database)
        async with asyncio.timeout(SETTLE_SECONDS):
            await self._until_still()
            while await self._start_and_abort():
                await self._until_still()

    async def _start_and_abort(self) -> bool:
        """Whether anything was started."""
        to_drive = [run_id for (run_id,) in await self.fetch(_TO_DRIVE, self.workspace_id)]
        for run_id in [one for one in self._tasks if one not in to_drive]:
            # As a worker does when it is told that the run was cancelled.
            task, _ = self._tasks.pop(run_id)
            task.cancel()
            await asyncio.wait({task})
        started = [run_id for run_id in to_drive if run_id not in self._tasks]
        for run_id in started:
            life, self._granted_writes = _Life(self._granted_writes), None
            self._tasks[run_id] = (asyncio.create_task(self._drive(run_id, life)), life)
        return bool(started)

    async def _drive(self, run_id: UUID, life: _Life) -> None:
        _life.set(life)
        driven_run.set(str(run_id))
        with suppress(Killed):
            await self.driver.drive(run_id)

    async def _until_still(self) -> None:
        while True:
            self._changed.clear()
            for run_id, (task, _) in list(self._tasks.items()):
                if task.done():
                    del self._tasks[run_id]
                    task.result()
            moving = {task for run_id, (task, _) in self._tasks.items() if not self.provider.question_of(str(run_id))}
            if not moving:
                return
            change = asyncio.create_task(self._changed.wait())
            await asyncio.wait({change, *moving}, return_when=asyncio.FIRST_COMPLETED)
            change.cancel()

    # --- the database ---

    async def fetch(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """With the rights of the owner, as all of the test itself."""
        return await (await self._owner.execute(query.encode(), values)).fetchall()

    async def execute(self, statement: str, *values: object) -> None:
        await self._owner.execute(statement.encode(), values)

    async def expire_log(self, session_id: str) -> None:
        """As if everything that has ended were older than the retention."""
        query = "SELECT * FROM expire_log(%s, now() + interval '1 hour', NULL, 10000)"
        await self.execute(query, session_id)


@asynccontextmanager
async def running_service(owner_url: str, data_dir: Path) -> AsyncIterator[Service]:
    url = app_url(owner_url)
    database_settings = DatabaseSettings(url=url, pool_connections=4, submit_connections=1, statement_seconds=25.0)
    settings = replace(
        with_server(Settings(database=database_settings), data_dir=str(data_dir)),
        # The name is believed: attachments are placed also where no sandbox works.
        sandbox=SandboxSettings(kind="bubblewrap"),
        model=ModelSettings(default=MODEL, openai_base_url="http://stand-in/v1", retry_base_seconds=0.001),
        limit=LimitSettings(credential_per_minute=0, workspace_per_minute=0),
    )
    app = load_app(settings)
    logging.getLogger("quarterdeck").setLevel(logging.ERROR)
    database = _WorkerDatabase(url, database_settings)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(_lifespan(app))
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        http = await stack.enter_async_context(httpx.AsyncClient(transport=transport, base_url="http://service"))
        await database.open()
        stack.push_async_callback(database.close)
        connecting = psycopg.AsyncConnection.connect(owner_url, autocommit=True, options="-c search_path=app")
        service = Service(http, database, await stack.enter_async_context(await connecting))
        sandbox = await find_sandbox(SandboxSettings(), data_dir)
        blobs = open_blob_store(BlobSettings(), data_dir)
        skills = SkillReader(database, blobs)
        folders = None if sandbox is None else SessionFolders(database, blobs, skills, sandbox, settings)
        if folders is not None:
            stack.push_async_callback(folders.close)
        for context, compaction in product(CONTEXTS, COMPACTIONS):
            model = replace(settings.model, context_tokens=context, compaction=compaction)
            registry = _Registry(model, service.provider)
            mcp = McpTools(database, settings, sandbox)
            agents = _Agents(database, blobs, skills, registry, model, settings.sandbox, folders, mcp)
            service.drivers[context, compaction] = RunDriver(
                database,
                agents,
                settings.run,
                settings.action,
                settings.worker,
                ModelPauses(database, model, settings.run),
            )
        yield service


@asynccontextmanager
async def _lifespan(app: ASGIApp) -> AsyncIterator[None]:
    received: asyncio.Queue[dict[str, str]] = asyncio.Queue()
    sent: asyncio.Queue[Any] = asyncio.Queue()
    running = asyncio.ensure_future(app({"type": "lifespan", "state": {}}, received.get, sent.put))
    await received.put({"type": "lifespan.startup"})
    answer = await sent.get()
    assert answer["type"] == "lifespan.startup.complete", answer
    try:
        yield
    finally:
        await received.put({"type": "lifespan.shutdown"})
        await sent.get()
        await running
