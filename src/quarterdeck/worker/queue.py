"""One worker process: takes jobs from the queue, drives their runs, looks after those that others left
behind, and sends what webhooks are to hear.

The queue's library gives up when PostgreSQL restarts, so it is started again and again.
"""

import asyncio
import signal
import time
from uuid import UUID

from procrastinate import App, PsycopgConnector
from psycopg import AsyncConnection
from psycopg.conninfo import make_conninfo

from quarterdeck.agents.models import Models
from quarterdeck.conversations.runs.recovery import recover
from quarterdeck.conversations.sessions.service import purge_deleted_sessions
from quarterdeck.core.logging import configure_logs, log
from quarterdeck.core.settings import DatabaseSettings, Settings
from quarterdeck.db.database import SCHEMA, Database, role_options
from quarterdeck.db.migrate import JOBS_SCHEMA
from quarterdeck.db.pool import KEEPALIVE, RECONNECT_SECONDS
from quarterdeck.skills.bundle_store import open_bundle_store
from quarterdeck.worker.drive import drive_run
from quarterdeck.worker.parts import WorkerParts
from quarterdeck.worker.webhooks import keep_delivering

QUEUE = "runs"
# Short: runs go on within five seconds of the database's return.
_FIRST_PAUSE_SECONDS = 0.2
_LONGEST_PAUSE_SECONDS = 1.0
# A queue that ended sooner did not work, as when a right is missing, and is not started again at once.
_STEADY_SECONDS = 5.0
# Notifications bring jobs and aborts within milliseconds; this is the net below them.
_POLL_SECONDS = 1.0


def run_worker(settings: Settings) -> int:
    configure_logs(settings.log.level)
    asyncio.run(_work(settings))
    return 0


async def _work(settings: Settings) -> None:
    url = settings.database.url
    assert url is not None, "a worker is told which database to use"
    bundles = open_bundle_store(settings.bundle.store_url, settings.data_dir)
    parts = WorkerParts(settings, Database(url, settings.database), bundles, Models(settings.model))
    await parts.database.open()
    stopping = asyncio.Event()
    working = asyncio.create_task(_keep_working(parts, url, stopping))
    beside = [asyncio.create_task(_keep_recovering(parts)), asyncio.create_task(keep_delivering(parts))]

    def stop() -> None:
        # Once: a second cancellation would end the hand-back of runs that the first began.
        if not stopping.is_set():
            stopping.set()
            working.cancel()

    loop = asyncio.get_running_loop()
    for order in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(order, stop)
    try:
        await asyncio.wait({working})
    finally:
        for task in beside:
            task.cancel()
        await asyncio.gather(*beside, return_exceptions=True)
        await parts.models.close()
        await parts.database.close()


async def _keep_working(parts: WorkerParts, url: str, stopping: asyncio.Event) -> None:
    """Until it is cancelled, or stopping: with the database away the library answers a cancellation by an error."""
    pause_seconds = _FIRST_PAUSE_SECONDS
    options = _queue_options(parts.settings.database)
    while not stopping.is_set():
        began = None
        try:
            # The library opens its pool for half a minute, with ever longer pauses between two tries.
            await (await AsyncConnection.connect(make_conninfo(url, options=options, **KEEPALIVE))).close()
            began = time.monotonic()
            await _run_queue(parts, url)
        except Exception as fault:
            log.warning("the queue is not reachable and will be tried again", exc_info=fault)
        if began is not None and time.monotonic() - began > _STEADY_SECONDS:
            pause_seconds = _FIRST_PAUSE_SECONDS
        if not stopping.is_set():
            await asyncio.sleep(pause_seconds)
            pause_seconds = min(2 * pause_seconds, _LONGEST_PAUSE_SECONDS)


def _queue_options(settings: DatabaseSettings) -> str:
    return role_options(settings.role, f"{JOBS_SCHEMA},{SCHEMA}")


async def _run_queue(parts: WorkerParts, url: str) -> None:
    settings = parts.settings.worker
    options = _queue_options(parts.settings.database)
    connector = PsycopgConnector(
        conninfo=url,
        kwargs={"options": options, **KEEPALIVE},
        # With the library's own patience it would wait for half a minute on a pool that sleeps, and only then give up.
        timeout=parts.settings.database.pool_wait_seconds,
        reconnect_timeout=RECONNECT_SECONDS,
    )
    app = App(connector=connector)

    @app.task(name="drive_run", queue=QUEUE)
    async def drive(run_id: str) -> None:
        await drive_run(parts, UUID(run_id))

    async with app.open_async():
        await app.run_worker_async(
            queues=[QUEUE],
            concurrency=settings.concurrency,
            fetch_job_polling_interval=_POLL_SECONDS,
            abort_job_polling_interval=_POLL_SECONDS,
            # At once: a run that is handed back goes on elsewhere within milliseconds.
            shutdown_graceful_timeout=0,
            delete_jobs="always",
            install_signal_handlers=False,
            update_heartbeat_interval=settings.lease_seconds / 4,
            stalled_worker_timeout=settings.lease_seconds,
        )


async def _keep_recovering(parts: WorkerParts) -> None:
    settings = parts.settings
    while True:
        try:
            await recover(parts.database, settings.worker.lease_seconds, settings.run.active_per_workspace)
            await purge_deleted_sessions(parts.database)
        except Exception as fault:
            log.warning("the sweep failed and will be tried again", exc_info=fault)
        await asyncio.sleep(settings.worker.sweep_seconds)
