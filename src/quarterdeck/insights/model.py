"""Statistics of a workspace: its activity in time buckets, the runs of an agent by version, and tokens and cost."""

from collections import Counter
from datetime import date, timedelta
from enum import StrEnum
from typing import Annotated
from uuid import UUID

from msgspec import Meta, Struct

from quarterdeck.core.example_ids import AGENT, EVENING
from quarterdeck.core.text_types import Moment

Count = Annotated[int, Meta(ge=0)]
Milliseconds = Annotated[int, Meta(ge=0)]
Start = Annotated[Moment, Meta(description="Start of the interval. It ends where the next one starts.")]


class RunsByState(Struct, frozen=True):
    pending: Count = 0
    queued: Count = 0
    running: Count = 0
    waiting: Count = 0
    succeeded: Count = 0
    failed: Count = 0
    cancelled: Count = 0


class InputCount(Struct, frozen=True):
    at: Start
    count: Annotated[int, Meta(ge=0, description="Accepted inputs, including steering ones.")]


class TimeToStart(Struct, frozen=True):
    at: Start
    runs: Annotated[int, Meta(ge=0, description="Runs created in this interval that have started.")]
    p50_ms: Annotated[Milliseconds | None, Meta(description="Median time to start. null: no runs.")]
    p95_ms: Annotated[Milliseconds | None, Meta(description="95th percentile of the time to start.")]


class CountLimits(Struct, frozen=True):
    """The most rows that one call counts. A window with more is shortened, so that the call ends in time."""

    runs: int
    inputs: int


LIMITS = CountLimits(runs=200_000, inputs=500_000)


class ActivityBody(Struct, frozen=True, kw_only=True):
    since: Annotated[
        Moment,
        Meta(
            description="Start of the period. It differs from the requested one by up to one interval, and is later if "
            f"there are more than {LIMITS.runs:,} runs or {LIMITS.inputs:,} inputs."
        ),
    ]
    until: Annotated[Moment, Meta(description="Time of counting. The last interval is incomplete.")]
    bucket_seconds: Annotated[int, Meta(ge=1, description="Length of an interval. Intervals start at multiples of it.")]
    runs_by_state: Annotated[
        RunsByState,
        Meta(
            description="Current states of the runs created in the period, and of all others that have not ended: at "
            f"most {LIMITS.runs:,}."
        ),
    ]
    inputs: Annotated[list[InputCount], Meta(max_length=60)]
    time_to_start: Annotated[list[TimeToStart], Meta(max_length=60)]


class Window(Struct, frozen=True):
    """The buckets to be counted, by their start times, oldest first."""

    bucket_seconds: int
    starts: list[Moment]
    until: Moment

    @property
    def since(self) -> Moment:
        return self.starts[0]


class CountedRuns(Struct, frozen=True):
    """Counts of the runs created in a window."""

    by_state: Counter[str]
    # By bucket index: number of started runs, p50 and p95 of the waiting time in milliseconds.
    started: dict[int, tuple[int, int, int]]


# Figures of the runs of an agent, by version.

# Runs that one call reads. Earlier runs are left out.
MAX_RUNS = 200_000
MAX_VERSIONS = 1000

Seconds = Annotated[float, Meta(ge=0)]


class AgentVersionStats(Struct, frozen=True, kw_only=True):
    version: Annotated[int, Meta(ge=1)]
    runs: Annotated[int, Meta(ge=0, description="Runs that have begun, whatever their state.")]
    failures: Annotated[int, Meta(ge=0, description="Runs that failed. Cancelled runs are not counted.")]
    input_tokens: Count
    cached_tokens: Annotated[int, Meta(ge=0, description="Read from caches. Part of input_tokens.")]
    cache_write_tokens: Annotated[int, Meta(ge=0, description="Written to caches. Part of input_tokens.")]
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


# Tokens and cost of a workspace, in groups.

# Rows that one call reads: one for each run and day. Earlier days are left out.
MAX_ROWS = 500_000
MAX_ITEMS = 1000


class UsageGroup(StrEnum):
    DAY = "day"
    SESSION = "session"
    MODEL = "model"
    API_KEY = "api_key"


class UsageItem(Struct, frozen=True, kw_only=True):
    group: Annotated[
        str | None,
        Meta(
            description="The day (UTC), the session ID, the model, or the key ID. null: the key or model is not known."
        ),
    ]
    label: Annotated[
        str | None,
        Meta(description="Title of the session or label of the key. null: it has none, or no longer exists."),
    ]
    runs: Annotated[
        int,
        Meta(
            ge=0,
            description="Runs that stored a step in the period, and runs without any step that were created in it.",
        ),
    ]
    input_tokens: int
    cached_tokens: Annotated[int, Meta(description="Read from caches. Part of input_tokens.")]
    cache_write_tokens: Annotated[int, Meta(description="Written to caches. Part of input_tokens.")]
    output_tokens: int
    cost_usd: Annotated[
        float | None, Meta(description="Without steps whose price is unknown. null: no price is known.")
    ]


class UsageBody(Struct, frozen=True, kw_only=True):
    since: Annotated[
        date,
        Meta(description=f"First day that is counted. Later than `from` if there are more than {MAX_ROWS:,} runs."),
    ]
    until: Annotated[date, Meta(description="The day after the last one that is counted.")]
    items: Annotated[list[UsageItem], Meta(max_length=MAX_ITEMS)]


EXAMPLES = (
    ActivityBody(
        since=EVENING - timedelta(seconds=5),
        until=EVENING + timedelta(seconds=3),
        bucket_seconds=5,
        runs_by_state=RunsByState(running=1, succeeded=7, failed=1),
        inputs=[InputCount(EVENING - timedelta(seconds=5), 4), InputCount(EVENING, 9)],
        time_to_start=[
            TimeToStart(EVENING - timedelta(seconds=5), 0, None, None),
            TimeToStart(EVENING, 9, 6, 14),
        ],
    ),
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
                cache_write_tokens=240_000,
                output_tokens=82_410,
                cost_usd=2.49,
                mean_seconds=14.2,
                p50_seconds=9.8,
                p95_seconds=41.5,
            )
        ],
    ),
    UsageBody(
        since=date(2026, 3, 1),
        until=date(2026, 4, 1),
        items=[
            UsageItem(
                group="anthropic:claude-sonnet-5",
                label=None,
                runs=41,
                input_tokens=1_284_220,
                cached_tokens=960_000,
                cache_write_tokens=240_000,
                output_tokens=82_410,
                cost_usd=2.49,
            )
        ],
    ),
)
