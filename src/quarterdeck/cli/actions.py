"""`qd actions`."""

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any
from uuid import UUID

import typer

from quarterdeck.cli import completion, find
from quarterdeck.cli.action_text import answer_options, answered, fields_of, result_value, subject
from quarterdeck.cli.commands import command
from quarterdeck.cli.errors import CliError
from quarterdeck.cli.options import Limit, argument, choice, flag, json_object, option, read_input, tokens_count, usd
from quarterdeck.cli.output import Page, Result, json_text, print_facts, shortened
from quarterdeck.client import Client, NotFound
from quarterdeck.client.models import ActionBody, ActionKind, ActionState

app = typer.Typer(rich_markup_mode=None)

ActionId = Annotated[str, argument("ACTION", "ID or ID prefix of the action.", complete=completion.actions)]

_MAX_ARGUMENTS_CHARACTERS = 60
_STATES = (*ActionState, "all")


@command(app, "list")
def list_(
    client: Client,
    state: Annotated[
        str, choice("STATE", "open, resolved, expired, cancelled or all. Default: open.", values=_STATES)
    ] = "open",
    session: Annotated[
        str | None,
        option("SESSION", "Only actions of this session: ID, ID prefix or title.", complete=completion.sessions),
    ] = None,
    kind: Annotated[
        str | None, choice("KIND", "approval, tool_result, unknown_outcome or budget.", values=ActionKind)
    ] = None,
    limit: Limit = 50,
) -> Page[ActionBody]:
    """List actions, newest first. A run waits until its open actions are answered."""
    filters: dict[str, Any] = {"state": None if state == "all" else state, "kind": kind}
    session_id = None if session is None else find.session_id(client, session)
    found = client.iter_actions(session_id=session_id, limit=min(limit, 200), **filters)
    columns = ("ID", "AGE", "SESSION", "KIND", "STATE", "TOOL", "ARGUMENTS", "EXPIRES")
    empty = "Nothing is waiting for an answer." if state == "open" else "No actions."
    return Page(found, limit, columns, _row, empty)


@command(app)
def show(client: Client, action: ActionId) -> Result:
    """Show an action, with all arguments and its answer."""
    found = find.action(client, action)
    return Result(found, lambda: print_facts(_facts(client, found)))


# For each decision: the kind of action that it answers, and the other options that fit it. None: the result of a client
# tool.
_RULES: dict[str | None, tuple[ActionKind, tuple[str, ...]]] = {
    "allow": (ActionKind.APPROVAL, ("arguments", "remember")),
    "deny": (ActionKind.APPROVAL, ("message",)),
    "retry": (ActionKind.UNKNOWN_OUTCOME, ()),
    "done": (ActionKind.UNKNOWN_OUTCOME, ("result",)),
    "failed": (ActionKind.UNKNOWN_OUTCOME, ("result",)),
    "raise": (ActionKind.BUDGET, ("max_tokens", "max_cost_usd")),
    "stop": (ActionKind.BUDGET, ()),
    None: (ActionKind.TOOL_RESULT, ("result", "error")),
}


@command(app)
def resolve(
    client: Client,
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
        int | None, option("COUNT", "With --raise: the new limit of tokens.", parser=tokens_count)
    ] = None,
    max_cost_usd: Annotated[float | None, option("USD", "With --raise: the new limit of cost.", parser=usd)] = None,
    result: Annotated[
        str | None,
        option("RESULT", "Result of the tool: JSON, or text if it is not valid JSON. Use - to read it from stdin."),
    ] = None,
    error: Annotated[bool, flag("--error", "With --result: the call failed.")] = False,
) -> Result:
    """Answer an action. The first answer counts."""
    decisions = {"allow": allow, "deny": deny, "retry": retry, "done": done, "failed": failed}
    decisions |= {"raise": raise_, "stop": stop}
    options: dict[str, Any] = {"message": message, "arguments": arguments, "remember": remember, "result": result}
    options |= {"error": error, "max_tokens": max_tokens, "max_cost_usd": max_cost_usd}
    answer = {name: value for name, value in options.items() if value is not None and value is not False}
    decision = _decision([name for name, given in decisions.items() if given], answer)
    body = _body(decision, answer)
    found = find.action(client, action)
    kind, _ = _RULES[decision]
    if found.kind is not kind:
        raise CliError(f"This action is of the kind {found.kind}. Use {answer_options(found.kind)}.")
    resolved = client.resolve_action(found.id, **body)
    return Result(resolved, f"{answered(fields_of(resolved))} {resolved.id}")


def _decision(given: list[str], answer: dict[str, Any]) -> str | None:
    """The decision, if the other options fit it."""
    if len(given) > 1:
        raise CliError(f"Use only one of {_options(given)}")
    decision = given[0] if given else None
    if decision is None and "result" not in answer:
        raise CliError(
            "No answer given. Approvals: --allow or --deny. Tool results: --result. Unknown outcomes: --retry, --done "
            "or --failed. Budgets: --raise or --stop."
        )
    _, allowed = _RULES[decision]
    wrong = [name for name in answer if name not in allowed]
    if wrong:
        raise CliError(f"{_options(wrong)} cannot be used with --{decision or 'result'}")
    if decision == "raise" and not answer:
        raise CliError("Use --max-tokens or --max-cost-usd to set the new limit")
    return decision


def _options(names: list[str]) -> str:
    return ", ".join(f"--{name.replace('_', '-')}" for name in names)


def _body(decision: str | None, answer: dict[str, Any]) -> dict[str, Any]:
    """The fields of the API."""
    body: dict[str, Any] = {} if decision is None else {"decision": decision}
    for name, value in answer.items():
        match name:
            case "remember":
                body["remember"] = "session"
            case "error":
                body["is_error"] = True
            case "result":
                body["result"] = result_value(read_input(value))
            case _:
                body[name] = value
    return body


def _facts(client: Client, found: ActionBody) -> list[tuple[str, object]]:
    is_open, is_answered = found.state is ActionState.OPEN, found.state is ActionState.RESOLVED
    return [
        ("action", found.id),
        ("session", f"{found.session_id} {_title(client, found.session_id)}".rstrip()),
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


def _title(client: Client, session_id: UUID) -> str:
    try:
        return client.get_session(session_id).title or ""
    except NotFound:
        # Deleted meanwhile.
        return ""


def _row(one: ActionBody) -> list[object]:
    now = datetime.now(UTC)
    arguments = shortened(json_text(one.arguments), _MAX_ARGUMENTS_CHARACTERS) if one.arguments else ""
    what = arguments if one.reached is None else subject(fields_of(one))
    expires = f"in {_span(one.expires_at - now, math.ceil)}" if one.state is ActionState.OPEN else ""
    return [one.id, _span(now - one.created_at), one.session_id, one.kind, one.state, one.tool, what, expires]


def _span(time: timedelta, rounded: Callable[[float], int] = math.floor) -> str:
    """In one unit, such as 5m or 3d."""
    seconds = max(0, rounded(time.total_seconds()))
    for unit, size in (("d", 24 * 3600), ("h", 3600), ("m", 60)):
        if seconds >= size:
            return f"{rounded(seconds / size)}{unit}"
    return f"{seconds}s"
