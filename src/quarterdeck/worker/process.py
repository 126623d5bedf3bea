"""One worker process: drives runs from the job queue, recovers runs of lost workers, and delivers webhooks."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable

import uvloop

from quarterdeck.blobs.blob_store import open_blob_store
from quarterdeck.core import metrics
from quarterdeck.core.logging import configure_logs, log
from quarterdeck.core.loop_watchdog import watched_loop
from quarterdeck.core.secret_encryption import SecretCipher
from quarterdeck.core.settings import Settings, SettingsError
from quarterdeck.core.trace_export import start_tracing, stop_tracing
from quarterdeck.db.database import Database
from quarterdeck.events.log import Notifier
from quarterdeck.models.registry import ModelRegistry
from quarterdeck.runs.action_records import expire_actions, release_actions
from quarterdeck.runs.lifecycle import recover, runs_to_leave
from quarterdeck.runs.model_batches import BatchSender
from quarterdeck.runs.model_pauses import ModelPauses
from quarterdeck.sandbox.adapter import Sandbox
from quarterdeck.sandbox.choice import find_sandbox
from quarterdeck.sandbox.model import SandboxUnavailable
from quarterdeck.sessions.service import purge_deleted_sessions
from quarterdeck.skills.session_skills import SkillReader
from quarterdeck.tools.model import ToolRule
from quarterdeck.webhooks.deliveries import DeliverySender
from quarterdeck.webhooks.sender import Sender
from quarterdeck.worker.agent import AgentLoader
from quarterdeck.worker.mcp_tools import McpTools
from quarterdeck.worker.queue import Queue
from quarterdeck.worker.run_driver import RunDriver
from quarterdeck.worker.run_files import SessionFolders

# How often a worker without a free slot looks for waiting runs whose workspace has less than its share.
_TURN_SECONDS = 0.25
# How often a worker looks which models are paused.
_PAUSES_SECONDS = 0.5
# How often a worker looks for requests to send and for batches that are due, at least.
_BATCHES_SECONDS = 1.0


def run_worker(settings: Settings) -> int:
    configure_logs(settings.log.level)
    metrics.start("worker")
    start_tracing("quarterdeck-worker", os.environ)
    try:
        uvloop.run(_work(settings))
    finally:
        stop_tracing(settings.server.shutdown_seconds / 4)
    return 0


async def _work(settings: Settings) -> None:
    assert settings.database.url is not None, "the caller sets the database URL"
    database = Database(settings.database.url, settings.database)
    notifier = Notifier(database)
    blobs = open_blob_store(settings.blob, settings.data_dir)
    pauses = ModelPauses(database, settings.model, settings.run)
    models = ModelRegistry(settings.model, pauses.announced)
    sandbox = await _find_sandbox(settings)
    skills = SkillReader(database, blobs)
    folders = None if sandbox is None else SessionFolders(database, blobs, skills, sandbox, settings)
    mcp_tools = McpTools(database, settings, sandbox)
    agents = AgentLoader(database, blobs, skills, models, settings.model, settings.sandbox, folders, mcp_tools)
    rule = ToolRule(settings.sandbox.rule)
    batches = BatchSender(database, models, settings.model)
    driver = RunDriver(database, agents, settings.run, settings.action, settings.worker, pauses, rule)
    await database.open()
    queue = Queue(driver, database, settings.database, settings.worker)
    background = [
        asyncio.create_task(
            _repeat("recovery", lambda: _recover(database, settings), settings.worker.sweep_seconds),
        ),
        asyncio.create_task(_repeat("giving turns", lambda: _give_turns(database, driver), _TURN_SECONDS)),
        asyncio.create_task(_repeat("looking for pauses of models", pauses.refresh, _PAUSES_SECONDS)),
        asyncio.create_task(
            _repeat("looking after batches", batches.refresh, min(_BATCHES_SECONDS, settings.model.batch_poll_seconds))
        ),
        asyncio.create_task(_deliver_webhooks(database, settings)),
    ]
    if folders is not None:
        sweep = _repeat("deleting copies of deleted files", folders.sweep, settings.sandbox.sweep_seconds)
        background.append(asyncio.create_task(sweep))

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, queue.stop)
    try:
        with watched_loop(settings.log.blocked_loop_seconds):
            await queue.work()
    finally:
        for task in background:
            task.cancel()
        await asyncio.gather(*background, return_exceptions=True)
        await driver.deltas.close()
        await mcp_tools.close()
        await models.close()
        await notifier.close()
        await database.close()
        if folders is not None:
            await folders.close()


async def _find_sandbox(settings: Settings) -> Sandbox | None:
    """None: there is none. Calls of the tools that need one are refused then."""
    try:
        return await find_sandbox(settings.sandbox, settings.data_dir)
    except SandboxUnavailable as fault:
        raise SettingsError(f"QUARTERDECK_SANDBOX_KIND={settings.sandbox.kind}: {fault}") from fault


async def _repeat(what: str, work: Callable[[], Awaitable[None]], pause_seconds: float) -> None:
    """`work` looks at the current state each time, so that an error or a killed worker has no lasting effect."""
    while True:
        try:
            await work()
        except Exception as fault:
            log.warning(f"{what} failed; trying again", exc_info=fault)
        await asyncio.sleep(pause_seconds)


async def _recover(database: Database, settings: Settings) -> None:
    await recover(database, settings.worker.lease_seconds, settings.run.active_per_workspace)
    # First: a limit that was raised in time has not expired.
    await release_actions(database)
    await expire_actions(database)
    await purge_deleted_sessions(database)


async def _give_turns(database: Database, driver: RunDriver) -> None:
    if driver.is_busy:
        driver.leave(await runs_to_leave(database, no_slot_free=driver.is_full))


async def _deliver_webhooks(database: Database, settings: Settings) -> None:
    sender = Sender(settings.webhook)
    try:
        cipher = SecretCipher(settings.encryption, settings.data_dir)
        await DeliverySender(database, settings.webhook, cipher, sender).run()
    finally:
        sender.close()
