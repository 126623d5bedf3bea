"""Invariants of actions and of calls with effects, that hold at every moment. Pure functions: they compare one snapshot
of the database with the answers to actions that clients had received before it."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from tests.fleet.history import Answer, SentAnswer
from tests.fleet.invariants import Action, Entry, Session

# The tool with effects of the demo model.
ADD_NOTE = "add_note"
# A run that waits may keep the job of its last attempt for this long: its worker may be lost, and recovery needs the
# lease and the end of a fault.
MAX_JOB_SECONDS = 45.0


def check_actions(session: Session, answered: Sequence[tuple[SentAnswer, Sequence[Answer]]]) -> Iterator[str]:
    """`answered` is from before the snapshot."""
    yield from _check_waiting(session)
    yield from _check_events(session)
    yield from _check_answers(session, answered)
    yield from _check_results(session)
    yield from _check_effects(session)


def _of_type(session: Session, event_type: str) -> list[Entry]:
    return [entry for entry in session.entries if entry.type == event_type]


def _check_waiting(session: Session) -> Iterator[str]:
    """A run waits if and only if it has an open action. Then it has no job."""
    open_actions = Counter(action.run_id for action in session.actions if action.state == "open")
    for run in session.runs:
        if run.state == "waiting" and not open_actions[run.id]:
            yield f"{run.id}: waits for nothing"
        if run.state != "waiting" and open_actions[run.id]:
            yield f"{run.id}: is {run.state} and has {open_actions[run.id]} open actions"
        if run.waited_with_job_seconds is not None and run.waited_with_job_seconds > MAX_JOB_SECONDS:
            yield f"{run.id}: waits and has a job"


def _check_events(session: Session) -> Iterator[str]:
    """The rows of actions and the log agree."""
    required = Counter(entry.data["action_id"] for entry in _of_type(session, "action.required"))
    resolved: dict[str, list[dict[str, Any]]] = {}
    for entry in _of_type(session, "action.resolved"):
        resolved.setdefault(entry.data["action_id"], []).append(entry.data)
    for action in session.actions:
        if required.pop(action.id, 0) != 1:
            yield f"{action.id}: is not in the log once"
        events = resolved.pop(action.id, [])
        if len(events) != (action.state != "open"):
            yield f"{action.id}: is {action.state}, and the log has its end {len(events)} times"
        elif events and (events[0]["state"], events[0]["resolution"]) != (action.state, action.resolution):
            yield f"{action.id}: is {action.state} with {action.resolution}, and the log says {events[0]}"
    for action_id in required.keys() | resolved.keys():
        yield f"{action_id}: is in the log, and there is no such action"


def _check_answers(session: Session, answered: Sequence[tuple[SentAnswer, Sequence[Answer]]]) -> Iterator[str]:
    """An acknowledged answer is the stored one. An answer is refused only if the action had another end."""
    actions = {action.id: action for action in session.actions}
    for sent, answers in answered:
        action = actions.get(sent.action_id)
        if action is None:
            yield f"{sent.token}: answered an action that is not there"
            continue
        stored = action.state == "resolved" and action.resolution == sent.resolution
        statuses = {answer.status for answer in answers}
        if 200 in statuses and not stored:
            yield f"{sent.token}: answer acknowledged and lost: {sent.resolution}, {action.state} {action.resolution}"
        if 409 in statuses and (stored or action.state == "open"):
            yield f"{sent.token}: answer refused, but the action is {action.state} with {action.resolution}"
        yield from _check_bodies(sent, [json.loads(answer.body) for answer in answers if answer.status == 200])


def _check_bodies(sent: SentAnswer, bodies: Sequence[dict[str, Any]]) -> Iterator[str]:
    if any(body != bodies[0] for body in bodies):
        yield f"{sent.token}: one answer, different bodies"
    if any(body["state"] != "resolved" or body["resolution"] != sent.resolution for body in bodies):
        yield f"{sent.token}: the body does not show the answer: {bodies[0]}"


def _check_results(session: Session) -> Iterator[str]:
    """A run that succeeded has a result for each of its calls."""
    succeeded = {entry.run_id for entry in _of_type(session, "run.succeeded")}
    results = {entry.data["call_id"] for entry in _of_type(session, "tool.result")}
    for entry in _of_type(session, "tool.call"):
        if entry.run_id in succeeded and entry.data["call_id"] not in results:
            yield f"{entry.data['call_id']}: has no result, and its run has succeeded"


def _check_effects(session: Session) -> Iterator[str]:
    """A call takes effect once, and again only if a person says so. One that was denied has no effect."""
    starts: dict[str, list[Entry]] = {}
    # Other tools change only files of the session. Their calls may be started again.
    for entry in (entry for entry in _of_type(session, "tool.started") if entry.data["name"] == ADD_NOTE):
        starts.setdefault(entry.data["key"], []).append(entry)
    notes: dict[str, list[Entry]] = {}
    for entry in _of_type(session, "note"):
        notes.setdefault(entry.data["key"], []).append(entry)
    results = {entry.data["call_id"]: entry.data for entry in _of_type(session, "tool.result")}
    for key, started in starts.items():
        call_id = started[0].data["call_id"]
        actions = [action for action in session.actions if action.call_id == call_id]
        yield from _check_call(key, started, notes.pop(key, []), actions, results.get(call_id))
    for key in notes:
        yield f"{key}: a note without a call that was started"
    yield from _check_approvals(session)


def _check_call(
    key: str, started: list[Entry], notes: list[Entry], actions: list[Action], result: dict[str, Any] | None
) -> Iterator[str]:
    unknown = [action for action in actions if action.kind == "unknown_outcome"]
    retries = sum(_decision(action) == "retry" for action in unknown)
    attempts = [entry.data["attempt"] for entry in started]
    if len({entry.data["call_id"] for entry in started}) > 1:
        yield f"{key}: the key of two calls"
    if len(set(attempts)) != len(attempts):
        yield f"{key}: started twice by one attempt: {attempts}"
    if len(started) > 1 + retries:
        yield f"{key}: started {len(started)} times, and {retries} times a person asked for it"
    if len(notes) > 1 + retries:
        yield f"{key}: took effect {len(notes)} times, and {retries} times a person asked for a repetition"
    if notes and notes[0].id < started[0].id:
        yield f"{key}: took effect before it was started"
    is_error = result is not None and result["text"].startswith("Error")
    if result is not None and not is_error and not unknown and len(notes) != 1:
        yield f"{key}: has a result and took effect {len(notes)} times"


def _check_approvals(session: Session) -> Iterator[str]:
    """A call that needs an approval starts after it, with the approved arguments, or not at all."""
    texts = {entry.data["call_id"]: entry.data["arguments"].get("text") for entry in _of_type(session, "tool.call")}
    allowed_at = {entry.data["action_id"]: entry.id for entry in _of_type(session, "action.resolved")}
    approvals = {action.call_id: action for action in session.actions if action.kind == "approval"}
    keys: dict[str, str] = {}
    for entry in _of_type(session, "tool.started"):
        call_id = entry.data["call_id"]
        keys[entry.data["key"]] = call_id
        approval = approvals.get(call_id)
        if approval is not None and (
            _decision(approval) != "allow" or entry.id < allowed_at.get(approval.id, entry.id)
        ):
            yield f"{call_id}: started without an approval, which is {approval.state} {approval.resolution}"
    for entry in _of_type(session, "note"):
        call_id = keys.get(entry.data["key"], "")
        approval = approvals.get(call_id)
        replaced = ((approval.resolution if approval else None) or {}).get("arguments", {})
        expected = replaced.get("text", texts.get(call_id))
        if entry.data["text"] != expected:
            yield f"{call_id}: took effect with {entry.data['text']!r} instead of {expected!r}"


def _decision(action: Action) -> str | None:
    return None if action.resolution is None else action.resolution.get("decision")
