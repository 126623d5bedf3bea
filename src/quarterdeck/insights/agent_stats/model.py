"""Figures of the runs of an agent, by version."""

from datetime import date
from typing import Annotated
from uuid import UUID

from msgspec import Meta, Struct

from quarterdeck.core.example_ids import AGENT

# Runs that one call reads. Earlier runs are left out.
MAX_RUNS = 200_000
MAX_VERSIONS = 1000

Count = Annotated[int, Meta(ge=0)]
Seconds = Annotated[float, Meta(ge=0)]


class AgentVersionStats(Struct, frozen=True, kw_only=True):
    version: Annotated[int, Meta(ge=1)]
    runs: Annotated[int, Meta(ge=0, description="Runs that have begun, whatever their state.")]
    failures: Annotated[int, Meta(ge=0, description="Runs that failed. Cancelled runs are not counted.")]
    input_tokens: Count
    cached_tokens: Annotated[int, Meta(ge=0, description="Part of input_tokens.")]
    output_tokens: Count
    cost_usd: Annotated[
        float | None, Meta(description="Without steps whose price is unknown. null: no price is known.")
    ]
    mean_seconds: Annotated[
        Seconds | None,
        Meta(description="Mean duration of ended runs, without the time that they waited. null: none has ended."),
    ]
    p50_seconds: Annotated[Seconds | None, Meta(description="Median duration.")]
    p95_seconds: Annotated[Seconds | None, Meta(description="95th percentile of the duration.")]


class AgentStatsBody(Struct, frozen=True, kw_only=True):
    agent_id: UUID
    since: Annotated[
        date,
        Meta(description=f"First day that is counted. Later than `from` if there are more than {MAX_RUNS:,} runs."),
    ]
    until: Annotated[date, Meta(description="The day after the last one that is counted.")]
    versions: Annotated[
        list[AgentVersionStats],
        Meta(max_length=MAX_VERSIONS, description="Versions with runs that were created in the period, newest first."),
    ]


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
