"""How soon a worker continues a run after an answer, beside 10,000 runs that wait."""

import asyncio
import random
from datetime import datetime
from statistics import median
from uuid import UUID

import msgspec

from bench.case import BenchError, Case, Round, Taken, at_most
from bench.moments import moment, ms
from bench.server import Caller
from bench.waiting import WAITING, Answered, check_waiting, waiting_beside_worker
from quarterdeck.events.model import EventBody, EventType
from quarterdeck.runs.model import RunState

_SAMPLES = 30
_ALLOW = msgspec.json.encode({"decision": "allow"})


async def us(stage: Answered, one: Round) -> Taken:
    await check_waiting(stage.server, WAITING.count)
    async with stage.server.caller() as caller:
        waited_ms = [
            await _answered_ms(caller, session_id) for session_id in await caller.new_sessions(one.rows(_SAMPLES))
        ]
    await check_waiting(stage.server, WAITING.count)
    notes = {
        "connections before the runs": float(stage.connections_before),
        "connections with the runs": float(stage.connections_with),
    }
    return Taken(median(waited_ms), waited_ms, notes)


async def _answered_ms(caller: Caller, session_id: UUID) -> float:
    submitted = await caller.submit(session_id, "note: Deck.")
    run = await caller.until_waiting(submitted.run_id)
    # At no fixed time between two looks of whoever polls.
    await asyncio.sleep(random.uniform(0.01, 0.05))  # noqa: S311
    await caller.post(f"/v1/actions/{run.waiting_for[0]}/resolve", _ALLOW)
    await asyncio.sleep(0.05)
    if (await caller.until_ended(submitted.run_id)).state is not RunState.SUCCEEDED:
        raise BenchError("a run that was answered did not succeed")
    events = await caller.log(session_id)
    return ms(_continued(events) - moment(events, EventType.ACTION_RESOLVED))


def _continued(events: list[EventBody]) -> datetime:
    """When its second attempt began."""
    return moment([event for event in events if event.data.get("attempt") == 2], EventType.RUN_STARTED)


CASE = Case(
    title="answer → run continued, beside 10,000 waiting runs, median",
    unit="ms",
    reach=at_most(20),
    stage=waiting_beside_worker,
    us=us,
    rounds=3,
)
