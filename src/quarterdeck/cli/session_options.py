"""Options of `qd sessions create` and `edit`."""

from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
import typer
from msgspec import UNSET, UnsetType

from quarterdeck.cli import completion, find
from quarterdeck.cli.errors import CliError
from quarterdeck.cli.options import (
    check_either,
    choice,
    file_name,
    flag,
    json_object,
    line,
    option,
    or_unset,
    read_file,
    tokens_count,
    usd,
)
from quarterdeck.cli.output import cost_text
from quarterdeck.client import Client, Forbidden, NotFound
from quarterdeck.client.models import (
    AgentReference,
    ConfigurationField,
    SandboxOptions,
    SessionBody,
    SessionSkill,
    SetLimit,
    SetLimits,
    ToolRule,
    ToolSpec,
)

_EFFORTS = ("low", "medium", "high")


def _rule(given: str) -> tuple[str, ToolRule]:
    tool, _, rule = given.rpartition("=")
    if not tool or rule not in list(ToolRule):
        raise typer.BadParameter(f"{given!r} is not TOOL=allow, TOOL=ask or TOOL=deny")
    return tool, ToolRule(rule)


def _temperature(given: str) -> float:
    with suppress(ValueError):
        if 0 <= (found := float(given)) <= 2:
            return found
    raise typer.BadParameter(f"{given!r} is not a number from 0 to 2")


Title = Annotated[str | None, option("TITLE", "Title of the session.", parser=line)]
Model = Annotated[
    str | None,
    option("MODEL", "provider:name, or demo. Default: set by the server.", parser=line, complete=completion.models),
]
Instructions = Annotated[str | None, option("TEXT", "Instructions for the agent.")]
InstructionsFile = Annotated[str | None, option("FILE", "Read the instructions from a file.", parser=file_name)]
Skills = Annotated[
    list[str] | None,
    option("SKILL[@VERSION]", "ID or name of a skill. Can be repeated.", "--skill", complete=completion.skills),
]
Temperature = Annotated[float | None, option("NUMBER", "Temperature of the model, from 0 to 2.", parser=_temperature)]
MaxOutputTokens = Annotated[
    int | None, option("COUNT", "Maximum tokens of one answer, including reasoning.", parser=tokens_count)
]
Effort = Annotated[
    Literal["low", "medium", "high"] | None, choice("EFFORT", "Reasoning effort: low, medium or high.", values=_EFFORTS)
]
Policy = Annotated[
    list[Any] | None,
    option(
        "TOOL=RULE",
        "Rule for a tool or a prefix: bash=ask or crm_*=deny. Rules are allow, ask and deny. Can be repeated.",
        "--policy",
        parser=_rule,
    ),
]
ToolsFile = Annotated[
    str | None,
    option(
        "FILE",
        "JSON file with the client tools: a list of objects with name, description and parameters.",
        "--tools",
        parser=file_name,
    ),
]


def _json_schema(given: str) -> dict[str, Any]:
    return json_object(given if given.lstrip().startswith("{") else read_file(file_name(given)))


OutputSchema = Annotated[
    dict[str, Any] | None,
    option(
        "SCHEMA",
        "JSON Schema that answers must match: JSON, or the name of a file with it.",
        "--output-schema",
        parser=_json_schema,
    ),
]
MaxCost = Annotated[float | None, option("USD", "Maximum cost of one run.", "--max-cost-usd", parser=usd)]
MaxTokens = Annotated[int | None, option("COUNT", "Maximum tokens of one run.", "--max-tokens", parser=tokens_count)]
SessionMaxCost = Annotated[
    float | None, option("USD", "Maximum cost of all runs together.", "--session-max-cost-usd", parser=usd)
]
SessionMaxTokens = Annotated[
    int | None, option("COUNT", "Maximum tokens of all runs together.", "--session-max-tokens", parser=tokens_count)
]


Sandbox = Annotated[
    bool | None,
    flag("--sandbox/--no-sandbox", "Whether the agent has files and a shell. Default: set by the server."),
]


def sandbox(given: bool | None) -> SandboxOptions | UnsetType | None:
    if given is None:
        return UNSET
    return SandboxOptions() if given else None


Inherit = Annotated[
    list[Any] | None,
    choice(
        "FIELD",
        "Take a field from the agent again, such as model. Can be repeated.",
        "--inherit",
        values=ConfigurationField,
    ),
]
McpServers = Annotated[
    list[str] | None,
    option("SERVER", "ID or name of an MCP server. Can be repeated.", "--mcp-server", complete=completion.mcp_servers),
]


def split_version(given: str) -> tuple[str, int | None]:
    """NAME or NAME@VERSION."""
    name, at, version = given.rpartition("@")
    is_number = version.isascii() and version.isdigit() and len(version) < 10 and int(version) > 0
    return (name, int(version)) if at and is_number else (given, None)


def agent(client: Client, given: str) -> AgentReference:
    name, version = split_version(given)
    return AgentReference(find.agent(client, name).id, version)


def skill(client: Client, given: str) -> SessionSkill:
    name, version = split_version(given)
    return SessionSkill(find.skill(client, name).id, version)


def instructions_text(given: str | None, file: str | None) -> str | None:
    check_either("--instructions", given, "--instructions-file", file)
    return given if file is None else read_file(file)


def mcp_servers_text(client: Client, session: SessionBody) -> str:
    def name(server_id: UUID) -> str:
        try:
            return client.get_mcp_server(server_id).name
        except NotFound:
            return f"{server_id} (removed)"
        except Forbidden:
            # A session token cannot read MCP servers.
            return str(server_id)

    return "\n".join(name(one) for one in session.mcp_servers)


def agent_text(session: SessionBody) -> str | None:
    if session.agent is None:
        return None
    if session.agent.version is not None:
        return f"{session.agent.name} version {session.agent.version}"
    return f"{session.agent.name} (now version {session.agent.current_version})"


def client_tools(file: str) -> list[ToolSpec]:
    try:
        return msgspec.json.decode(Path(file).read_bytes(), type=list[ToolSpec])
    except OSError as error:
        raise CliError(f"{file}: {error.strerror}") from None
    except msgspec.DecodeError as error:
        raise CliError(f"{file} is not a JSON list of tools with name, description and parameters: {error}") from None


class GivenLimits(msgspec.Struct, frozen=True):
    """None: not given."""

    run_cost: float | None
    run_tokens: int | None
    session_cost: float | None
    session_tokens: int | None

    @property
    def is_empty(self) -> bool:
        return all(value is None for value in msgspec.structs.astuple(self))

    def body(self, *, remove_others: bool = False) -> SetLimits:
        def limit(cost: float | None, tokens: int | None) -> SetLimit:
            return SetLimit(cost, tokens) if remove_others else SetLimit(or_unset(cost), or_unset(tokens))

        return SetLimits(limit(self.run_cost, self.run_tokens), limit(self.session_cost, self.session_tokens))


def limits_text(session: SessionBody) -> str:
    lines = []
    for scope, limit in (("run", session.limits.run), ("session", session.limits.session)):
        found = [] if limit.max_cost_usd is None else [cost_text(limit.max_cost_usd)]
        found += [] if limit.max_tokens is None else [f"{limit.max_tokens:,} tokens"]
        if found:
            lines.append(f"{scope}: {', '.join(found)}")
    return "\n".join(lines)
