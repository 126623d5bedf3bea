"""`qd sessions`."""

from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import UNSET

from quarterdeck.cli import find, runs, session_edit, session_history, session_options
from quarterdeck.cli.arguments import AgentOption, SessionId
from quarterdeck.cli.connection import open_client
from quarterdeck.cli.options import AsJson, Limit, Profile, Yes, confirm, text
from quarterdeck.cli.output import (
    actor_name,
    cell,
    date_text,
    json_text,
    print_facts,
    print_json,
    print_list,
    print_table,
    say,
)
from quarterdeck.cli.session_options import (
    Effort,
    GivenLimits,
    Instructions,
    InstructionsFile,
    MaxCost,
    MaxOutputTokens,
    MaxTokens,
    McpServers,
    Model,
    OutputSchema,
    Policy,
    SessionMaxCost,
    SessionMaxTokens,
    Skills,
    Temperature,
    Title,
    ToolsFile,
    Workspace,
)

if TYPE_CHECKING:
    from quarterdeck.client import Client
    from quarterdeck.client.models import (
        ListedSession,
        ModelOptions,
        SessionSkill,
        SessionSummary,
    )

app = typer.Typer(rich_markup_mode=None, help="Manage sessions.")


class SearchIn(StrEnum):
    TITLES = "titles"
    CONVERSATIONS = "conversations"


_LAST_RUNS = 5


