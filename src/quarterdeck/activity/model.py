"""Activity figures of a workspace, in time buckets."""

from collections import Counter
from typing import Annotated

from msgspec import Meta, Struct

from quarterdeck.core.text_types import Moment

Count = Annotated[int, Meta(ge=0)]
Milliseconds = Annotated[int, Meta(ge=0)]
Start = Annotated[Moment, Meta(description="Where the stretch begins. It ends where the next one begins.")]


class RunsByState(Struct, frozen=True):
    pending: Count = 0
    queued: Count = 0
    running: Count = 0
    succeeded: Count = 0
    failed: Count = 0
    cancelled: Count = 0


class InputCount(Struct, frozen=True):
    at: Start
    count: Annotated[int, Meta(ge=0, description="Inputs accepted, those that steered too.")]


class TimeToStart(Struct, frozen=True):
    at: Start
    runs: Annotated[int, Meta(ge=0, description="Runs that were created in this stretch and have started since.")]
    p50_ms: Annotated[Milliseconds | None, Meta(description="Half of them started within this. null: there are none.")]
    p95_ms: Annotated[Milliseconds | None, Meta(description="19 of 20 of them did.")]


class CountLimits(Struct, frozen=True):
    """The most rows that one call counts. A window with more is shortened, so that the call ends in time."""

    runs: int
    inputs: int


LIMITS = CountLimits(runs=200_000, inputs=500_000)


class ActivityBody(Struct, frozen=True, kw_only=True):
    since: Annotated[
        Moment,
        Meta(
            description="What came in at this moment or later is counted: at most one stretch more or less than was "
            f"asked for, and less where more than {LIMITS.runs:,} runs or {LIMITS.inputs:,} inputs came in."
        ),
    ]
    until: Annotated[Moment, Meta(description="When it was counted. The last stretch was not over then.")]
    bucket_seconds: Annotated[int, Meta(ge=1, description="The length of a stretch. They begin at whole multiples.")]
    runs_by_state: Annotated[
        RunsByState,
        Meta(
            description="Runs that were created since, as they are now, and the others that have not ended: "
            f"all of them up to {LIMITS.runs:,}."
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
