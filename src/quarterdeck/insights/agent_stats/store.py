"""SQL that sums up the runs of an agent. Each statement reads one range of the index runs_of_agent."""

from uuid import UUID

from quarterdeck.db.database import Connection
from quarterdeck.insights.agent_stats.model import AgentVersionStats

_RUN_AT = """
SELECT id FROM runs WHERE (agent_id, id) >= (%s, %s) AND (agent_id, id) < (%s, %s) AND workspace_id = %s
ORDER BY agent_id DESC, id DESC OFFSET %s LIMIT 1
"""
# A run with an agent has begun, so that started_at is set. greatest() ignores NULL.
_VERSIONS = """
SELECT agent_version, count(*), count(*) FILTER (WHERE state = 'failed'), sum(input_tokens)::bigint,
       sum(cached_tokens)::bigint, sum(output_tokens)::bigint, sum(cost_usd)::float8, avg(seconds)::float8,
       percentile_cont(ARRAY[0.5, 0.95]) WITHIN GROUP (ORDER BY seconds)
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
    row = await (await connection.execute(_RUN_AT, values)).fetchone()
    return None if row is None else row[0]


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
    rows = await (await connection.execute(_VERSIONS, values)).fetchall()
    return [
        AgentVersionStats(
            version=version,
            runs=runs,
            failures=failures,
            input_tokens=input_tokens,
            cached_tokens=cached_tokens,
            output_tokens=output_tokens,
            cost_usd=cost_usd,
            mean_seconds=mean,
            p50_seconds=None if percentiles is None else percentiles[0],
            p95_seconds=None if percentiles is None else percentiles[1],
        )
        for version, runs, failures, input_tokens, cached_tokens, output_tokens, cost_usd, mean, percentiles in rows
    ]