@app.command("list")
def list_(
    archived: Annotated[bool, typer.Option("--archived", help="List archived sessions.")] = False,
    search: Annotated[
        str | None,
        typer.Option(parser=text, metavar="TEXT", help="Only sessions whose title contains TEXT. See also --in."),
    ] = None,
    search_in: Annotated[
        SearchIn, typer.Option("--in", metavar="PLACE", help="Where to search: titles or conversations.")
    ] = SearchIn.TITLES,
    limit: Limit = 50,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """List sessions, newest first."""
    with open_client(profile) as client:
        print_list(
            client.iter_sessions(archived=archived, search=search, in_=search_in.value if search else None),
            limit,
            ("ID", "TITLE", "MODEL", "LAST RUN", "LAST ACTIVITY"),
            _row,
            as_json=as_json,
            empty="No sessions found." if search else "No archived sessions." if archived else "No sessions yet.",
        )


@app.command()
def create(
    agent: AgentOption = None,
    title: Title = None,
    model: Model = None,
    instructions: Instructions = None,
    instructions_file: InstructionsFile = None,
    skill: Skills = None,
    mcp_server: McpServers = None,
    temperature: Temperature = None,
    max_output_tokens: MaxOutputTokens = None,
    reasoning_effort: Effort = None,
    workspace: Workspace = None,
    policy: Policy = None,
    tools: ToolsFile = None,
    output_schema: OutputSchema = None,
    max_cost_usd: MaxCost = None,
    max_tokens: MaxTokens = None,
    session_max_cost_usd: SessionMaxCost = None,
    session_max_tokens: SessionMaxTokens = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Create a session and print its ID. With --agent, other options override the agent."""
    from quarterdeck.client.models import ModelOptions

    limits = GivenLimits(max_cost_usd, max_tokens, session_max_cost_usd, session_max_tokens)
    client_tools = UNSET if tools is None else session_options.client_tools(tools)
    instructions = session_options.instructions_text(instructions, instructions_file)
    settings = ModelOptions(temperature, max_output_tokens, reasoning_effort.value if reasoning_effort else None)
    with open_client(profile) as client:
        session = client.create_session(
            title=title,
            agent=UNSET if agent is None else session_options.agent(client, agent),
            # What is not given comes from the agent.
            model=session_options.or_unset(model),
            instructions=session_options.or_unset(instructions),
            skills=[session_options.skill(client, each) for each in skill] if skill else UNSET,
            mcp_servers=session_options.mcp_servers(client, mcp_server) if mcp_server else UNSET,
            settings=UNSET if settings == ModelOptions() else settings,
            workspace=session_options.workspace(workspace),
            tool_policy=session_options.policy(policy) if policy else UNSET,
            client_tools=client_tools,
            output_schema=UNSET if output_schema is None else output_schema,
            limits=UNSET if limits.is_empty else limits.body(),
        )
    if as_json:
        print_json(session)
    else:
        say(str(session.id))


@app.command()
def show(session_id: SessionId, profile: Profile = None, as_json: AsJson = False) -> None:
    """Show a session and its last runs."""
    from quarterdeck.cli.action_text import cost_text, tokens_text

    with open_client(profile) as client:
        session = client.get_session(find.session_id(client, session_id))
        last = list(islice(client.iter_session_runs(session.id, page_size=_LAST_RUNS), _LAST_RUNS))
        used = [] if as_json else [_skill_text(client, one) for one in session.skills]
        servers = [] if as_json else session_options.mcp_servers_text(client, session)
        waiting = None if as_json else runs.waiting_text(client, last)
    if as_json:
        print_json({"session": session, "runs": last})
        return
    print_facts(
        [
            ("session", str(session.id)),
            ("title", session.title),
            ("agent", session_options.agent_text(session)),
            ("set here", ", ".join(session.overrides) or None),
            ("model", _model(session)),
            ("settings", "\n".join(_settings(session.settings)) or None),
            ("workspace", session.workspace),
            ("waiting for", waiting),
            ("tokens", tokens_text(session.usage)),
            ("cost", cost_text(session.usage.cost_usd) if last else None),
            ("limits", session_options.limits_text(session)),
            ("policy", session_options.policy_text(session)),
            ("client tools", session_options.tools_text(session)),
            ("output schema", None if session.output_schema is None else json_text(session.output_schema)),
            ("instructions", session.instructions),
            ("skills", "\n".join(used) or None),
            ("mcp servers", "\n".join(servers) or None),
            ("created", f"{date_text(session.created_at)} by {actor_name(session.created_by)}"),
            ("forked from", None if session.forked_from is None else str(session.forked_from.session_id)),
            ("archived", date_text(session.archived_at) or None),
        ]
    )
    say("")
    empty = "No runs yet." if session.forked_from is None else "No runs since the fork."
    print_table(runs.COLUMNS, map(runs.row, last), empty=empty)


app.command()(session_edit.rename)
app.command()(session_edit.edit)


@app.command()
def archive(session_id: SessionId, profile: Profile = None) -> None:
    """Archive a session. It then accepts no input."""
    with open_client(profile) as client:
        changed = client.change_session(find.session_id(client, session_id), archived=True)
    say(f"archived {changed.id}")


@app.command()
def unarchive(session_id: SessionId, profile: Profile = None) -> None:
    """Unarchive a session."""
    with open_client(profile) as client:
        changed = client.change_session(find.session_id(client, session_id), archived=False)
    say(f"unarchived {changed.id}")


@app.command()
def delete(session_id: SessionId, yes: Yes = False, profile: Profile = None) -> None:
    """Delete a session with its log, runs and tokens. This can't be undone."""
    with open_client(profile) as client:
        found_id = find.session_id(client, session_id)
        if not yes:
            title = client.get_session(found_id).title
            confirm(f"Delete {title or found_id} and its whole log?", yes=yes)
        client.delete_session(found_id)
    say(f"deleted {found_id}")


app.command()(session_history.fork)
app.command()(session_history.export)
app.command()(session_history.discard)


def _settings(settings: "ModelOptions") -> list[str]:
    values = {
        "temperature": settings.temperature,
        "max output tokens": settings.max_output_tokens,
        "reasoning effort": settings.reasoning_effort,
    }
    return [f"{name}: {value}" for name, value in values.items() if value is not None]


def _row(session: "ListedSession") -> list[str]:
    return [
        str(session.id),
        cell(session.title or ""),
        _model(session),
        "" if session.last_run is None else session.last_run.state.value,
        date_text(session.last_activity_at),
    ]


def _model(session: "SessionSummary") -> str:
    return session.model or f"Default ({session.effective_model})"


def _skill_text(client: "Client", used: "SessionSkill") -> str:
    from quarterdeck.client import Forbidden, NotFound

    version = f"@{used.version}" if used.version else ""
    try:
        return f"{client.get_skill(used.skill_id).name}{version}"
    except (Forbidden, NotFound):
        # A session token cannot read skills.
        return f"{used.skill_id}{version}"
