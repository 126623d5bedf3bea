"""`qd sessions rename` and `qd sessions edit`."""

from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import UNSET, UnsetType

from quarterdeck.cli import find, session_options
from quarterdeck.cli.arguments import AgentOption, SessionId
from quarterdeck.cli.connection import open_client
from quarterdeck.cli.exit_codes import UsageError
from quarterdeck.cli.options import AsJson, Profile, line
from quarterdeck.cli.output import print_json, say
from quarterdeck.cli.session_options import (
    Effort,
    GivenLimits,
    Inherit,
    Instructions,
    InstructionsFile,
    MaxCost,
    MaxOutputTokens,
    MaxTokens,
    McpServers,
    Model,
    OutputSchema,
    Policy,
    ReasoningEffort,
    SessionMaxCost,
    SessionMaxTokens,
    Skills,
    Temperature,
    Title,
    ToolsFile,
    Workspace,
)

if TYPE_CHECKING:
    from quarterdeck.client.models import ChangeSettings, SessionBody

NoAgent = Annotated[bool, typer.Option("--no-agent", help="Remove the agent. The session keeps its current values.")]
DefaultModel = Annotated[bool, typer.Option("--default-model", help="Use the default model of the server again.")]
DefaultSettings = Annotated[
    bool,
    typer.Option(
        "--default-settings", help="Reset temperature, output tokens and effort before other options are applied."
    ),
]


def rename(
    session_id: SessionId,
    title: Annotated[str, typer.Argument(parser=line, metavar="TITLE", help="The new title.")],
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Change the title of a session."""
    with open_client(profile) as client:
        changed = client.change_session(find.session_id(client, session_id), title=title)
    _show(changed, as_json=as_json)


def edit(
    session_id: SessionId,
    agent: AgentOption = None,
    no_agent: NoAgent = False,
    inherit: Inherit = None,
    title: Title = None,
    model: Model = None,
    default_model: DefaultModel = False,
    instructions: Instructions = None,
    instructions_file: InstructionsFile = None,
    skill: Skills = None,
    no_skills: Annotated[bool, typer.Option("--no-skills", help="Remove all skills.")] = False,
    mcp_server: McpServers = None,
    no_mcp_servers: Annotated[bool, typer.Option("--no-mcp-servers", help="Remove all MCP servers.")] = False,
    temperature: Temperature = None,
    max_output_tokens: MaxOutputTokens = None,
    reasoning_effort: Effort = None,
    default_settings: DefaultSettings = False,
    workspace: Workspace = None,
    policy: Policy = None,
    no_policy: Annotated[bool, typer.Option("--no-policy", help="Remove the tool policy.")] = False,
    tools: ToolsFile = None,
    no_tools: Annotated[bool, typer.Option("--no-tools", help="Remove all client tools.")] = False,
    output_schema: OutputSchema = None,
    no_output_schema: Annotated[bool, typer.Option("--no-output-schema", help="Answer in plain text again.")] = False,
    max_cost_usd: MaxCost = None,
    max_tokens: MaxTokens = None,
    session_max_cost_usd: SessionMaxCost = None,
    session_max_tokens: SessionMaxTokens = None,
    no_limits: Annotated[bool, typer.Option("--no-limits", help="Remove all limits that are not given.")] = False,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Change settings of a session, from its next run on. Options that can be repeated replace the whole list."""
    _either(("--agent", agent), ("--no-agent", no_agent))
    _either(("--model", model), ("--default-model", default_model))
    _either(("--skill", skill), ("--no-skills", no_skills))
    _either(("--mcp-server", mcp_server), ("--no-mcp-servers", no_mcp_servers))
    _either(("--policy", policy), ("--no-policy", no_policy))
    _either(("--tools", tools), ("--no-tools", no_tools))
    _either(("--output-schema", output_schema is not None), ("--no-output-schema", no_output_schema))
    instructions = session_options.instructions_text(instructions, instructions_file)
    settings = _settings(temperature, max_output_tokens, reasoning_effort, reset=default_settings)
    limits = GivenLimits(max_cost_usd, max_tokens, session_max_cost_usd, session_max_tokens)
    client_tools = UNSET if tools is None else session_options.client_tools(tools)
    asked = (agent, inherit, title, model, instructions, skill, mcp_server, workspace, policy, tools, output_schema)
    resets = (no_agent, default_model, no_skills, no_mcp_servers, no_policy, no_tools, no_output_schema, no_limits)
    if settings is UNSET and limits.is_empty and not any(resets) and all(value is None for value in asked):
        raise UsageError("Nothing to change. See `qd sessions edit --help`.")
    with open_client(profile) as client:
        skills = [session_options.skill(client, each) for each in skill or []]
        mcp_servers = session_options.mcp_servers(client, mcp_server or [])
        used_agent = UNSET if agent is None else session_options.agent(client, agent)
        changed = client.change_session(
            find.session_id(client, session_id),
            agent=None if no_agent else used_agent,
            inherit=inherit or UNSET,
            title=session_options.or_unset(title),
            model=None if default_model else session_options.or_unset(model),
            instructions=session_options.or_unset(instructions),
            skills=skills if skill or no_skills else UNSET,
            mcp_servers=mcp_servers if mcp_server or no_mcp_servers else UNSET,
            settings=settings,
            workspace=session_options.workspace(workspace),
            tool_policy=session_options.policy(policy or []) if policy or no_policy else UNSET,
            client_tools=[] if no_tools else client_tools,
            output_schema=UNSET if output_schema is None and not no_output_schema else output_schema,
            limits=limits.body(remove_others=no_limits) if no_limits or not limits.is_empty else UNSET,
        )
    _show(changed, as_json=as_json)


def _settings(
    temperature: float | None, max_output_tokens: int | None, effort: ReasoningEffort | None, *, reset: bool
) -> "ChangeSettings | UnsetType":
    """UNSET if nothing is given: settings that are sent no longer follow the agent."""
    from quarterdeck.client.models import ChangeSettings

    unset = None if reset else UNSET
    settings = ChangeSettings(
        unset if temperature is None else temperature,
        unset if max_output_tokens is None else max_output_tokens,
        unset if effort is None else effort.value,
    )
    return UNSET if settings == ChangeSettings() else settings


def _either(one: tuple[str, object], other: tuple[str, object]) -> None:
    if one[1] and other[1]:
        raise UsageError(f"Use either {one[0]} or {other[0]}")


def _show(session: "SessionBody", *, as_json: bool) -> None:
    if as_json:
        print_json(session)
    else:
        say(f"changed {session.id}")
