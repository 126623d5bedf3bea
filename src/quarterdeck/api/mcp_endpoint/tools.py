"""The tools of /mcp. Each is one or a few calls of our own API. Their names and fields are those of the API."""

import asyncio
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Annotated, Any
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from quarterdeck.agents.configuration import AgentReference
from quarterdeck.api.mcp_endpoint.own_api import Json, OwnApi, OwnApiError, StreamRefused
from quarterdeck.runs.action_model import ActionState, ResolveActionBody
from quarterdeck.runs.model import Delivery
from quarterdeck.sessions.model import SearchIn

# Waits for a run and tells how it ended.

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
        if answers:
            told |= {name: answers[-1][name] for name in ("cut_off", "sources") if name in answers[-1]}
    elif run["state"] == "waiting":
        told["waiting_for"] = [await _action(api, action_id) for action_id in run["waiting_for"]]
        told["next"] = "Answer the actions with resolve_action, then call get_run with wait_seconds."
    else:
        told["next"] = "The run has not ended. Call get_run with wait_seconds to wait for it."
    return told


async def _action(api: OwnApi, action_id: str) -> Json:
    try:
        return await api.get(f"/v1/actions/{action_id}")
    except OwnApiError as refused:
        return {"id": action_id, "error": str(refused)}


async def _report(report: ReportProgress) -> None:
    waited = 0.0
    while True:
        await asyncio.sleep(_PROGRESS_SECONDS)
        waited += _PROGRESS_SECONDS
        await report(waited)


# The usual timeout of clients is 60 seconds.
_USUAL_WAIT_SECONDS = 50.0
_LOG_EVENTS = 20

Limit = Annotated[int, Meta(ge=1, le=200)]
WaitSeconds = Annotated[
    float,
    Meta(ge=0, le=3600, description="How long to wait until the run has ended or waits for an answer. 0: not at all."),
]
IdempotencyKey = Annotated[
    str | None, Meta(description="Any unique text. A repeated call with the same key has no second effect.")
]


class ListSessions(Struct, forbid_unknown_fields=True):
    search: Annotated[str | None, Meta(description="Only sessions whose conversation has these words.")] = None
    limit: Limit = 20
    after: Annotated[UUID | None, Meta(description="next_cursor of the page before.")] = None


class CreateSession(Struct, forbid_unknown_fields=True):
    title: str | None = None
    agent: Annotated[AgentReference | None, Meta(description="The agent that answers. null: none.")] = None
    model: Annotated[str | None, Meta(description="`provider:name`. null: the default model.")] = None
    instructions: Annotated[str | None, Meta(description="Instructions for the agent.")] = None
    idempotency_key: IdempotencyKey = None


class SendInput(Struct, forbid_unknown_fields=True):
    session_id: UUID
    text: str
    delivery: Annotated[
        Delivery, Meta(description="While a run is active: steer it, queue a run after it, or interrupt it.")
    ] = Delivery.STEER
    wait_seconds: WaitSeconds = _USUAL_WAIT_SECONDS
    idempotency_key: IdempotencyKey = None


class ReadLog(Struct, forbid_unknown_fields=True):
    session_id: UUID
    after: Annotated[
        Annotated[int, Meta(ge=0)] | None, Meta(description="Events after this id, oldest first. null: the last ones.")
    ] = None
    limit: Limit = _LOG_EVENTS


class GetRun(Struct, forbid_unknown_fields=True):
    run_id: UUID
    wait_seconds: WaitSeconds = 0.0


class ListActions(Struct, forbid_unknown_fields=True):
    state: ActionState = ActionState.OPEN
    session_id: UUID | None = None
    limit: Limit = 50
    after: Annotated[UUID | None, Meta(description="next_cursor of the page before.")] = None


class ResolveAction(ResolveActionBody, frozen=True, forbid_unknown_fields=True, kw_only=True):
    action_id: UUID
    idempotency_key: str | UnsetType = UNSET


class Context(Struct, frozen=True):
    """Of one call."""

    api: OwnApi
    wait: WaitLimits


