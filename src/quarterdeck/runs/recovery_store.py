"""Compares the jobs of the queue with their runs."""

from uuid import UUID

from quarterdeck.db.database import Connection

_PRUNE = """
DELETE FROM workers
WHERE id IN (
    SELECT id FROM workers
    WHERE last_heartbeat < now() - make_interval(secs => %s) FOR UPDATE SKIP LOCKED
)
"""
# A new row with a new id: a paused worker that wakes up and finishes its job does not affect the new one.
_REPLACE_LOST = """
WITH lost AS (
    DELETE FROM run_jobs
    WHERE id IN (SELECT id FROM run_jobs WHERE taken AND worker_id IS NULL FOR UPDATE SKIP LOCKED)
    RETURNING run_id, session_id, workspace_id
)
INSERT INTO run_jobs (run_id, session_id, workspace_id) SELECT run_id, session_id, workspace_id FROM lost
ON CONFLICT (run_id) WHERE NOT taken DO NOTHING
"""
# Left by a worker that ended its run, or made it wait, but could not finish the job, which would hold the lock of the
# session for ever. A queued run has two jobs if it waited or was handed back and the first job is left over. A job in
# the queue holds nothing: for an ended or waiting run it ends with the next worker that fetches it.
_DELETE_SPENT = """
DELETE FROM run_jobs
WHERE id IN (
    SELECT j.id FROM run_jobs j JOIN runs r ON r.id = j.run_id
    WHERE j.taken AND (
        least(r.finished_at, r.waiting_since) < now() - interval '10 seconds'
        OR (r.state = 'queued' AND r.updated_at < now() - interval '10 seconds' AND EXISTS (
            SELECT FROM run_jobs t WHERE t.run_id = j.run_id AND NOT t.taken
        ))
    )
    FOR UPDATE OF j SKIP LOCKED
)
"""
_ADD_MISSING = """
SELECT enqueue_run(r.session_id, r.id) FROM runs r
WHERE r.state IN ('queued', 'running') AND NOT r.parked AND NOT EXISTS (
    SELECT FROM run_jobs j WHERE j.run_id = r.id
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


async def add_missing_jobs(connection: Connection) -> None:
    await connection.execute(_ADD_MISSING)


async def start_parked_runs(connection: Connection, active_per_workspace: int | None) -> None:
    await connection.execute(_START_PARKED, (active_per_workspace,))


# Runs that shall leave their places. The decision is made by the database: db/functions/turns.sql.

_ASK_TO_LEAVE = "SELECT ask_runs_to_leave()"
_LEAVING = "SELECT run_id FROM run_jobs WHERE taken AND leaving"


async def ask_to_leave(connection: Connection) -> None:
    await connection.execute(_ASK_TO_LEAVE)


async def leaving(connection: Connection) -> list[UUID]:
    rows = await (await connection.execute(_LEAVING)).fetchall()
    return [run_id for (run_id,) in rows]
