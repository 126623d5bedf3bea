"""Figures of agents over HTTP."""

from quarterdeck.auth.access import Access
from quarterdeck.core.actors import Permission
from quarterdeck.http.operation import Query, operation
from quarterdeck.http.request import Request
from quarterdeck.http.schemas import DATE
from quarterdeck.insights.agent_stats import service
from quarterdeck.insights.agent_stats.model import AgentStatsBody

_DEFAULT_DAYS = 30
_MAX_DAYS = 366


@operation(
    summary="Get the statistics of an agent",
    description="Runs, failures, cost and duration for each version, of runs that were created on these days (UTC). "
    "Runs of deleted sessions are not included.",
    permission=Permission.WORKSPACE_READ,
    success_type=AgentStatsBody,
    success="The statistics, newest version first.",
    queries=(
        Query(
            "from",
            DATE,
            f"First day. By default {_DEFAULT_DAYS} days before `to`, at most {_MAX_DAYS}. A time counts as its day.",
            example="2026-03-01",
        ),
        Query(
            "to",
            DATE,
            "The day after the last one. By default tomorrow. A time after midnight counts as the next day.",
            example="2026-04-01",
        ),
    ),
)
async def get_agent_stats(request: Request, access: Access) -> AgentStatsBody:
    agent_id = request.path_id("agent_id")
    start, end = request.query_days(_DEFAULT_DAYS, _MAX_DAYS)
    return await service.get_agent_stats(access, request.call_without_body(), agent_id, start, end)