class EndpointTool(Struct, frozen=True):
    arguments: type[Struct]
    carry_out: Callable[[Context, Any], Awaitable[Json]]
    description: str
    only_reads: bool

    @property
    def schema(self) -> dict[str, Any]:
        _, parts = msgspec.json.schema_components([self.arguments], ref_template="#/$defs/{name}")
        schema: dict[str, Any] = parts.pop(self.arguments.__name__)
        return schema | {"$defs": parts} if parts else schema


async def _list_sessions(context: Context, given: ListSessions) -> Json:
    found: dict[str, object] = {} if given.search is None else {"search": given.search, "in": SearchIn.CONVERSATIONS}
    return await context.api.get("/v1/sessions", limit=given.limit, after=given.after, **found)


async def _create_session(context: Context, given: CreateSession) -> Json:
    fields = msgspec.structs.asdict(given)
    key = fields.pop("idempotency_key")
    body = {name: value for name, value in fields.items() if value is not None}
    return await context.api.post("/v1/sessions", body, key)


async def _send_input(context: Context, given: SendInput) -> Json:
    api, session_id = context.api, str(given.session_id)
    after: int | None = None
    try:
        after = await last_event_id(api, session_id)
    except OwnApiError as refused:
        # Who may not read may send all the same.
        if refused.status != HTTPStatus.FORBIDDEN:
            raise
    body: dict[str, object] = {"type": "input", "text": given.text}
    if given.delivery is not Delivery.STEER:
        body["delivery"] = given.delivery
    submitted = await api.post(f"/v1/sessions/{session_id}/events", body, given.idempotency_key)
    if after is None:
        sent = {"outcome": submitted["outcome"], "run_id": submitted["run_id"], "session_id": session_id}
        return sent | {"next": "This credential lacks the permission workspace.read, so the answer is not returned."}
    run = await _awaited(context, submitted["run_id"], after, given.wait_seconds)
    return {"outcome": submitted["outcome"]} | await outcome(api, run)


async def _read_log(context: Context, given: ReadLog) -> Json:
    window = {"last": given.limit} if given.after is None else {"after": given.after}
    return await context.api.get(f"/v1/sessions/{given.session_id}/events", limit=given.limit, **window)


async def _get_run(context: Context, given: GetRun) -> Json:
    run = await context.api.get(f"/v1/runs/{given.run_id}")
    if given.wait_seconds > 0:
        after = await last_event_id(context.api, run["session_id"])
        run = await _awaited(context, run["id"], after, given.wait_seconds)
    return await outcome(context.api, run) | {"run": run}


async def _list_actions(context: Context, given: ListActions) -> Json:
    return await context.api.get("/v1/actions", **msgspec.structs.asdict(given))


async def _resolve_action(context: Context, given: ResolveAction) -> Json:
    fields = {name: value for name, value in msgspec.structs.asdict(given).items() if value is not UNSET}
    action_id, key = fields.pop("action_id"), fields.pop("idempotency_key", None)
    return await context.api.post(f"/v1/actions/{action_id}/resolve", fields, key)


async def _awaited(context: Context, run_id: str, after: int, wait_seconds: float) -> Json:
    limits = msgspec.structs.replace(context.wait, seconds=min(wait_seconds, context.wait.seconds))
    return await await_run(context.api, run_id, after, limits)


TOOLS = {
    "list_sessions": EndpointTool(
        ListSessions, _list_sessions, "List the sessions of the workspace, newest first.", True
    ),
    "create_session": EndpointTool(
        CreateSession, _create_session, "Create a session: a conversation with an agent.", False
    ),
    "send_input": EndpointTool(
        SendInput,
        _send_input,
        "Send a message to a session and wait for the answer of the agent. If the run waits for a person, the open "
        "actions are returned instead; if it takes longer than wait_seconds, its state.",
        False,
    ),
    "read_log": EndpointTool(
        ReadLog, _read_log, "Read the log of a session: messages, tool calls and states of runs.", True
    ),
    "get_run": EndpointTool(
        GetRun, _get_run, "Get the state of a run and its answer. Can wait until it has ended.", True
    ),
    "list_actions": EndpointTool(
        ListActions, _list_actions, "List what runs wait for: approvals, results of tools, limits.", True
    ),
    "resolve_action": EndpointTool(
        ResolveAction,
        _resolve_action,
        "Answer an action, for example allow or deny a tool call. The run continues then.",
        False,
    ),
}
