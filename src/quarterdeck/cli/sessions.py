"""`qd sessions`."""

from functools import partial
from itertools import islice
from typing import Annotated, Literal
from uuid import UUID

import typer

from quarterdeck.cli import find, runs
from quarterdeck.cli.action_text import tokens_text
from quarterdeck.cli.commands import command
from quarterdeck.cli.errors import CliError
from quarterdeck.cli.options import (
    Limit,
    SessionId,
    Yes,
    argument,
    choice,
    confirm,
    file_name,
    flag,
    line,
    option,
    uuid,
    whole_number,
)
from quarterdeck.cli.output import (
    Page,
    Result,
    cell,
    cost_text,
    created_text,
    download_to,
    json_text,
    print_facts,
    print_table,
    say,
)
from quarterdeck.cli.session_options import Removals, SessionOptions, session_fields
from quarterdeck.client import Client, Forbidden, NotFound
from quarterdeck.client.models import ListedSession, RunBody, SessionBody, SessionSkill, SessionSummary

app = typer.Typer(rich_markup_mode=None)

_LAST_RUNS = 5
_PLACES = ("titles", "conversations")


@command(app, "list")
def list_(
    client: Client,
    archived: Annotated[bool, flag("--archived", "List archived sessions.")] = False,
    search: Annotated[str | None, option("TEXT", "Only sessions whose title contains TEXT. See also --in.")] = None,
    search_in: Annotated[
        Literal["titles", "conversations"],
        choice("PLACE", "Where to search: titles or conversations.", "--in", values=_PLACES),
    ] = "titles",
    limit: Limit = 50,
) -> Page[ListedSession]:
    """List sessions, newest first."""
    found = client.iter_sessions(archived=archived, search=search, in_=search_in if search else None)
    columns = ("ID", "TITLE", "MODEL", "LAST RUN", "LAST ACTIVITY")
    empty = "No sessions found." if search else "No archived sessions." if archived else "No sessions yet."
    return Page(found, limit, columns, _row, empty)


@command(app)
def create(client: Client, options: SessionOptions) -> Result:
    """Create a session and print its ID. With --agent, other options override the agent."""
    session = client.create_session(**session_fields(client, options))
    return Result(session, str(session.id))


@command(app)
def show(client: Client, session_id: SessionId) -> Result:
    """Show a session and its last runs."""
    session = client.get_session(find.session_id(client, session_id))
    last = list(islice(client.iter_session_runs(session.id, limit=_LAST_RUNS), _LAST_RUNS))
    return Result({"session": session, "runs": last}, lambda: _print_session(client, session, last))


@command(app)
def archive(client: Client, session_id: SessionId) -> None:
    """Archive a session. It then accepts no input."""
    changed = client.change_session(find.session_id(client, session_id), archived=True)
    say(f"archived {changed.id}")


@command(app)
def unarchive(client: Client, session_id: SessionId) -> None:
    """Unarchive a session."""
    changed = client.change_session(find.session_id(client, session_id), archived=False)
    say(f"unarchived {changed.id}")


@command(app)
def delete(client: Client, session_id: SessionId, yes: Yes = False) -> None:
    """Delete a session with its log, runs and tokens. This can't be undone."""
    found_id = find.session_id(client, session_id)
    confirm(lambda: f"Delete {client.get_session(found_id).title or found_id} and its whole log?", yes=yes)
    client.delete_session(found_id)
    say(f"deleted {found_id}")


@command(app)
def rename(
    client: Client, session_id: SessionId, title: Annotated[str, argument("TITLE", "The new title.", parser=line)]
) -> Result:
    """Change the title of a session."""
    changed = client.change_session(find.session_id(client, session_id), title=title)
    return Result(changed, f"changed {changed.id}")


@command(app)
def edit(client: Client, session_id: SessionId, options: SessionOptions, removals: Removals) -> Result:
    """Change settings of a session, from its next run on. Options that can be repeated replace the whole list."""
    fields = session_fields(client, options, removals)
    if not fields:
        raise CliError("Nothing to change. See `qd sessions edit --help`.")
    changed = client.change_session(find.session_id(client, session_id), **fields)
    return Result(changed, f"changed {changed.id}")


@command(app)
def fork(
    client: Client,
    session_id: SessionId,
    before: Annotated[
        int | None, option("EVENT", "Copy only the events before this one.", parser=whole_number(1, 2**63 - 1))
    ] = None,
) -> Result:
    """Copy a session with its history and print the new ID."""
    session = client.fork_session(find.session_id(client, session_id), before_event_id=before)
    return Result(session, str(session.id))


