"""An example of the statistics of an agent for the OpenAPI document."""

from datetime import date

from quarterdeck.core.example_ids import AGENT
from quarterdeck.insights.agent_stats.model import AgentStatsBody, AgentVersionStats

EXAMPLES = (
    AgentStatsBody(
        agent_id=AGENT,
        since=date(2026, 3, 1),
        until=date(2026, 4, 1),
        versions=[
            AgentVersionStats(
                version=2,
                runs=118,
                failures=3,
                input_tokens=1_284_220,
                cached_tokens=960_000,
                output_tokens=82_410,
                cost_usd=2.49,
                mean_seconds=14.2,
                p50_seconds=9.8,
                p95_seconds=41.5,
            )
        ],
    ),
)
