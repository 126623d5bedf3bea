"""`qd sessions`."""

from itertools import islice
from typing import Annotated, Literal
from uuid import UUID

import typer
from msgspec import UNSET, UnsetType

from quarterdeck.cli import find, runs, session_options
from quarterdeck.cli.action_text import tokens_text
from quarterdeck.cli.connection import open_client
from quarterdeck.cli.errors import CliError
from quarterdeck.cli.options import (
    AgentOption,
    AsJson,
    Limit,
    Profile,
    SessionId,
    Yes,
    argument,
    check_either,
    choice,
    confirm,
    file_name,
    flag,
    line,
    option,
    or_unset,
    uuid,
    whole_number,
)
from quarterdeck.cli.output import (
    cell,
    cost_text,
    created_text,
    document_output,
    json_text,
    print_facts,
    print_json,
    print_list,
    print_result,
    print_table,
    say,
    size,
)
from quarterdeck.client import Client, Forbidden, NotFound
from quarterdeck.client.models import (
    ChangeSettings,
    ListedSession,
    ModelOptions,
    SessionBody,
    SessionSkill,
    SessionSummary,
)

app = typer.Typer(rich_markup_mode=None, help="Manage sessions.")

_LAST_RUNS = 5
_PLACES = ("titles", "conversations")


