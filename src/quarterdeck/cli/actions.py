"""`qd actions`."""

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any
from uuid import UUID

import msgspec
import typer
from msgspec import UNSET, Struct

from quarterdeck.cli import completion, find
from quarterdeck.cli.action_text import answer_options, answered, fields_of, result_value, subject
from quarterdeck.cli.connection import open_client
from quarterdeck.cli.errors import CliError
from quarterdeck.cli.options import (
    AsJson,
    Limit,
    Profile,
    argument,
    choice,
    flag,
    json_object,
    option,
    or_unset,
    read_input,
    usd,
    whole_number,
)
from quarterdeck.cli.output import json_text, print_facts, print_json, print_list, say
from quarterdeck.client import Client, NotFound
from quarterdeck.client.models import ActionBody, ActionKind, ActionState, Decision

app = typer.Typer(rich_markup_mode=None, help="List and answer actions, for which runs wait.")

ActionId = Annotated[str, argument("ACTION", "ID or ID prefix of the action.", complete=completion.actions)]

_MAX_ARGUMENTS_CHARACTERS = 60
_STATES = (*ActionState, "all")


@app.command("list")
def list_(
    state: Annotated[
        str, choice("STATE", "open, resolved, expired, cancelled or all. Default: open.", values=_STATES)
    ] = "open",
    session: Annotated[
        str | None,
        option(
            "SESSION",
            "Only actions of this session: ID, ID prefix or title.",
            "--session",
            complete=completion.sessions,
        ),
    ] = None,
    kind: Annotated[
        str | None, choice("KIND", "approval, tool_result, unknown_outcome or budget.", values=ActionKind)
    ] = None,
    limit: Limit = 50,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """List actions, newest first. A run waits until its open actions are answered."""
    filters: dict[str, Any] = {"state": None if state == "all" else state, "kind": kind}
    with open_client(profile) as client:
        session_id = None if session is None else find.session_id(client, session)
        print_list(
            client.iter_actions(session_id=session_id, limit=min(limit, 200), **filters),
            ("ID", "AGE", "SESSION", "KIND", "STATE", "TOOL", "ARGUMENTS", "EXPIRES"),
            _row,
            "Nothing is waiting for an answer." if state == "open" else "No actions.",
            limit,
            as_json=as_json,
        )


@app.command()
def show(action: ActionId, profile: Profile = None, as_json: AsJson = False) -> None:
    """Show an action, with all arguments and its answer."""
    with open_client(profile) as client:
        found = find.action(client, action)
        title = _title(client, found.session_id)
    if as_json:
        print_json(found)
        return
    is_open, is_answered = found.state is ActionState.OPEN, found.state is ActionState.RESOLVED
    print_facts(
        [
            ("action", found.id),
            ("session", f"{found.session_id} {title}".rstrip()),
            ("run", found.run_id),
            ("kind", found.kind),
            ("state", found.state),
            ("reason", found.reason),
            ("tool", found.tool),
            ("arguments", None if found.arguments is None else json_text(found.arguments, indent=2)),
            ("limit", None if found.reached is None else subject(fields_of(found))),
            ("created", found.created_at),
            ("expires", found.expires_at if is_open else None),
            ("answered" if is_answered else found.state.value, found.resolved_at),
            ("answer", answered(fields_of(found)) if is_answered else None),
            ("options", answer_options(found.kind) if is_open else None),
        ]
    )


class ActionAnswer(Struct, frozen=True):
    """The options of `resolve` besides the decision. None: not given."""

    message: str | None
    arguments: dict[str, Any] | None
    remember: bool | None
    result: str | None
    error: bool | None
    max_tokens: int | None
    max_cost_usd: float | None

    def given(self) -> list[str]:
        return [name for name, value in msgspec.structs.asdict(self).items() if value is not None]


class Rule(Struct, frozen=True):
    kind: ActionKind
    # Options that fit the decision.
    allowed: tuple[str, ...] = ()


# By decision. None: the result of a tool of the caller.
_RULES: dict[str | None, Rule] = {
    "allow": Rule(ActionKind.APPROVAL, ("arguments", "remember")),
    "deny": Rule(ActionKind.APPROVAL, ("message",)),
    "retry": Rule(ActionKind.UNKNOWN_OUTCOME),
    "done": Rule(ActionKind.UNKNOWN_OUTCOME, ("result",)),
    "failed": Rule(ActionKind.UNKNOWN_OUTCOME, ("result",)),
    "raise": Rule(ActionKind.BUDGET, ("max_tokens", "max_cost_usd")),
    "stop": Rule(ActionKind.BUDGET),
    None: Rule(ActionKind.TOOL_RESULT, ("result", "error")),
}


@app.command()
def resolve(
    action: ActionId,
    allow: Annotated[bool, flag("--allow", "Approval: allow the call.")] = False,
    deny: Annotated[bool, flag("--deny", "Approval: deny the call.")] = False,
    message: Annotated[str | None, option("TEXT", "With --deny: message for the model.")] = None,
    arguments: Annotated[
        dict[str, Any] | None,
        option("JSON", "With --allow: arguments to use instead of those of the model.", parser=json_object),
    ] = None,
    remember: Annotated[bool, flag("--remember", "With --allow: allow this tool for the rest of the session.")] = False,
    retry: Annotated[bool, flag("--retry", "Unknown outcome: carry out the call again.")] = False,
    done: Annotated[bool, flag("--done", "Unknown outcome: the call took effect.")] = False,
    failed: Annotated[bool, flag("--failed", "Unknown outcome: the call did not take effect.")] = False,
    raise_: Annotated[bool, flag("--raise", "Budget: raise the limit and continue.")] = False,
    stop: Annotated[bool, flag("--stop", "Budget: end the run.")] = False,
    max_tokens: Annotated[
        int | None, option("COUNT", "With --raise: the new limit of tokens.", parser=whole_number(1, 2**53))
    ] = None,
    max_cost_usd: Annotated[float | None, option("USD", "With --raise: the new limit of cost.", parser=usd)] = None,
    result: Annotated[
        str | None,
        option("RESULT", "Result of the tool: JSON, or text if it is not valid JSON. Use - to read it from stdin."),
    ] = None,
    error: Annotated[bool, flag("--error", "With --result: the call failed.")] = False,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Answer an action. The first answer counts."""
    decisions = {"allow": allow, "deny": deny, "retry": retry, "done": done, "failed": failed}
    decisions |= {"raise": raise_, "stop": stop}
    answer = ActionAnswer(message, arguments, remember or None, result, error or None, max_tokens, max_cost_usd)
    decision = _decision([name for name, given in decisions.items() if given], answer)
    body = _body(decision, answer)
    with open_client(profile) as client:
        found = find.action(client, action)
        _check_kind(found, _RULES[decision].kind)
        resolved = client.resolve_action(found.id, **body)
    if as_json:
        print_json(resolved)
        return

    say(f"{answered(fields_of(resolved))} {resolved.id}")


def _decision(given: list[str], answer: ActionAnswer) -> str | None:
    """The decision, if the other options fit it."""
    if len(given) > 1:
        raise CliError(f"Use only one of {_options(given)}")
    decision = given[0] if given else None
    if decision is None and answer.result is None:
        raise CliError(
            "No answer given. Approvals: --allow or --deny. Tool results: --result. Unknown outcomes: --retry, --done "
            "or --failed. Budgets: --raise or --stop."
        )
    wrong = [name for name in answer.given() if name not in _RULES[decision].allowed]
    if wrong:
        raise CliError(f"{_options(wrong)} cannot be used with --{decision or 'result'}")
    if decision == "raise" and not answer.given():
        raise CliError("Use --max-tokens or --max-cost-usd to set the new limit")
    return decision


def _options(names: list[str]) -> str:
    return ", ".join(f"--{name.replace('_', '-')}" for name in names)


def _check_kind(found: ActionBody, kind: ActionKind) -> None:
    if found.kind is not kind:
        raise CliError(f"This action is of the kind {found.kind}. Use {answer_options(found.kind)}.")


def _body(decision: str | None, answer: ActionAnswer) -> dict[str, Any]:
    return {
        "decision": UNSET if decision is None else Decision(decision),
        "message": or_unset(answer.message),
        "arguments": or_unset(answer.arguments),
        "remember": "session" if answer.remember else UNSET,
        "result": UNSET if answer.result is None else result_value(read_input(answer.result)),
        "is_error": or_unset(answer.error),
        "max_tokens": or_unset(answer.max_tokens),
        "max_cost_usd": or_unset(answer.max_cost_usd),
    }


def _title(client: Client, session_id: UUID) -> str:
    try:
        return client.get_session(session_id).title or ""
    except NotFound:
        # Deleted meanwhile.
        return ""


def _row(action: ActionBody) -> list[object]:
    now = datetime.now(UTC)
    is_open = action.state is ActionState.OPEN
    what = subject(fields_of(action)) if action.reached is not None else _compact(action.arguments)
    return [
        action.id,
        _span(now - action.created_at),
        action.session_id,
        action.kind,
        action.state,
        action.tool,
        what,
        f"in {_span(action.expires_at - now, math.ceil)}" if is_open else "",
    ]


def _compact(arguments: dict[str, Any] | None) -> str:
    found = json_text(arguments) if arguments else ""
    if len(found) <= _MAX_ARGUMENTS_CHARACTERS:
        return found
    return found[: _MAX_ARGUMENTS_CHARACTERS - 1] + "…"


def _span(time: timedelta, rounded: Callable[[float], int] = math.floor) -> str:
    """In one unit, such as 5m or 3d."""
    seconds = max(0, rounded(time.total_seconds()))
    for unit, size in (("d", 24 * 3600), ("h", 3600), ("m", 60)):
        if seconds >= size:
            return f"{rounded(seconds / size)}{unit}"
    return f"{seconds}s"
