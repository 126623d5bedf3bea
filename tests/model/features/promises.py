"""The promises, each in a few lines. They look at what the API shows and at what the provider was sent. A promise that
is broken raises AssertionError with the reason. Checked after each step, when every run stands still."""

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise

from tests.model.features.provider import Question
from tests.model.features.world import ENDED, Attached, Broken, Json, Session, World

Promise = Callable[[World], None]
_FILE_NAME_BYTES = 255
# Characters that are compared of a text that may be cut in the middle.
_START = 16
# Attachments that leave room for the rest of the smallest context.
_FEW = 2


def _sessions(world: World) -> Iterator[Session]:
    return (one for one in world.sessions if not one.is_deleted and one.shown)


# --- inputs and runs ---


def one_active_run(world: World) -> None:
    for session in _sessions(world):
        active = [run["id"] for run in session.runs if run["state"] in ("queued", "running", "waiting")]
        assert len(active) <= 1, f"{session.ref} has the active runs {active}"


def every_run_goes_on(world: World) -> None:
    """It waits for the model or an open action. A pending one waits for another."""
    for session in _sessions(world):
        for run in session.runs:
            if run["state"] in ("queued", "running"):
                assert world.service.provider.question_of(run["id"]), f"{run['id']} is {run['state']}"
            if run["state"] == "waiting":
                assert run["waiting_for"], f"{run['id']} waits for nothing"
            if run["state"] == "pending":
                assert session.active, f"{run['id']} is pending, and no run is active"


def every_input_ends_once(world: World) -> None:
    for session in _sessions(world):
        if session.has_expired:
            continue
        accepted = [one["data"]["input_id"] for one in session.events("input.accepted")]
        ends = Counter(one["data"]["input_id"] for one in session.events("input.consumed"))
        # An input that is dropped was consumed before.
        ends += Counter(
            one["data"]["input_id"] for one in session.events("input.discarded") if one["data"]["reason"] != "dropped"
        )
        assert all(count == 1 for count in ends.values()), f"{session.ref}: {ends}"
        assert set(ends) <= set(accepted), f"{session.ref}: an input ended that was not accepted"
        if all(run["state"] in ENDED for run in session.runs):
            assert set(ends) == set(accepted), f"{session.ref}: {set(accepted) - set(ends)} never ended"


def inputs_before_a_stop_start_the_next_run(world: World) -> None:
    """A run that a person stopped, or nobody let go on, takes no further input."""
    for session in _sessions(world):
        stopped: set[str] = set()
        for event in session.log:
            data = event["data"]
            is_stop = data.get("state") == "expired" or (data.get("resolution") or {}).get("decision") == "stop"
            if event["type"] == "action.resolved" and data["kind"] == "budget" and is_stop:
                stopped.add(event["run_id"])
            assert event["type"] != "input.consumed" or event["run_id"] not in stopped, (
                f"{session.ref}: {data['input_id']} was consumed by a run that had been stopped"
            )


def runs_end_once(world: World) -> None:
    for session in _sessions(world):
        ends = Counter(one["run_id"] for one in session.events("run.succeeded", "run.failed", "run.cancelled"))
        assert all(count == 1 for count in ends.values()), f"{session.ref}: {ends}"


# --- tools ---


def every_call_has_one_result(world: World) -> None:
    for session in _sessions(world):
        results = Counter(one["data"]["call_id"] for one in session.events("tool.result"))
        assert all(count == 1 for count in results.values()), f"{session.ref}: {results}"


def a_result_that_arrived_counts(world: World) -> None:
    for session in _sessions(world):
        for event in session.events("tool.result"):
            sent = world.sent_results.get(event["data"]["call_id"])
            assert sent is None or sent in event["data"]["text"], (
                f"the caller sent {sent!r}, and the log says {event['data']['text'][:60]!r}"
            )
        for action in session.open_actions:
            assert action["call_id"] not in world.sent_results, (
                f"{action['kind']} asks about {action['call_id']}, whose result was sent"
            )


