"""Activity figures of a workspace, in time buckets."""

from collections import Counter
from datetime import timedelta
from typing import Annotated

from msgspec import Meta, Struct

from quarterdeck.core.example_ids import EVENING
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
)
