"""Invariants that hold at every moment, whatever was broken. Pure functions: they compare one snapshot of the database
with the answers that clients had received before it. Each yields one text for each violation."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any
from uuid import UUID

import msgspec
from msgspec import Struct

from tests.fleet.history import Answer, Intent, Kind

ENDS = ("run.succeeded", "run.failed", "run.cancelled")
ACTIVE = ("queued", "running", "waiting")
UNFINISHED = ("pending", *ACTIVE)
# Reasons for which a run of this load may fail. Any other reason is a defect.
FAILURE_REASONS = re.compile(r"told to fail|needed more than|Its worker ended|Stopped at the limit")
_STEP = re.compile(r"step (\d+) of")
# The demo model quotes at most this many inputs.
_QUOTED = 100


class Entry(Struct, frozen=True):
    id: int
    run_id: str
    type: str
    data: dict[str, Any]


class Run(Struct, frozen=True):
    id: str
    state: str
    last_input: int
    consumed_through: int
    # How long the run has waited, if it has a job nevertheless.
    waited_with_job_seconds: float | None = None


class Action(Struct, frozen=True):
    id: str
    run_id: str
    kind: str
    state: str
    call_id: str | None
    resolution: dict[str, Any] | None


class File(Struct, frozen=True):
    sha256: str
    # Whether the store has all of it.
    has_content: bool


class Session(Struct, frozen=True):
    id: str
    entries: list[Entry]
    runs: list[Run]
    actions: list[Action] = []
    # Those that the load appends to: at most one.
    files: list[File] = []

    @property
    def at_rest(self) -> bool:
        return not any(run.state in UNFINISHED for run in self.runs)


class Version(Struct, frozen=True):
    id: UUID
    version: int
    sha256: str
    has_bundle: bool


class Acknowledged(Struct, frozen=True):
    """What clients knew before a snapshot was taken. `cancel_requested` is from after it."""

    # By the token of the intent.
    answers: dict[str, Answer]
    cancelled: frozenset[str]
    cancel_requested: set[str]


def check_answers(intent: Intent) -> Iterator[str]:
    """One effect for each key, and the same bytes for each retry. A secret is in the first answer only."""
    successes = [answer for answer in intent.answers if answer.status in (200, 201)]
    first = [answer.body for answer in successes if not answer.replayed]
    replays = {answer.body for answer in successes if answer.replayed}
    if len(first) > 1:
        yield f"{intent.token}: two answers that are not marked as replays"
    if len(replays | {_without_secret(body) for body in first}) > 1:
        yield f"{intent.token}: one key, different answers: {[answer.body[:60] for answer in successes]}"
    if any("secret" in json.loads(body) for body in replays):
        yield f"{intent.token}: a secret was shown again"


def _without_secret(body: bytes) -> bytes:
    record: dict[str, Any] = json.loads(body)
    return body if record.pop("secret", None) is None else msgspec.json.encode(record)


def check_session(
    session: Session, intents: Iterable[Intent], known: Acknowledged, received: Sequence[tuple[int, str]]
) -> Iterator[str]:
    """`known` and `received` are from before the snapshot, `intents` from after it."""
    yield from _check_acknowledged(session, intents, known.answers)
    yield from _check_inputs_end(session)
    yield from _check_discarded(session, known)
    yield from _check_runs(session)
    yield from _check_ends(session)
    yield from _check_steps(session)
    yield from _check_stream(session, received)


def token_of(text: str) -> str:
    return text.partition("\n")[0].removeprefix("note: ")


def _accepted(session: Session) -> list[Entry]:
    return [entry for entry in session.entries if entry.type == "input.accepted"]


def _check_acknowledged(session: Session, intents: Iterable[Intent], answers: dict[str, Answer]) -> Iterator[str]:
    """An acknowledged input is stored once, in the run that the answer named; any other input at most once."""
    accepted: dict[str, list[Entry]] = {}
    first_of: dict[str, str] = {}
    for entry in _accepted(session):
        # A retry accepts the same texts again, without an intent.
        if "retried_from" not in entry.data:
            accepted.setdefault(token_of(entry.data["text"]), []).append(entry)
        first_of.setdefault(entry.run_id, entry.data["input_id"])
    continued = {entry.data.get("next_run_id") for entry in session.entries if entry.type == "run.failed"}
    for intent in intents:
        found = accepted.pop(intent.token, [])
        answer = answers.get(intent.token)
        if len(found) > 1:
            yield f"{intent.token}: accepted {len(found)} times"
        elif answer is not None and not found:
            yield f"{intent.token}: acknowledged and lost"
        elif answer is not None:
            (entry,) = found
            is_first = first_of[entry.run_id] == entry.data["input_id"]
            yield from _check_outcome(intent, answer, entry, is_first, is_continued=entry.run_id in continued)
    for token in accepted:
        yield f"{token}: accepted without a request"


def _check_outcome(
    intent: Intent, answer: Answer, entry: Entry, is_first: bool, *, is_continued: bool
) -> Iterator[str]:
    record = json.loads(answer.body)
    if record["run_id"] != entry.run_id:
        yield f"{intent.token}: acknowledged for run {record['run_id']}, stored for {entry.run_id}"
    elif record["outcome"] == "new_run" and not is_first:
        yield f"{intent.token}: acknowledged as new_run, but the run existed"
    elif record["outcome"] == "steered" and is_first and not is_continued:
        yield f"{intent.token}: acknowledged as steered, but it started the run"
    elif intent.delivery is not None and record["outcome"] != "new_run":
        yield f"{intent.token}: sent with {intent.delivery}, and answered {record['outcome']}"
    if entry.data.get("delivery") != intent.delivery:
        yield f"{intent.token}: sent with {intent.delivery}, stored with {entry.data.get('delivery')}"


def _check_inputs_end(session: Session) -> Iterator[str]:
    """An input is consumed once, by its run or the successor of that run, or discarded, or waits for one of them."""
    ends: dict[str, list[Entry]] = {}
    follows: dict[str, str] = {}
    for entry in session.entries:
        if entry.type in ("input.consumed", "input.discarded"):
            ends.setdefault(entry.data["input_id"], []).append(entry)
        elif entry.type == "run.failed" and "next_run_id" in entry.data:
            follows[entry.run_id] = entry.data["next_run_id"]
    unfinished = [run for run in session.runs if run.state in UNFINISHED]
    for entry in _accepted(session):
        ended = ends.pop(entry.data["input_id"], [])
        name = token_of(entry.data["text"])
        if len(ended) > 1:
            yield f"{name}: ended {len(ended)} times"
        elif not ended:
            chain = _chain(entry.run_id, follows)
            owners = [run for run in unfinished if run.id in chain]
            if not any(run.consumed_through < entry.id <= run.last_input for run in owners):
                yield f"{name}: lost: not consumed, not discarded, and no run will consume it"
        elif ended[0].run_id not in _chain(entry.run_id, follows):
            yield f"{name}: ended by a run that it does not belong to"
    for input_id in ends:
        yield f"{input_id}: ended, and was never accepted"


def _chain(run_id: str, follows: dict[str, str]) -> set[str]:
    chain = {run_id}
    while run_id in follows:
        run_id = follows[run_id]
        chain.add(run_id)
    return chain


def _check_discarded(session: Session, known: Acknowledged) -> Iterator[str]:
    """Inputs are discarded only when a client cancels or interrupts their run, and the event of the cancellation names
    them. The input that interrupts a run is the next entry of the log."""
    cancelled = {entry.run_id: entry.data for entry in session.entries if entry.type == "run.cancelled"}
    interrupted = {
        entry.run_id
        for entry, following in pairwise(session.entries)
        if following.type == "input.accepted" and following.data.get("delivery") == "interrupt"
    }
    for run_id in cancelled.keys() - known.cancel_requested - interrupted:
        yield f"{run_id}: cancelled without a request"
    for entry in session.entries:
        if entry.type == "input.discarded":
            named = cancelled.get(entry.run_id, {}).get("discarded_input_ids", [])
            if entry.data["input_id"] not in named or not entry.data["reason"]:
                yield f"{entry.data['input_id']}: discarded, but no cancelled run names it"
    for run in session.runs:
        if run.id in known.cancelled and run.id not in cancelled:
            yield f"{run.id}: cancellation acknowledged, but the run is not cancelled"


def _check_ends(session: Session) -> Iterator[str]:
    """The row of a run and the log agree on its end."""
    ends = [(entry.run_id, entry.type) for entry in session.entries if entry.type in ENDS]
    expected = [(run.id, f"run.{run.state}") for run in session.runs if run.state not in UNFINISHED]
    if sorted(ends) != sorted(expected):
        yield f"{session.id}: the log ends {sorted(set(ends) ^ set(expected))[:3]} unlike the rows of the runs"


def _check_runs(session: Session) -> Iterator[str]:
    """Runs do not overlap, attempts are numbered in order, and a run has no event after its end."""
    if sum(run.state in ACTIVE for run in session.runs) > 1:
        yield f"{session.id}: two active runs"
    if not session.at_rest and not any(run.state in ACTIVE for run in session.runs):
        yield f"{session.id}: pending runs, and no active one"
    yield from _check_order(session)
    active: str | None = None
    attempts: Counter[str] = Counter()
    ended: set[str] = set()
    for entry in session.entries:
        if entry.run_id in ended:
            yield f"{entry.run_id}: {entry.type} after its end"
        if entry.type == "run.started":
            attempts[entry.run_id] += 1
            if active not in (None, entry.run_id):
                yield f"{session.id}: {entry.run_id} began while {active} was running"
            if entry.data["attempt"] != attempts[entry.run_id]:
                yield f"{entry.run_id}: attempt {entry.data['attempt']} is number {attempts[entry.run_id]}"
            active = entry.run_id
        elif entry.type in ENDS:
            active = None if active == entry.run_id else active
            ended.add(entry.run_id)
        if entry.type == "run.failed" and not FAILURE_REASONS.search(entry.data["reason"]):
            yield f"{entry.run_id}: failed: {entry.data['reason']}"


def _check_order(session: Session) -> Iterator[str]:
    """Queued runs begin in the order in which their inputs were accepted."""
    begun = {entry.run_id: entry.id for entry in reversed(session.entries) if entry.type == "run.started"}
    queued = [entry.run_id for entry in _accepted(session) if entry.data.get("delivery") == "queue"]
    starts = [begun[run_id] for run_id in queued if run_id in begun]
    if starts != sorted(starts):
        yield f"{session.id}: queued runs began out of order"


def _check_steps(session: Session) -> Iterator[str]:
    """A stored step is not repeated, a call has one result, and an answer quotes the inputs that its run consumed."""
    steps: Counter[tuple[str, str]] = Counter()
    calls: Counter[str] = Counter()
    said: dict[str, str] = {}
    for entry in session.entries:
        if entry.type == "message":
            said[entry.run_id] = said.get(entry.run_id, "") + entry.data["text"]
            if step := _STEP.search(entry.data["text"]):
                steps[entry.run_id, step[1]] += 1
        elif entry.type == "tool.result":
            calls[entry.data["call_id"]] += 1
    for (run_id, step_number), times in steps.items():
        if times > 1:
            yield f"{run_id}: step {step_number} was stored {times} times"
    for call_id, times in calls.items():
        if times > 1:
            yield f"{call_id}: carried out {times} times"
    yield from _check_answered(session, said)


def _check_answered(session: Session, said: dict[str, str]) -> Iterator[str]:
    texts = {entry.data["input_id"]: token_of(entry.data["text"]) for entry in _accepted(session)}
    succeeded = {entry.run_id for entry in session.entries if entry.type == "run.succeeded"}
    consumed: dict[str, list[str]] = {}
    for entry in session.entries:
        if entry.type == "input.consumed" and entry.run_id in succeeded:
            consumed.setdefault(entry.run_id, []).append(texts.get(entry.data["input_id"], "?"))
    for run_id, tokens in consumed.items():
        for token in tokens[:_QUOTED]:
            if token not in said.get(run_id, ""):
                yield f"{token}: consumed by {run_id} and never shown to its model"


def _check_stream(session: Session, received: Sequence[tuple[int, str]]) -> Iterator[str]:
    """Over all its connections a reader received each event of the log once, from the beginning, in order."""
    if not received:
        return
    stored = [(entry.id, entry.type) for entry in session.entries if entry.id <= received[-1][0]]
    if list(received) == stored:
        return
    missed = sorted(set(stored) - set(received))
    again = [number for number, times in Counter(received).items() if times > 1]
    yield f"{session.id}: a stream missed {missed[:5]}, repeated {again[:5]}, of {len(stored)} entries"


def check_skill(
    skill_id: str, versions: Sequence[Version], intents: dict[str, Intent], answers: dict[str, Answer]
) -> Iterator[str]:
    """`intents` by the digest of the pushed bundle."""
    numbers = sorted(version.version for version in versions)
    if numbers != list(range(1, len(numbers) + 1)):
        twice = [number for number, times in Counter(numbers).items() if times > 1]
        gaps = sorted(set(range(1, len(numbers) + 1)) - set(numbers))
        yield f"{skill_id}: versions given twice {twice[:5]}, left out {gaps[:5]}"
    stored: dict[str, list[Version]] = {}
    for version in versions:
        stored.setdefault(version.sha256, []).append(version)
        if not version.has_bundle:
            yield f"{skill_id}: version {version.version} has no bundle"
    for sha256, intent in intents.items():
        found = stored.get(sha256, [])
        if len(found) > 1:
            yield f"{intent.token}: pushed once, stored {len(found)} times"
        if (answer := answers.get(intent.token)) is not None:
            record = json.loads(answer.body)
            if (record["id"], record["version"]) not in [(str(one.id), one.version) for one in found]:
                yield f"{intent.token}: acknowledged as version {record['version']}, which is not stored"


def check_created(
    kind: Kind, stored: Counter[str], intents: Iterable[Intent], answers: dict[str, Answer]
) -> Iterator[str]:
    """Keys and sessions. Their label or title is the token of the intent."""
    for intent in intents:
        times = stored[intent.token]
        if times > 1:
            yield f"{intent.token}: one {kind}, made {times} times"
        elif intent.token in answers and times == 0:
            yield f"{intent.token}: a {kind} was acknowledged and is not stored"