@app.command("list")
def list_(
    archived: Annotated[bool, flag("--archived", "List archived sessions.")] = False,
    search: Annotated[str | None, option("TEXT", "Only sessions whose title contains TEXT. See also --in.")] = None,
    search_in: Annotated[
        Literal["titles", "conversations"],
        choice("PLACE", "Where to search: titles or conversations.", "--in", values=_PLACES),
    ] = "titles",
    limit: Limit = 50,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """List sessions, newest first."""
    with open_client(profile) as client:
        print_list(
            client.iter_sessions(archived=archived, search=search, in_=search_in if search else None),
            ("ID", "TITLE", "MODEL", "LAST RUN", "LAST ACTIVITY"),
            _row,
            "No sessions found." if search else "No archived sessions." if archived else "No sessions yet.",
            limit,
            as_json=as_json,
        )


@app.command()
def create(
    agent: AgentOption = None,
    title: session_options.Title = None,
    model: session_options.Model = None,
    instructions: session_options.Instructions = None,
    instructions_file: session_options.InstructionsFile = None,
    skill: session_options.Skills = None,
    mcp_server: session_options.McpServers = None,
    temperature: session_options.Temperature = None,
    max_output_tokens: session_options.MaxOutputTokens = None,
    reasoning_effort: session_options.Effort = None,
    sandbox: session_options.Sandbox = None,
    policy: session_options.Policy = None,
    tools: session_options.ToolsFile = None,
    output_schema: session_options.OutputSchema = None,
    max_cost_usd: session_options.MaxCost = None,
    max_tokens: session_options.MaxTokens = None,
    session_max_cost_usd: session_options.SessionMaxCost = None,
    session_max_tokens: session_options.SessionMaxTokens = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Create a session and print its ID. With --agent, other options override the agent."""
    limits = session_options.GivenLimits(max_cost_usd, max_tokens, session_max_cost_usd, session_max_tokens)
    client_tools = UNSET if tools is None else session_options.client_tools(tools)
    instructions = session_options.instructions_text(instructions, instructions_file)
    settings = ModelOptions(temperature, max_output_tokens, reasoning_effort)
    with open_client(profile) as client:
        session = client.create_session(
            title=title,
            agent=UNSET if agent is None else session_options.agent(client, agent),
            # What is not given comes from the agent.
            model=or_unset(model),
            instructions=or_unset(instructions),
            skills=[session_options.skill(client, each) for each in skill] if skill else UNSET,
            mcp_servers=[find.mcp_server_id(client, each) for each in mcp_server] if mcp_server else UNSET,
            settings=UNSET if settings == ModelOptions() else settings,
            sandbox=session_options.sandbox(sandbox),
            tool_policy=dict(policy) if policy else UNSET,
            client_tools=client_tools,
            output_schema=UNSET if output_schema is None else output_schema,
            limits=UNSET if limits.is_empty else limits.body(),
        )
    print_result(session, str(session.id), as_json=as_json)


@app.command()
def show(session_id: SessionId, profile: Profile = None, as_json: AsJson = False) -> None:
    """Show a session and its last runs."""
    with open_client(profile) as client:
        session = client.get_session(find.session_id(client, session_id))
        last = list(islice(client.iter_session_runs(session.id, limit=_LAST_RUNS), _LAST_RUNS))
        used = [] if as_json else [_skill_text(client, one) for one in session.skills]
        servers = None if as_json else session_options.mcp_servers_text(client, session)
        waiting = None if as_json else runs.waiting_text(client, last)
    if as_json:
        print_json({"session": session, "runs": last})
        return
    print_facts(
        [
            ("session", session.id),
            ("title", session.title),
            ("agent", session_options.agent_text(session)),
            ("set here", ", ".join(session.overrides) or None),
            ("model", _model(session)),
            ("settings", "\n".join(_settings(session.settings)) or None),
            ("sandbox", "on" if session.sandbox is not None else "off"),
            ("waiting for", waiting),
            ("tokens", tokens_text(session.usage)),
            ("cost", cost_text(session.usage.cost_usd) if last else None),
            ("limits", session_options.limits_text(session)),
            ("policy", "\n".join(f"{tool}: {rule}" for tool, rule in session.tool_policy.items())),
            ("client tools", "\n".join(tool.name for tool in session.client_tools)),
            ("output schema", None if session.output_schema is None else json_text(session.output_schema)),
            ("instructions", session.instructions),
            ("skills", "\n".join(used) or None),
            ("mcp servers", servers),
            ("created", created_text(session)),
            ("forked from", None if session.forked_from is None else str(session.forked_from.session_id)),
            ("archived", session.archived_at),
        ]
    )
    say("")
    empty = "No runs yet." if session.forked_from is None else "No runs since the fork."
    print_table(runs.COLUMNS, map(runs.row, last), empty=empty)


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


NoAgent = Annotated[bool, flag("--no-agent", "Remove the agent. The session keeps its current values.")]
DefaultModel = Annotated[bool, flag("--default-model", "Use the default model of the server again.")]
DefaultSettings = Annotated[
    bool, flag("--default-settings", "Reset temperature, output tokens and effort before other options are applied.")
]


@app.command()
def rename(
    session_id: SessionId,
    title: Annotated[str, argument("TITLE", "The new title.", parser=line)],
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Change the title of a session."""
    with open_client(profile) as client:
        changed = client.change_session(find.session_id(client, session_id), title=title)
    _show(changed, as_json=as_json)


@app.command()
def edit(
    session_id: SessionId,
    agent: AgentOption = None,
    no_agent: NoAgent = False,
    inherit: session_options.Inherit = None,
    title: session_options.Title = None,
    model: session_options.Model = None,
    default_model: DefaultModel = False,
    instructions: session_options.Instructions = None,
    instructions_file: session_options.InstructionsFile = None,
    skill: session_options.Skills = None,
    no_skills: Annotated[bool, flag("--no-skills", "Remove all skills.")] = False,
    mcp_server: session_options.McpServers = None,
    no_mcp_servers: Annotated[bool, flag("--no-mcp-servers", "Remove all MCP servers.")] = False,
    temperature: session_options.Temperature = None,
    max_output_tokens: session_options.MaxOutputTokens = None,
    reasoning_effort: session_options.Effort = None,
    default_settings: DefaultSettings = False,
    sandbox: session_options.Sandbox = None,
    policy: session_options.Policy = None,
    no_policy: Annotated[bool, flag("--no-policy", "Remove the tool policy.")] = False,
    tools: session_options.ToolsFile = None,
    no_tools: Annotated[bool, flag("--no-tools", "Remove all client tools.")] = False,
    output_schema: session_options.OutputSchema = None,
    no_output_schema: Annotated[bool, flag("--no-output-schema", "Answer in plain text again.")] = False,
    max_cost_usd: session_options.MaxCost = None,
    max_tokens: session_options.MaxTokens = None,
    session_max_cost_usd: session_options.SessionMaxCost = None,
    session_max_tokens: session_options.SessionMaxTokens = None,
    no_limits: Annotated[bool, flag("--no-limits", "Remove all limits that are not given.")] = False,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Change settings of a session, from its next run on. Options that can be repeated replace the whole list."""
    check_either("--agent", agent, "--no-agent", no_agent)
    check_either("--model", model, "--default-model", default_model)
    check_either("--skill", skill, "--no-skills", no_skills)
    check_either("--mcp-server", mcp_server, "--no-mcp-servers", no_mcp_servers)
    check_either("--policy", policy, "--no-policy", no_policy)
    check_either("--tools", tools, "--no-tools", no_tools)
    check_either("--output-schema", output_schema is not None, "--no-output-schema", no_output_schema)
    instructions = session_options.instructions_text(instructions, instructions_file)
    settings = _session_edit_settings(temperature, max_output_tokens, reasoning_effort, reset=default_settings)
    limits = session_options.GivenLimits(max_cost_usd, max_tokens, session_max_cost_usd, session_max_tokens)
    client_tools = UNSET if tools is None else session_options.client_tools(tools)
    asked = (agent, inherit, title, model, instructions, skill, mcp_server, sandbox, policy, tools, output_schema)
    resets = (no_agent, default_model, no_skills, no_mcp_servers, no_policy, no_tools, no_output_schema, no_limits)
    if settings is UNSET and limits.is_empty and not any(resets) and all(value is None for value in asked):
        raise CliError("Nothing to change. See `qd sessions edit --help`.")
    with open_client(profile) as client:
        skills = [session_options.skill(client, each) for each in skill or []]
        mcp_servers: list[UUID | str] = [find.mcp_server_id(client, each) for each in mcp_server or []]
        used_agent = UNSET if agent is None else session_options.agent(client, agent)
        changed = client.change_session(
            find.session_id(client, session_id),
            agent=None if no_agent else used_agent,
            inherit=inherit or UNSET,
            title=or_unset(title),
            model=None if default_model else or_unset(model),
            instructions=or_unset(instructions),
            skills=skills if skill or no_skills else UNSET,
            mcp_servers=mcp_servers if mcp_server or no_mcp_servers else UNSET,
            settings=settings,
            sandbox=session_options.sandbox(sandbox),
            tool_policy=dict(policy or []) if policy or no_policy else UNSET,
            client_tools=[] if no_tools else client_tools,
            output_schema=UNSET if output_schema is None and not no_output_schema else output_schema,
            limits=limits.body(remove_others=no_limits) if no_limits or not limits.is_empty else UNSET,
        )
    _show(changed, as_json=as_json)


def _session_edit_settings(
    temperature: float | None,
    max_output_tokens: int | None,
    effort: Literal["low", "medium", "high"] | None,
    *,
    reset: bool,
) -> ChangeSettings | UnsetType:
    """UNSET if nothing is given: settings that are sent no longer follow the agent."""
    unset = None if reset else UNSET
    settings = ChangeSettings(
        unset if temperature is None else temperature,
        unset if max_output_tokens is None else max_output_tokens,
        unset if effort is None else effort,
    )
    return UNSET if settings == ChangeSettings() else settings


def _show(session: SessionBody, *, as_json: bool) -> None:
    print_result(session, f"changed {session.id}", as_json=as_json)


InputId = Annotated[UUID, argument("INPUT", "ID of the input, as in the log.", parser=uuid)]


@app.command()
def fork(
    session_id: SessionId,
    before: Annotated[
        int | None, option("EVENT", "Copy only the events before this one.", parser=whole_number(1, 2**63 - 1))
    ] = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Copy a session with its history and print the new ID."""
    with open_client(profile) as client:
        session = client.fork_session(find.session_id(client, session_id), before_event_id=before)
    print_result(session, str(session.id), as_json=as_json)


@app.command()
def export(
    session_id: SessionId,
    markdown: Annotated[bool, flag("--markdown", "Write Markdown instead of JSON Lines.")] = False,
    output: Annotated[
        str | None, option("FILE", "Output file. Default: stdout.", "-o", "--output", parser=file_name)
    ] = None,
    profile: Profile = None,
) -> None:
    """Write the log of a session as JSON Lines or Markdown."""
    media_type: Literal["application/jsonl", "text/markdown"] = "text/markdown" if markdown else "application/jsonl"
    with open_client(profile) as client:
        found_id = find.session_id(client, session_id)
        if output is None or output == "-":
            with document_output() as out:
                client.export_session(found_id, out, media_type=media_type)
            return
        try:
            count = client.export_session(found_id, output, media_type=media_type)
        except OSError as error:
            raise CliError(f"{output}: {error.strerror}") from None
    say(f"wrote {output} ({size(count)})")


@app.command()
def discard(session_id: SessionId, input_id: InputId, profile: Profile = None) -> None:
    """Withdraw an unread input, or drop one whose run failed."""
    with open_client(profile) as client:
        client.discard_input(find.session_id(client, session_id), input_id)
    say(f"discarded {input_id}")


def _settings(settings: ModelOptions) -> list[str]:
    values = {
        "temperature": settings.temperature,
        "max output tokens": settings.max_output_tokens,
        "reasoning effort": settings.reasoning_effort,
    }
    return [f"{name}: {value}" for name, value in values.items() if value is not None]


def _row(session: ListedSession) -> list[object]:
    return [
        session.id,
        cell(session.title or ""),
        _model(session),
        "" if session.last_run is None else session.last_run.state.value,
        session.last_activity_at,
    ]


def _model(session: SessionSummary) -> str:
    return session.model or f"Default ({session.effective_model})"


def _skill_text(client: Client, used: SessionSkill) -> str:
    version = f"@{used.version}" if used.version else ""
    try:
        return f"{client.get_skill(used.skill_id).name}{version}"
    except (Forbidden, NotFound):
        # A session token cannot read skills.
        return f"{used.skill_id}{version}"
