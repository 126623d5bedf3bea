"""SQL that sums up the runs of an agent. Each statement reads one range of the index runs_of_agent."""

from uuid import UUID

from quarterdeck.db.database import Connection
from quarterdeck.db.records import fetch_records, fetch_value
from quarterdeck.insights.agent_stats.model import AgentVersionStats

_RUN_AT = """
SELECT id FROM runs WHERE (agent_id, id) >= (%s, %s) AND (agent_id, id) < (%s, %s) AND workspace_id = %s
ORDER BY agent_id DESC, id DESC OFFSET %s LIMIT 1
"""
# A run with an agent has begun, so that started_at is set. greatest() ignores NULL.
_VERSIONS = """
SELECT agent_version AS version, count(*) AS runs, count(*) FILTER (WHERE state = 'failed') AS failures,
       sum(input_tokens)::bigint AS input_tokens, sum(cached_tokens)::bigint AS cached_tokens,
       sum(output_tokens)::bigint AS output_tokens, sum(cost_usd)::float8 AS cost_usd,
       avg(seconds)::float8 AS mean_seconds, percentile_cont(0.5) WITHIN GROUP (ORDER BY seconds) AS p50_seconds,
       percentile_cont(0.95) WITHIN GROUP (ORDER BY seconds) AS p95_seconds
FROM (
    SELECT agent_version, state, input_tokens, cached_tokens, output_tokens, cost_usd,
           CASE WHEN finished_at IS NOT NULL
                THEN greatest(0, date_part('epoch', finished_at - started_at) - waited_seconds) END AS seconds
    FROM runs WHERE (agent_id, id) >= (%s, %s) AND (agent_id, id) < (%s, %s) AND workspace_id = %s
    ORDER BY agent_id DESC, id DESC LIMIT %s
) AS newest
GROUP BY agent_version ORDER BY agent_version DESC LIMIT %s
"""


async def run_at(
    connection: Connection, workspace_id: UUID, agent_id: UUID, lowest: UUID, end: UUID, newer: int
) -> UUID | None:
    """The newest run with at least `newer` runs after it. None: there are not so many."""
    values = (agent_id, lowest, agent_id, end, workspace_id, newer)
    return await fetch_value(connection, _RUN_AT, values)


async def versions(
    connection: Connection,
    workspace_id: UUID,
    agent_id: UUID,
    lowest: UUID,
    end: UUID,
    max_runs: int,
    max_versions: int,
) -> list[AgentVersionStats]:
    """Of the runs from `lowest` until before `end`: the newest `max_runs`."""
    values = (agent_id, lowest, agent_id, end, workspace_id, max_runs, max_versions)
    return await fetch_records(connection, AgentVersionStats, _VERSIONS, values)