@command(app)
def export(
    client: Client,
    session_id: SessionId,
    markdown: Annotated[bool, flag("--markdown", "Write Markdown instead of JSON Lines.")] = False,
    output: Annotated[
        str | None, option("FILE", "Output file. Default: stdout.", "-o", "--output", parser=file_name)
    ] = None,
) -> None:
    """Write the log of a session as JSON Lines or Markdown."""
    media_type: Literal["application/jsonl", "text/markdown"] = "text/markdown" if markdown else "application/jsonl"
    found_id = find.session_id(client, session_id)
    download_to(output or "-", "Exporting", partial(client.export_session, found_id, media_type=media_type))


@command(app)
def discard(
    client: Client,
    session_id: SessionId,
    input_id: Annotated[UUID, argument("INPUT", "ID of the input, as in the log.", parser=uuid)],
) -> None:
    """Withdraw an unread input, or drop one whose run failed."""
    client.discard_input(find.session_id(client, session_id), input_id)
    say(f"discarded {input_id}")


def _print_session(client: Client, session: SessionBody, last: list[RunBody]) -> None:
    settings = {
        "temperature": session.settings.temperature,
        "max output tokens": session.settings.max_output_tokens,
        "reasoning effort": session.settings.reasoning_effort,
    }
    print_facts(
        [
            ("session", session.id),
            ("title", session.title),
            ("agent", _agent_text(session)),
            ("set here", ", ".join(session.overrides)),
            ("model", _model(session)),
            ("fallback models", "\n".join(session.fallback_models)),
            ("settings", "\n".join(f"{name}: {value}" for name, value in settings.items() if value is not None)),
            ("sandbox", "on" if session.sandbox is not None else "off"),
            ("waiting for", runs.waiting_text(client, last)),
            ("tokens", tokens_text(session.usage)),
            ("cost", cost_text(session.usage.cost_usd) if last else None),
            ("limits", _limits_text(session)),
            ("policy", "\n".join(f"{tool}: {rule}" for tool, rule in session.tool_policy.items())),
            ("client tools", "\n".join(tool.name for tool in session.client_tools)),
            ("output schema", None if session.output_schema is None else json_text(session.output_schema)),
            ("instructions", session.instructions),
            ("skills", "\n".join(_skill_text(client, one) for one in session.skills)),
            ("mcp servers", "\n".join(_mcp_server_name(client, one) for one in session.mcp_servers)),
            ("created", created_text(session)),
            ("forked from", None if session.forked_from is None else session.forked_from.session_id),
            ("archived", session.archived_at),
        ]
    )
    say("")
    empty = "No runs yet." if session.forked_from is None else "No runs since the fork."
    print_table(runs.COLUMNS, map(runs.row, last), empty=empty)


def _agent_text(session: SessionBody) -> str | None:
    if session.agent is None:
        return None
    if session.agent.version is not None:
        return f"{session.agent.name} version {session.agent.version}"
    return f"{session.agent.name} (now version {session.agent.current_version})"


def _limits_text(session: SessionBody) -> str:
    lines = []
    for scope, limit in (("run", session.limits.run), ("session", session.limits.session)):
        found = [] if limit.max_cost_usd is None else [cost_text(limit.max_cost_usd)]
        found += [] if limit.max_tokens is None else [f"{limit.max_tokens:,} tokens"]
        if found:
            lines.append(f"{scope}: {', '.join(found)}")
    return "\n".join(lines)


def _mcp_server_name(client: Client, server_id: UUID) -> str:
    try:
        return client.get_mcp_server(server_id).name
    except NotFound:
        return f"{server_id} (removed)"
    except Forbidden:
        # A session token cannot read MCP servers.
        return str(server_id)


def _skill_text(client: Client, used: SessionSkill) -> str:
    version = f"@{used.version}" if used.version else ""
    try:
        return f"{client.get_skill(used.skill_id).name}{version}"
    except (Forbidden, NotFound):
        # A session token cannot read skills.
        return f"{used.skill_id}{version}"


def _row(one: ListedSession) -> list[object]:
    last_run = None if one.last_run is None else one.last_run.state
    return [one.id, cell(one.title or ""), _model(one), last_run, one.last_activity_at]


def _model(session: SessionSummary) -> str:
    return session.model or f"Default ({session.effective_model})"
