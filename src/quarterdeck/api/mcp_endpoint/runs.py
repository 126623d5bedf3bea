"""Waits for a run and tells how it ended."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Struct

from quarterdeck.api.mcp_endpoint.own_api import ApiError, Json, OwnApi, StreamRefused

_ENDED = frozenset({"succeeded", "failed", "cancelled"})
_AT_REST = _ENDED | {"waiting"}
# After one of these the run is looked at again.
_TURNING_POINTS = frozenset({"run.succeeded", "run.failed", "run.cancelled", "action.required"})
# Among these, the answer is looked for.
_LAST_EVENTS = 50
_PAUSE_SECONDS = 1.0
# How often an event stream is asked for. Their number is limited, so that one caller cannot take all connections of the
# process; a caller that waits without one would take a connection too.
_TRIES = 10
# Clients with a timeout of their own wait longer as long as there is progress.
_PROGRESS_SECONDS = 10.0

ReportProgress = Callable[[float], Awaitable[None]]


async def last_event_id(api: OwnApi, session_id: str) -> int:
    events = (await api.get(f"/v1/sessions/{session_id}/events", last=1))["items"]
    return events[-1]["id"] if events else 0


class WaitLimits(Struct, frozen=True):
    """How long to wait for a run."""

    seconds: float
    # The process is about to end.
    stopping: asyncio.Event
    report_progress: ReportProgress


async def await_run(api: OwnApi, run_id: str, after: int, limits: WaitLimits) -> Json:
    """The run when it has ended or waits for an answer, when the time is up, or soon if there are too many event
    streams. `after`: an event before its end."""
    run = await api.get(f"/v1/runs/{run_id}")
    if run["state"] in _AT_REST or limits.seconds <= 0:
        return run
    reporting = asyncio.create_task(_report(limits.report_progress))
    try:
        async with asyncio.timeout(limits.seconds):
            refusals = 0
            while run["state"] not in _AT_REST and not limits.stopping.is_set() and refusals < _TRIES:
                try:
                    after = await _turning_point(api, run, after)
                except StreamRefused:
                    refusals += 1
                    await asyncio.sleep(_PAUSE_SECONDS)
                run = await api.get(f"/v1/runs/{run_id}")
    except TimeoutError:
        run = await api.get(f"/v1/runs/{run_id}")
    finally:
        reporting.cancel()
    return run


async def _turning_point(api: OwnApi, run: Json, after: int) -> int:
    """Return when the run may have come to rest: the id of the last event that was seen."""
    async with api.events(run["session_id"], after) as events:
        async for event in events:
            after = event["id"]
            if event["run_id"] == run["id"] and event["type"] in _TURNING_POINTS:
                return after
    # The API has ended the stream.
    await asyncio.sleep(_PAUSE_SECONDS)
    return after


async def outcome(api: OwnApi, run: Json) -> dict[str, Any]:
    """What a caller needs to know about a run: its state, and its answer or what it waits for."""
    told = {"run_id": run["id"], "session_id": run["session_id"], "state": run["state"]}
    if run["failure"] is not None:
        told["failure"] = run["failure"]
    if run["state"] in _ENDED:
        events = (await api.get(f"/v1/sessions/{run['session_id']}/events", last=_LAST_EVENTS))["items"]
        answers = [one["data"] for one in events if one["type"] == "message" and one["run_id"] == run["id"]]
        told["answer"] = answers[-1]["text"] if answers else None
        if answers and "cut_off" in answers[-1]:
            told["cut_off"] = answers[-1]["cut_off"]
    elif run["state"] == "waiting":
        told["waiting_for"] = [await _action(api, action_id) for action_id in run["waiting_for"]]
        told["next"] = "Answer the actions with resolve_action, then call get_run with wait_seconds."
    else:
        told["next"] = "The run has not ended. Call get_run with wait_seconds to wait for it."
    return told


async def _action(api: OwnApi, action_id: str) -> Json:
    try:
        return await api.get(f"/v1/actions/{action_id}")
    except ApiError as refused:
        return {"id": action_id, "error": str(refused)}


async def _report(report: ReportProgress) -> None:
    waited = 0.0
    while True:
        await asyncio.sleep(_PROGRESS_SECONDS)
        waited += _PROGRESS_SECONDS
        await report(waited)
