"""Examples of inputs and runs for the OpenAPI document."""

from uuid import UUID

from msgspec.structs import asdict, replace

from quarterdeck.core.example_ids import AGENT, EVENING, RUN, SESSION
from quarterdeck.runs.model import (
    CancelledRunBody,
    InputEvent,
    Outcome,
    RunBody,
    RunPage,
    RunState,
    SubmitKindBody,
    Usage,
    UsedAgent,
)

_RUN = RunBody(
    id=RUN,
    session_id=SESSION,
    state=RunState.RUNNING,
    model="openai:gpt-5",
    agent=UsedAgent(AGENT, 2),
    attempts=1,
    steps=2,
    inputs_accepted=2,
    inputs_consumed=1,
    usage=Usage(1840, 1024, 212, 0.0041),
    waiting_for=[],
    waited_seconds=0.0,
    failure=None,
    created_at=EVENING,
    started_at=EVENING,
    finished_at=None,
)

EXAMPLES = (
    _RUN,
    RunPage([_RUN], None),
    CancelledRunBody(
        **asdict(replace(_RUN, state=RunState.CANCELLED, finished_at=EVENING)),
        discarded_input_ids=[UUID("0192f0d3-a1b2-7c03-8d72-3b7c5e9d1f07")],
    ),
    InputEvent("Summarise the incidents of this week.", "input"),
    SubmitKindBody(Outcome.NEW_RUN, RUN),
)
