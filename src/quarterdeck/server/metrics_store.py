"""Figures of the database for the metrics port. Names are qualified: the connection has no search path."""

from typing import Any

import psycopg
from msgspec import Struct
from psycopg import sql

MetricsConnection = psycopg.Connection[tuple[Any, ...]]

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
SELECT count(*) FROM app.run_jobs j
WHERE NOT j.taken AND (j.paused_until IS NULL OR j.paused_until <= now())
  AND NOT EXISTS (SELECT FROM app.run_jobs d WHERE d.session_id = j.session_id AND d.taken)
"""
# Ids have the order of queued_at. More than one job, because a pause (paused_until) is not part of the wait. Reads few
# rows, also if millions of jobs wait.
_QUEUE_AGE = """
SELECT coalesce(extract(epoch FROM now() - min(waiting_since)), 0)::float8
FROM (
    SELECT greatest(j.queued_at, j.paused_until) AS waiting_since FROM app.run_jobs j
    WHERE NOT j.taken AND (j.paused_until IS NULL OR j.paused_until <= now())
      AND NOT EXISTS (SELECT FROM app.run_jobs d WHERE d.session_id = j.session_id AND d.taken)
    ORDER BY j.id LIMIT 100
) AS oldest
"""
_ACTIONS = "SELECT kind, count(*) FROM app.actions WHERE state = 'open' GROUP BY kind"
_WORKERS = """
SELECT count(*) FROM app.workers WHERE last_heartbeat > now() - make_interval(secs => %s)
"""
# Not from pg_stat_activity, which hides connections of other logins. All databases count against the limit.
_CONNECTIONS = """
SELECT sum(numbackends)::integer, current_setting('max_connections')::integer FROM pg_stat_database
"""


class Counts(Struct, frozen=True):
    runs: dict[str, int]
    queued_jobs: int
    open_actions: dict[str, int]


class Figures(Struct, frozen=True):
    queue_oldest_seconds: float
    workers: int
    connections: int
    max_connections: int
    counts: Counts | None = None


def read_figures(connection: MetricsConnection, role: str, lease_seconds: float) -> Figures:
    """Without counts. The current transaction gets the rights of the role. `lease_seconds`: a worker without a
    heartbeat for this long does not count."""
    connection.read_only = True
    connection.execute(_LIMIT)
    connection.execute(sql.SQL(_SET_ROLE).format(sql.Identifier(role)))
    (oldest_seconds,) = _one(connection, _QUEUE_AGE)
    (workers,) = _one(connection, _WORKERS, lease_seconds)
    connections, max_connections = _one(connection, _CONNECTIONS)
    return Figures(max(0.0, oldest_seconds), workers, connections, max_connections)


def read_counts(connection: MetricsConnection) -> Counts:
    """After `read_figures`, in the same transaction."""
    (queued_jobs,) = _one(connection, _QUEUE)
    return Counts(
        runs=dict(connection.execute(_RUNS).fetchall()),
        queued_jobs=queued_jobs,
        open_actions=dict(connection.execute(_ACTIONS).fetchall()),
    )


def _one(connection: MetricsConnection, query: str, *values: object) -> tuple[Any, ...]:
    row = connection.execute(query.encode(), values).fetchone()
    assert row is not None
    return row
