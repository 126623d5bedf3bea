"""Compares the jobs of the queue with their runs."""

from uuid import UUID

from quarterdeck.db.database import Connection
from quarterdeck.db.records import fetch_column

_PRUNE = """
DELETE FROM jobs.procrastinate_workers
WHERE id IN (
    SELECT id FROM jobs.procrastinate_workers
    WHERE last_heartbeat < now() - make_interval(secs => %s) FOR UPDATE SKIP LOCKED
)
"""
# A new row with a new id: a paused worker that wakes up and finishes its job does not affect the new one.
_REPLACE_LOST = """
WITH lost AS (
    DELETE FROM jobs.procrastinate_jobs
    WHERE id IN (
        SELECT id FROM jobs.procrastinate_jobs
        WHERE status = 'doing' AND queue_name = 'runs' AND worker_id IS NULL FOR UPDATE SKIP LOCKED
    )
    RETURNING queue_name, task_name, lock, queueing_lock, args, workspace_id
)
INSERT INTO jobs.procrastinate_jobs (queue_name, task_name, lock, queueing_lock, args, workspace_id)
SELECT queue_name, task_name, lock, queueing_lock, args, workspace_id FROM lost
ON CONFLICT (queueing_lock) WHERE status = 'todo' DO NOTHING
"""
# Left by a worker that ended its run, or made it wait, but could not finish the job, which would hold the lock of the
# session for ever. A queued run has two jobs if it waited or was handed back and the first job is left over. A job in
# the queue holds nothing: for an ended or waiting run it ends with the next worker that fetches it.
_DELETE_SPENT = """
DELETE FROM jobs.procrastinate_jobs
WHERE id IN (
    SELECT j.id FROM jobs.procrastinate_jobs j JOIN runs r ON r.id = j.queueing_lock::uuid
    WHERE j.queue_name = 'runs' AND j.status = 'doing' AND (
        least(r.finished_at, r.waiting_since) < now() - interval '10 seconds'
        OR (r.state = 'queued' AND r.updated_at < now() - interval '10 seconds' AND EXISTS (
            SELECT FROM jobs.procrastinate_jobs t WHERE t.queueing_lock = j.queueing_lock AND t.status = 'todo'
        ))
    )
    FOR UPDATE OF j SKIP LOCKED
)
"""
# Procrastinate keeps no time of the end. A job enters the queue at `ask_at` or before.
_DELETE_ENDED = """
DELETE FROM jobs.procrastinate_jobs WHERE id = ANY (ARRAY(
    SELECT j.id FROM jobs.procrastinate_jobs j LEFT JOIN workspaces w ON w.id = j.workspace_id
    WHERE j.status NOT IN ('todo', 'doing')
      AND j.ask_at < now() - make_interval(days => coalesce((w.retention->>'job_days')::integer, %s))
    ORDER BY j.id LIMIT %s
    FOR UPDATE OF j SKIP LOCKED
))
"""
_ADD_MISSING = """
SELECT enqueue_run(r.session_id, r.id) FROM runs r
WHERE r.state IN ('queued', 'running') AND NOT r.parked AND NOT EXISTS (
    SELECT FROM jobs.procrastinate_jobs j WHERE j.queueing_lock = r.id::text AND j.status IN ('todo', 'doing')
)
"""
_START_PARKED = """
WITH waiting AS (
    SELECT id, session_id, workspace_id, row_number() OVER (PARTITION BY workspace_id ORDER BY id) AS place
    FROM runs WHERE parked
), chosen AS (
    SELECT w.id, w.session_id FROM waiting w
    WHERE w.place <= coalesce(%s, 1000000000) - (
        SELECT count(*) FROM runs r WHERE r.workspace_id = w.workspace_id AND r.state = 'running'
    )
), freed AS (
    UPDATE runs r SET parked = false FROM chosen c WHERE r.id = c.id AND r.parked RETURNING r.session_id, r.id
)
SELECT enqueue_run(session_id, id) FROM freed
"""


async def prune_workers(connection: Connection, lease_seconds: float) -> None:
    await connection.execute(_PRUNE, (lease_seconds,))


async def replace_lost_jobs(connection: Connection) -> None:
    await connection.execute(_REPLACE_LOST)


async def delete_spent_jobs(connection: Connection) -> None:
    await connection.execute(_DELETE_SPENT)


async def delete_ended_jobs(connection: Connection, days: int, batch: int) -> int:
    return (await connection.execute(_DELETE_ENDED, (days, batch))).rowcount


async def add_missing_jobs(connection: Connection) -> None:
    await connection.execute(_ADD_MISSING)


async def start_parked_runs(connection: Connection, active_per_workspace: int | None) -> None:
    await connection.execute(_START_PARKED, (active_per_workspace,))


# Runs that shall leave their places. The decision is made by the database: db/functions/turns.sql.

_ASK_TO_LEAVE = "SELECT ask_runs_to_leave()"
_LEAVING = """
SELECT queueing_lock::uuid FROM jobs.procrastinate_jobs WHERE status = 'doing' AND leaving AND queue_name = 'runs'
"""


async def ask_to_leave(connection: Connection) -> None:
    await connection.execute(_ASK_TO_LEAVE)


async def leaving(connection: Connection) -> list[UUID]:
    return await fetch_column(connection, _LEAVING)
