"""Runs that shall leave their places. The decision is made by the database: db/functions/turns.sql."""

from uuid import UUID

from quarterdeck.db.database import Connection

_ASK_TO_LEAVE = "SELECT ask_runs_to_leave()"
_LEAVING = """
SELECT queueing_lock::uuid FROM jobs.procrastinate_jobs WHERE status = 'doing' AND leaving AND queue_name = 'runs'
"""


async def ask_to_leave(connection: Connection) -> None:
    await connection.execute(_ASK_TO_LEAVE)


async def leaving(connection: Connection) -> list[UUID]:
    rows = await (await connection.execute(_LEAVING)).fetchall()
    return [run_id for (run_id,) in rows]
