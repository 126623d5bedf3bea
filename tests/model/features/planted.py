"""The bugs that an hour of combining features found by hand, planted again: the machine must find each of them. Each is
a small change of a module or of an SQL function; the product has no switch for them.

`make model-planted` plants them one after another, each in a process of its own, and prints how long each took to find.
"""

import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import psycopg
from msgspec import Struct
from pydantic_ai.messages import ModelMessagesTypeAdapter

from quarterdeck.models import context, messages
from quarterdeck.models.model import AssistantTurn, Turn, UserTurn
from quarterdeck.sessions import store as sessions
from quarterdeck.worker import journal, tool_calls, tool_runner
from tests.fleet.planted_bugs import SqlChange

_MINUTES = 20
_FOUND = re.compile(r"^([0-9.]+) s, seed (\S+): (\w+)", re.MULTILINE)


class Bug(Struct, frozen=True):
    # The wrong assumption behind it.
    assumption: str
    # The promise that it breaks. No other counts.
    promise: str
    plant: Callable[[], None] = lambda: None
    change: SqlChange | None = None


def _input_begins_exchange() -> None:
    def begins_exchange(turns: Sequence[Turn], at: int) -> bool:
        return at < len(turns) and context._is_input(turns[at]) and not isinstance(turns[at - 1], UserTurn)

    _replace(context, "_begins_exchange", begins_exchange)


def _policy_before_result() -> None:
    decide = tool_calls.decide

    def refuse_first(call: Any, step: int, tool: Any, rules: Any, state: Any) -> Any:
        is_clients = tool is not None and tool.carry_out is None
        refused = tool_calls._refusal(call, step, tool, rules, state) if is_clients else None
        return decide(call, step, tool, rules, state) if refused is None else refused

    _replace(tool_runner, "decide", refuse_first)


def _raised_limit_stays() -> None:
    async def forget_nothing(*_: object) -> None:
        pass

    _replace(sessions, "forget_raised_limits", forget_nothing)


def _whole_record() -> None:
    answer = messages._answer

    def as_recorded(turn: AssistantTurn, model_name: str) -> Any:
        if isinstance(turn.record, dict) and turn.record.get("model") == model_name:
            return ModelMessagesTypeAdapter.validate_python([turn.record.get("response")])[0]
        return answer(turn, model_name)

    _replace(messages, "_answer", as_recorded)


def _copies_are_shown() -> None:
    _replace(journal, "_without_copies", list)


BUGS = {
    "input-begins-exchange": Bug(
        "an input after a result begins an exchange", "the_task_is_there", _input_begins_exchange
    ),
    "policy-before-result": Bug(
        "what the policy forbids was not carried out", "a_result_that_arrived_counts", _policy_before_result
    ),
    "inputs-before-the-stop": Bug(
        "a run that begins processes its inputs",
        "inputs_before_a_stop_start_the_next_run",
        change=SqlChange("begin_attempt", "last_started := last_starting_input(run);", "NULL;"),
    ),
    "raised-limit-stays": Bug(
        "a limit that a person raised is the run's own",
        "a_limit_that_was_changed_by_patch_applies",
        _raised_limit_stays,
    ),
    "raise-of-an-older-version": Bug(
        "the limits of the session are those of its last run",
        "a_raise_never_lowers_a_limit",
        change=SqlChange("raise_limit_of_session", "coalesce(values_of_agent(s.id)->'limits', s.limits)", "s.limits"),
    ),
    "attachments-of-an-older-version": Bug(
        "the sandbox of the session is that of its last run",
        "attachments_follow_the_shown_agent",
        change=SqlChange(
            "find_attachments",
            "CROSS JOIN LATERAL values_of_agent(s.id) AS agent",
            "CROSS JOIN (VALUES ('{}'::jsonb)) AS no_agent (agent)",
        ),
    ),
    "whole-record": Bug("a recorded answer has the calls of the log", "requests_are_valid", _whole_record),
    "copies-are-shown": Bug("a retried run has answered nothing", "an_input_is_shown_once", _copies_are_shown),
    "long-names": Bug(
        "endings are short",
        "names_of_attachments_fit",
        change=SqlChange("attachment_path", "255 - octet_length(ending)", "160"),
    ),
}


def plant(bug: Bug, url: str) -> None:
    """In this process and in the database."""
    bug.plant()
    if bug.change is None:
        return
    with psycopg.connect(url, autocommit=True, options="-c search_path=app") as connection:
        query = "SELECT pg_get_functiondef(%s::regproc)"
        row = connection.execute(query, (bug.change.function,)).fetchone()
        assert row is not None
        assert bug.change.text in row[0], f"{bug.change.function} no longer contains {bug.change.text!r}"
        connection.execute(row[0].replace(bug.change.text, bug.change.replacement).encode())


def _replace(owner: Any, name: str, value: object) -> None:
    assert hasattr(owner, name), f"{owner} no longer has {name}"
    setattr(owner, name, value)


def main() -> int:
    missed = 0
    for name, bug in BUGS.items():
        command = [sys.executable, "-m", "tests.model.features.command", "--plant", name, "--minutes", str(_MINUTES)]
        began = time.monotonic()
        done = subprocess.run([*command, *sys.argv[1:]], capture_output=True, text=True, check=False)
        found = [one for one in _FOUND.findall(done.stdout) if one[2] == bug.promise]
        missed += not found
        told = f"found after {found[0][0]} s, seed {found[0][1]}" if found else f"MISSED\n{done.stdout}{done.stderr}"
        print(f"{name}: {told} ({time.monotonic() - began:.0f} s with start and end)", flush=True)  # noqa: T201
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
