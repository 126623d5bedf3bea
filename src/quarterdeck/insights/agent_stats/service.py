"""Sums up the runs of an agent."""

from datetime import UTC, date, datetime, time, timedelta
from uuid import UUID

from quarterdeck.agents import service as agents
from quarterdeck.agents.model import AgentBody
from quarterdeck.auth.access import Access
from quarterdeck.core.actors import Permission, Principal
from quarterdeck.core.call import Call
from quarterdeck.core.ids import created_at, first_id_at
from quarterdeck.core.operation import operation
from quarterdeck.core.queries import DaysQuery
from quarterdeck.db.database import Connection
from quarterdeck.insights.agent_stats import store
from quarterdeck.insights.agent_stats.model import MAX_RUNS, MAX_VERSIONS, AgentStatsBody


@operation(
    summary="Get the statistics of an agent",
    description="Runs, failures, cost and duration for each version, of runs that were created on these days (UTC). "
    "Runs of deleted sessions are not included.",
    permission=Permission.WORKSPACE_READ,
    success="The statistics, newest version first.",
)
async def get_agent_stats(access: Access, call: Call[None], agent_id: UUID, query: DaysQuery) -> AgentStatsBody:
    async def show(connection: Connection, principal: Principal, _: AgentBody) -> AgentStatsBody:
        return await sum_up(connection, principal.workspace_id, agent_id, query.start, query.end, MAX_RUNS)

    lookup = agents.visible_agent(call, agent_id)
    return await access.read(call, lookup, show)


async def sum_up(
    connection: Connection, workspace_id: UUID, agent_id: UUID, start: date, end: date, max_runs: int
) -> AgentStatsBody:
    """Days are counted wholly, but for the last one if it alone has too many runs."""
    first, last = _first_id(start), _first_id(end)
    too_old = await store.run_at(connection, workspace_id, agent_id, first, last, max_runs)
    if too_old is not None:
        start = min(created_at(too_old).date() + timedelta(days=1), end - timedelta(days=1))
        first = _first_id(start)
    versions = await store.versions(connection, workspace_id, agent_id, first, last, max_runs, MAX_VERSIONS)
    return AgentStatsBody(agent_id=agent_id, since=start, until=end, versions=versions)


def _first_id(day: date) -> UUID:
    return first_id_at(datetime.combine(day, time(), UTC))
