"""One worker process: drives runs from the job queue, recovers runs of lost workers, and delivers webhooks.

Procrastinate's worker ends when PostgreSQL restarts, so it is restarted in a loop.
"""

import asyncio
import os
import signal
import time
from uuid import UUID

import uvloop
from procrastinate import App, JobContext

from quarterdeck.blobs.blob_store import open_blob_store
from quarterdeck.core import metrics
from quarterdeck.core.logging import configure_logs, log
from quarterdeck.core.loop_watchdog import watched_loop
from quarterdeck.core.secret_encryption import SecretCipher
from quarterdeck.core.settings import DatabaseSettings, Settings, SettingsError, WorkerSettings
from quarterdeck.core.trace_export import start_tracing, stop_tracing
from quarterdeck.db.database import Database
from quarterdeck.events.notifications import Notifier
from quarterdeck.models.registry import ModelRegistry
from quarterdeck.runs.action_records import expire_actions, release_actions
from quarterdeck.runs.recovery import recover, runs_to_leave
from quarterdeck.sandbox.adapter import Sandbox
from quarterdeck.sandbox.choice import find_sandbox
from quarterdeck.sandbox.model import SandboxUnavailable
from quarterdeck.sessions.service import purge_deleted_sessions
from quarterdeck.skills.bundle_files import BundleFiles
from quarterdeck.skills.session_skills import SkillReader
from quarterdeck.tools.model import ToolRule
from quarterdeck.webhooks.deliveries import DeliverySender
from quarterdeck.webhooks.sender import Sender
from quarterdeck.worker.agent import AgentLoader
from quarterdeck.worker.mcp_tools import McpTools
from quarterdeck.worker.queue_store import TurnsJobManager, check_queue, make_connector
from quarterdeck.worker.run_driver import RunDriver
from quarterdeck.worker.run_files import SessionFolders

QUEUE = "runs"
# Short: runs must resume within five seconds after the database is back.
_MIN_PAUSE_SECONDS = 0.2
_MAX_PAUSE_SECONDS = 1.0
# A queue worker that ended sooner failed at its start, for example because a grant is missing: the pause grows.
_STEADY_SECONDS = 5.0
# Files of skills that are read at the same time. An object store answers slowly, so threads mostly wait for it.
_READ_THREADS = 16
# Notifications announce jobs and aborts within milliseconds; polling covers lost notifications.
_POLL_SECONDS = 1.0
# How often a worker without a free slot looks for waiting runs whose workspace has less than its share.
_TURN_SECONDS = 0.25


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
    models = ModelRegistry(settings.model)
    files = BundleFiles(database, blobs, settings.bundle, settings.data_dir, _READ_THREADS)
    sandbox = await _find_sandbox(settings)
    skills = SkillReader(database, files)
    folders = None if sandbox is None else SessionFolders(database, blobs, skills, sandbox, settings)
    mcp_tools = McpTools(database, settings, sandbox)
    agents = AgentLoader(database, blobs, skills, models, settings.model, settings.sandbox, folders, mcp_tools)
    rule = ToolRule(settings.sandbox.rule)
    driver = RunDriver(database, agents, settings.run, settings.action, settings.worker, rule)
    await database.open()
    stopping = asyncio.Event()
    jobs = asyncio.create_task(_process_jobs(driver, settings.database, settings.worker, stopping))
    background = [
        asyncio.create_task(_recover_runs(database, settings)),
        asyncio.create_task(_give_turns(database, driver)),
        asyncio.create_task(_deliver_webhooks(database, settings)),
    ]
    if folders is not None:
        background.append(asyncio.create_task(_sweep_copies(folders, settings.sandbox.sweep_seconds)))

    def stop() -> None:
        # Only once: a second cancellation would interrupt the hand-back of runs.
        if not stopping.is_set():
            stopping.set()
            jobs.cancel()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    try:
        with watched_loop(settings.log.blocked_loop_seconds):
            await asyncio.wait({jobs})
    finally:
        for task in background:
            task.cancel()
        await asyncio.gather(*background, return_exceptions=True)
        await mcp_tools.close()
        await models.close()
        files.close()
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


async def _process_jobs(
    driver: RunDriver, database: DatabaseSettings, worker: WorkerSettings, stopping: asyncio.Event
) -> None:
    """Ends when it is cancelled, or on `stopping`: without a database, Procrastinate turns a cancellation into an
    error."""
    pause_seconds = _MIN_PAUSE_SECONDS
    while not stopping.is_set():
        began = None
        try:
            await check_queue(database)
            began = time.monotonic()
            await _run_queue(driver, database, worker)
        except Exception as fault:
            log.warning("the queue is not reachable; trying again", exc_info=fault)
        if began is not None and time.monotonic() - began > _STEADY_SECONDS:
            pause_seconds = _MIN_PAUSE_SECONDS
        if not stopping.is_set():
            await asyncio.sleep(pause_seconds)
            pause_seconds = min(2 * pause_seconds, _MAX_PAUSE_SECONDS)


async def _run_queue(driver: RunDriver, database: DatabaseSettings, worker: WorkerSettings) -> None:
    connector = make_connector(database, worker.queue_connections)
    app = App(connector=connector)
    jobs = TurnsJobManager(connector, worker.concurrency, metrics.job_taken)
    app.job_manager = jobs

    @app.task(name="drive_run", queue=QUEUE, pass_context=True)
    async def drive(context: JobContext, run_id: str) -> None:
        if await driver.drive(UUID(run_id)):
            jobs.deleted(context.job)

    async with app.open_async():
        await app.run_worker_async(
            queues=[QUEUE],
            concurrency=worker.concurrency,
            fetch_job_polling_interval=_POLL_SECONDS,
            abort_job_polling_interval=_POLL_SECONDS,
            # No grace period: runs are handed back and resume on another worker within milliseconds.
            shutdown_graceful_timeout=0,
            delete_jobs="always",
            install_signal_handlers=False,
            update_heartbeat_interval=worker.lease_seconds / 4,
            stalled_worker_timeout=worker.lease_seconds,
        )


async def _recover_runs(database: Database, settings: Settings) -> None:
    while True:
        try:
            await recover(database, settings.worker.lease_seconds, settings.run.active_per_workspace)
            # First: a limit that was raised in time has not expired.
            await release_actions(database)
            await expire_actions(database)
            await purge_deleted_sessions(database)
        except Exception as fault:
            log.warning("recovery failed; trying again", exc_info=fault)
        await asyncio.sleep(settings.worker.sweep_seconds)


async def _sweep_copies(folders: SessionFolders, pause_seconds: float) -> None:
    while True:
        await asyncio.sleep(pause_seconds)
        try:
            await folders.sweep()
        except Exception as fault:
            log.warning("deleting copies of deleted files failed; trying again", exc_info=fault)


async def _give_turns(database: Database, driver: RunDriver) -> None:
    """Looks at the current state each time, so that a lost connection or a killed worker has no lasting effect."""
    while True:
        await asyncio.sleep(_TURN_SECONDS)
        if not driver.is_busy:
            continue
        try:
            driver.leave(await runs_to_leave(database, no_place_free=driver.is_full))
        except Exception as fault:
            log.warning("giving turns failed; trying again", exc_info=fault)


async def _deliver_webhooks(database: Database, settings: Settings) -> None:
    sender = Sender(settings.webhook)
    try:
        cipher = SecretCipher(settings.encryption, settings.data_dir)
        await DeliverySender(database, settings.webhook, cipher, sender).run()
    finally:
        sender.close()