def a_tool_with_effects_starts_once(world: World) -> None:
    """Unless a person says that it is to be repeated. A call in the folder can be repeated: its changes are stored
    with its result."""
    for session in _sessions(world):
        started = Counter(
            one["data"]["call_id"] for one in session.events("tool.started") if one["data"]["name"] == "add_note"
        )
        repeated = Counter(
            one["data"]["call_id"]
            for one in session.events("action.resolved")
            if (one["data"]["resolution"] or {}).get("decision") == "retry"
        )
        for call_id, count in started.items():
            assert count <= 1 + repeated[call_id], f"{session.ref}: {call_id} started {count} times"


def a_call_in_the_folder_works(world: World) -> None:
    for session in _sessions(world):
        for event in session.events("tool.result"):
            assert "the tool failed" not in event["data"]["text"], f"{event['data']['name']} failed"


# --- limits ---


def a_limit_that_was_changed_by_patch_applies(world: World) -> None:
    """No run waits at a limit that is not there any more."""
    for session in _sessions(world):
        for action in session.open_actions:
            if action["kind"] != "budget" or session.follows_limits:
                continue
            scope = action["reached"]["scope"]
            assert session.limit(scope) <= session.used_tokens(scope), (
                f"{session.ref} waits at {action['reached']}, and its limits are {session.shown['limits']}"
            )


def a_limit_stops_the_next_step(world: World) -> None:
    for session in _sessions(world):
        question = world.question(session)
        if question is None or question.is_checked or session.follows_limits or session.active is None:
            continue
        assert session.used_tokens("session") < session.limit("session"), f"{session.ref} is over its limit"
        if session.active["id"] not in session.raised_runs:
            assert session.used_tokens("run") < session.limit("run"), f"a run of {session.ref} is over its limit"


def a_raise_never_lowers_a_limit(world: World) -> None:
    for before, after in world.raises:
        for scope in ("run", "session"):
            old, new = before[scope]["max_tokens"], after[scope]["max_tokens"]
            lower = new is not None and (old is None or new < old)
            assert not lower, f"limits.{scope}.max_tokens was {old}, and {new} after an answer raised a limit"


# --- attachments ---


def attachments_follow_the_shown_agent(world: World) -> None:
    """With a folder every file is taken and placed; without one only those that the model takes."""
    for one in world.attached:
        has_folder = one.sandbox is not None
        expected = 200 if has_folder or one.file != "binary" else 400
        assert one.status == expected, f"{one.file} was answered {one.status}, and sandbox is {one.sandbox!r}"
        for path in _paths(one):
            assert (path is not None) == has_folder, f"{one.file} was put at {path}, and sandbox is {one.sandbox!r}"


def names_of_attachments_fit(world: World) -> None:
    """File systems take 255 bytes."""
    for one in world.attached:
        for path in _paths(one):
            size = len((path or "").rpartition("/")[2].encode())
            assert size <= _FILE_NAME_BYTES, f"a name of {size} bytes: {path}"


def _paths(attached: Attached) -> list[str | None]:
    accepted = attached.session.events("input.accepted")
    found = [one["data"] for one in accepted if one["data"]["text"] == attached.text]
    return [file["path"] for data in found for file in data["attachments"]]


# --- what the provider is sent ---


def _new_questions(world: World) -> Iterator[tuple[Session, Question]]:
    by_run = {run["id"]: session for session in _sessions(world) for run in session.runs}
    for question in world.service.provider.asked:
        if not question.is_checked and not question.is_summary and question.run_id in by_run:
            yield by_run[question.run_id], question


def requests_are_valid(world: World) -> None:
    """As providers require: each call has one result directly behind it, users and answers alternate, no message is
    empty, and a user begins."""
    for _, question in _new_questions(world):
        messages = [one for one in question.messages if one["role"] != "system"]
        assert messages[0]["role"] == "user", f"the first message is of {messages[0]['role']}"
        assert messages[-1]["role"] != "assistant", "the last message is an answer"
        for one, following in pairwise([*messages, {"role": "end"}]):
            assert one.get("content") or one.get("tool_calls"), f"an empty message: {one}"
            same = one["role"] == following["role"] and one["role"] != "tool"
            assert not same, f"two messages of {one['role']} in a row"
        _check_calls(messages)


