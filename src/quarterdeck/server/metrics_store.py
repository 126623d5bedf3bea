"""Figures of the database for the metrics port. Names are qualified: the connection has no search path."""

from typing import Any

import psycopg
from msgspec import Struct
from psycopg import sql

Connection = psycopg.Connection[tuple[Any, ...]]

# Within the transaction only, which PgBouncer requires too. A scrape must end within a few seconds.
_LIMIT = "SET LOCAL statement_timeout = '2s'"
_SET_ROLE = "SET LOCAL ROLE {}"
# Two parts, each with a partial index that has only these runs.
_RUNS = """
SELECT state, count(*) FROM app.runs WHERE state IN ('queued', 'running', 'waiting') GROUP BY state
UNION ALL
SELECT state, count(*) FROM app.runs WHERE state = 'pending' GROUP BY state
"""
# Jobs that a worker could take now.
_QUEUE = """
SELECT count(*), coalesce(extract(epoch FROM now() - min(greatest(j.queued_at, j.scheduled_at))), 0)::float8
FROM jobs.procrastinate_jobs j
WHERE j.status = 'todo' AND (j.scheduled_at IS NULL OR j.scheduled_at <= now())
  AND NOT EXISTS (SELECT FROM jobs.procrastinate_jobs d WHERE d.lock = j.lock AND d.status = 'doing')
"""
_ACTIONS = "SELECT kind, count(*) FROM app.actions WHERE state = 'open' GROUP BY kind"
_WORKERS = """
SELECT count(*) FROM jobs.procrastinate_workers WHERE last_heartbeat > now() - make_interval(secs => %s)
"""
# Not from pg_stat_activity, which hides connections of other logins. All databases count against the limit.
_CONNECTIONS = """
SELECT sum(numbackends)::integer, current_setting('max_connections')::integer FROM pg_stat_database
"""


class Figures(Struct, frozen=True):
    runs: dict[str, int]
    queued_jobs: int
    queue_oldest_seconds: float
    open_actions: dict[str, int]
    workers: int
    connections: int
    max_connections: int


def read_figures(connection: Connection, role: str, lease_seconds: float) -> Figures:
    """In one transaction, as this role. `lease_seconds`: a worker without a heartbeat for this long does not count."""
    connection.read_only = True
    connection.execute(_LIMIT)
    connection.execute(sql.SQL(_SET_ROLE).format(sql.Identifier(role)))
    queued_jobs, oldest_seconds = _one(connection, _QUEUE)
    (workers,) = _one(connection, _WORKERS, lease_seconds)
    connections, max_connections = _one(connection, _CONNECTIONS)
    return Figures(
        dict(connection.execute(_RUNS).fetchall()),
        queued_jobs,
        max(0.0, oldest_seconds),
        dict(connection.execute(_ACTIONS).fetchall()),
        workers,
        connections,
        max_connections,
    )


def _one(connection: Connection, query: str, *values: object) -> tuple[Any, ...]:
    row = connection.execute(query.encode(), values).fetchone()
    assert row is not None
    return row
