"""`qd actions`."""

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import msgspec
import typer
from msgspec import UNSET, Struct

from quarterdeck.cli import completion, find
from quarterdeck.cli.arguments import ActionId
from quarterdeck.cli.connection import open_client
from quarterdeck.cli.exit_codes import UsageError
from quarterdeck.cli.options import AsJson, Limit, Profile, json_object, text, usd
from quarterdeck.cli.output import date_text, json_text, print_facts, print_json, print_list, read_input, say

if TYPE_CHECKING:
    from quarterdeck.client import Client
    from quarterdeck.client.models import ActionBody

app = typer.Typer(rich_markup_mode=None, help="List and answer actions, for which runs wait.")

_MAX_ARGUMENTS_CHARACTERS = 60


class State(StrEnum):
    OPEN = "open"
    RESOLVED = "resolved"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    ALL = "all"


class Kind(StrEnum):
    APPROVAL = "approval"
    TOOL_RESULT = "tool_result"
    UNKNOWN_OUTCOME = "unknown_outcome"
    BUDGET = "budget"


@app.command("list")
def list_(
    state: Annotated[
        State, typer.Option(metavar="STATE", help="open, resolved, expired, cancelled or all. Default: open.")
    ] = State.OPEN,
    session: Annotated[
        str | None,
        typer.Option(
            "--session",
            parser=text,
            metavar="SESSION",
            help="Only actions of this session: ID, ID prefix or title.",
            autocompletion=completion.sessions,
        ),
    ] = None,
    kind: Annotated[
        Kind | None, typer.Option(metavar="KIND", help="approval, tool_result, unknown_outcome or budget.")
    ] = None,
    limit: Limit = 50,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """List actions, newest first. A run waits until its open actions are answered."""
    filters: dict[str, Any] = {
        "state": None if state is State.ALL else state.value,
        "kind": None if kind is None else kind.value,
    }
    with open_client(profile) as client:
        session_id = None if session is None else find.session_id(client, session)
        print_list(
            client.iter_actions(session_id=session_id, page_size=min(limit, 200), **filters),
            limit,
            ("ID", "AGE", "SESSION", "KIND", "STATE", "TOOL", "ARGUMENTS", "EXPIRES"),
            _row,
            as_json=as_json,
            empty="Nothing is waiting for an answer." if state is State.OPEN else "No actions.",
        )


@app.command()
def show(action: ActionId, profile: Profile = None, as_json: AsJson = False) -> None:
    """Show an action, with all arguments and its answer."""
    from quarterdeck.cli.action_text import answer_options, answered, fields_of, subject

    with open_client(profile) as client:
        found = find.action(client, action)
        title = _title(client, found.session_id)
    if as_json:
        print_json(found)
        return
    is_open, is_answered = (found.state.value == state for state in (State.OPEN, State.RESOLVED))
    print_facts(
        [
            ("action", str(found.id)),
            ("session", f"{found.session_id} {title}".rstrip()),
            ("run", str(found.run_id)),
            ("kind", found.kind.value),
            ("state", found.state.value),
            ("reason", found.reason),
            ("tool", found.tool),
            ("arguments", None if found.arguments is None else json_text(found.arguments, indent=2)),
            ("limit", None if found.reached is None else subject(fields_of(found))),
            ("created", date_text(found.created_at)),
            ("expires", date_text(found.expires_at) if is_open else None),
            ("answered" if is_answered else found.state.value, date_text(found.resolved_at) or None),
            ("answer", answered(fields_of(found)) if is_answered else None),
            ("options", answer_options(found.kind) if is_open else None),
        ]
    )


class Answer(Struct, frozen=True):
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
    kind: Kind
    # Options that fit the decision.
    allowed: tuple[str, ...] = ()


# By decision. None: the result of a tool of the caller.
_RULES: dict[str | None, Rule] = {
    "allow": Rule(Kind.APPROVAL, ("arguments", "remember")),
    "deny": Rule(Kind.APPROVAL, ("message",)),
    "retry": Rule(Kind.UNKNOWN_OUTCOME),
    "done": Rule(Kind.UNKNOWN_OUTCOME, ("result",)),
    "failed": Rule(Kind.UNKNOWN_OUTCOME, ("result",)),
    "raise": Rule(Kind.BUDGET, ("max_tokens", "max_cost_usd")),
    "stop": Rule(Kind.BUDGET),
    None: Rule(Kind.TOOL_RESULT, ("result", "error")),
}


@app.command()
def resolve(
    action: ActionId,
    allow: Annotated[bool, typer.Option("--allow", help="Approval: allow the call.")] = False,
    deny: Annotated[bool, typer.Option("--deny", help="Approval: deny the call.")] = False,
    message: Annotated[
        str | None, typer.Option(parser=text, metavar="TEXT", help="With --deny: message for the model.")
    ] = None,
    arguments: Annotated[
        dict[str, Any] | None,
        typer.Option(
            parser=json_object, metavar="JSON", help="With --allow: arguments to use instead of those of the model."
        ),
    ] = None,
    remember: Annotated[
        bool, typer.Option("--remember", help="With --allow: allow this tool for the rest of the session.")
    ] = False,
    retry: Annotated[bool, typer.Option("--retry", help="Unknown outcome: carry out the call again.")] = False,
    done: Annotated[bool, typer.Option("--done", help="Unknown outcome: the call took effect.")] = False,
    failed: Annotated[bool, typer.Option("--failed", help="Unknown outcome: the call did not take effect.")] = False,
    raise_: Annotated[bool, typer.Option("--raise", help="Budget: raise the limit and continue.")] = False,
    stop: Annotated[bool, typer.Option("--stop", help="Budget: end the run.")] = False,
    max_tokens: Annotated[
        int | None, typer.Option(min=1, metavar="COUNT", help="With --raise: the new limit of tokens.")
    ] = None,
    max_cost_usd: Annotated[
        float | None, typer.Option(parser=usd, metavar="USD", help="With --raise: the new limit of cost.")
    ] = None,
    result: Annotated[
        str | None,
        typer.Option(
            parser=text,
            metavar="RESULT",
            help="Result of the tool: JSON, or text if it is not valid JSON. Use - to read it from stdin.",
        ),
    ] = None,
    error: Annotated[bool, typer.Option("--error", help="With --result: the call failed.")] = False,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Answer an action. The first answer counts."""
    decisions = {"allow": allow, "deny": deny, "retry": retry, "done": done, "failed": failed}
    decisions |= {"raise": raise_, "stop": stop}
    answer = Answer(message, arguments, remember or None, result, error or None, max_tokens, max_cost_usd)
    decision = _decision([name for name, given in decisions.items() if given], answer)
    body = _body(decision, answer)
    with open_client(profile) as client:
        found = find.action(client, action)
        _check_kind(found, _RULES[decision].kind)
        resolved = client.resolve_action(found.id, **body)
    if as_json:
        print_json(resolved)
        return
    from quarterdeck.cli.action_text import answered, fields_of

    say(f"{answered(fields_of(resolved))} {resolved.id}")


def _decision(given: list[str], answer: Answer) -> str | None:
    """The decision, if the other options fit it."""
    if len(given) > 1:
        raise UsageError(f"Use only one of {_options(given)}")
    decision = given[0] if given else None
    if decision is None and answer.result is None:
        raise UsageError(
            "No answer given. Approvals: --allow or --deny. Tool results: --result. Unknown outcomes: --retry, --done "
            "or --failed. Budgets: --raise or --stop."
        )
    wrong = [name for name in answer.given() if name not in _RULES[decision].allowed]
    if wrong:
        raise UsageError(f"{_options(wrong)} cannot be used with --{decision or 'result'}")
    if decision == "raise" and not answer.given():
        raise UsageError("Use --max-tokens or --max-cost-usd to set the new limit")
    return decision


def _options(names: list[str]) -> str:
    return ", ".join(f"--{name.replace('_', '-')}" for name in names)


def _check_kind(found: "ActionBody", kind: Kind) -> None:
    from quarterdeck.cli.action_text import answer_options

    if found.kind.value != kind.value:
        raise UsageError(f"This action is of the kind {found.kind}. Use {answer_options(found.kind)}.")


def _body(decision: str | None, answer: Answer) -> dict[str, Any]:
    from quarterdeck.cli.action_text import result_value
    from quarterdeck.client.models import Decision

    return {
        "decision": UNSET if decision is None else Decision(decision),
        "message": _or_unset(answer.message),
        "arguments": _or_unset(answer.arguments),
        "remember": "session" if answer.remember else UNSET,
        "result": UNSET if answer.result is None else result_value(read_input(answer.result)),
        "is_error": _or_unset(answer.error),
        "max_tokens": _or_unset(answer.max_tokens),
        "max_cost_usd": _or_unset(answer.max_cost_usd),
    }


def _or_unset(given: Any) -> Any:
    return UNSET if given is None else given


def _title(client: "Client", session_id: UUID) -> str:
    from quarterdeck.client import NotFound

    try:
        return client.get_session(session_id).title or ""
    except NotFound:
        # Deleted meanwhile.
        return ""


def _row(action: "ActionBody") -> list[str]:
    from quarterdeck.cli.action_text import fields_of, subject

    now = datetime.now(UTC)
    is_open = action.state.value == State.OPEN
    what = subject(fields_of(action)) if action.reached is not None else _compact(action.arguments)
    return [
        str(action.id),
        _span(now - action.created_at),
        str(action.session_id),
        action.kind.value,
        action.state.value,
        action.tool or "",
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