def _check_calls(messages: list[Json]) -> None:
    open_calls: list[str] = []
    for one in messages:
        if one["role"] == "tool":
            assert one["tool_call_id"] in open_calls, f"a result without a call: {one['tool_call_id']}"
            open_calls.remove(one["tool_call_id"])
            continue
        assert not open_calls, f"calls without a result: {open_calls}"
        open_calls = [call["id"] for call in one.get("tool_calls") or ()]
    assert not open_calls, f"calls without a result: {open_calls}"


def an_input_is_shown_once(world: World) -> None:
    for session, question in _new_questions(world):
        said = "\n".join(question.texts("user"))
        for text in {one["data"]["text"] for one in session.events("input.accepted")}:
            mark = text.partition("]")[0] + "]"
            assert said.count(mark) <= 1, f"{mark} is there {said.count(mark)} times"


def the_task_is_there(world: World) -> None:
    """The inputs with which the exchange began, and those that no answer has followed. A summary may stand for the
    former. Many attachments may leave no room."""
    for session, question in _new_questions(world):
        said = "\n".join(question.texts("user"))
        first, last = _tasks(session, question.run_id)
        if sum(len(one.get("attachments", ())) for one in first + last) > _FEW:
            continue
        for one in last if "<summary>" in said else first + last:
            mark = one["text"].partition("]")[0] + "]"
            assert mark in said, f"{mark} is missing in a request of {session.ref}: {said[:200]!r}"


def _tasks(session: Session, run_id: str) -> tuple[list[Json], list[Json]]:
    inputs = {one["data"]["input_id"]: one["data"] for one in session.events("input.accepted")}
    dropped = {one["data"]["input_id"] for one in session.events("input.discarded")}
    first: list[Json] = []
    last: list[Json] = []
    has_answer = False
    for event, following in pairwise([*session.log, {"type": "end"}]):
        if event.get("run_id") != run_id:
            continue
        if event["type"] == "input.consumed" and event["data"]["input_id"] in inputs.keys() - dropped:
            (last if has_answer else first).append(inputs[event["data"]["input_id"]])
        elif event["type"] == "message":
            # Without calls it ends the exchange.
            has_answer = following["type"] == "tool.call"
            first, last = (first if has_answer else []), []
    return first, last


def a_stored_result_is_shown(world: World) -> None:
    """Unless the provider has refused a request with it."""
    for session, question in _new_questions(world):
        stored = {one["data"]["call_id"]: one["data"]["text"] for one in session.events("tool.result")}
        for message in question.messages:
            if message["role"] == "tool" and message["tool_call_id"] in stored.keys() - world.refused_calls:
                text = stored[message["tool_call_id"]]
                assert text[:_START] in str(message["content"]), (
                    f"the log says {text[:60]!r}, and the model reads {str(message['content'])[:60]!r}"
                )


PROMISES: tuple[Promise, ...] = (
    one_active_run,
    every_run_goes_on,
    every_input_ends_once,
    inputs_before_a_stop_start_the_next_run,
    runs_end_once,
    every_call_has_one_result,
    a_result_that_arrived_counts,
    a_tool_with_effects_starts_once,
    a_call_in_the_folder_works,
    a_limit_that_was_changed_by_patch_applies,
    a_limit_stops_the_next_step,
    a_raise_never_lowers_a_limit,
    attachments_follow_the_shown_agent,
    names_of_attachments_fit,
    requests_are_valid,
    an_input_is_shown_once,
    the_task_is_there,
    a_stored_result_is_shown,
)


def check(world: World) -> None:
    for promise in PROMISES:
        try:
            promise(world)
        except AssertionError as fault:
            raise Broken(promise.__name__, str(fault)) from None
    known = {run["id"] for session in _sessions(world) for run in session.runs}
    for question in world.service.provider.asked:
        question.is_checked = question.is_checked or question.run_id in known
