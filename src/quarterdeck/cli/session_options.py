"""Options of `qd sessions create` and `edit`."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import typer
from msgspec import UNSET, UnsetType

from quarterdeck.cli import completion, find
from quarterdeck.cli.exit_codes import UsageError
from quarterdeck.cli.options import file_name, json_object, line, text, usd

if TYPE_CHECKING:
    from uuid import UUID

    from quarterdeck.client import Client
    from quarterdeck.client.models import (
        AgentReference,
        SessionBody,
        SessionSkill,
        SetLimits,
        ToolRule,
        ToolSpec,
        WorkspaceKind,
    )

_RULES = ("allow", "ask", "deny")
_MAX_TOKENS = 2**53


def _rule(given: str) -> tuple[str, str]:
    tool, equals, rule = given.rpartition("=")
    if not equals or not tool or rule not in _RULES:
        raise typer.BadParameter(f"{given!r} is not TOOL=allow, TOOL=ask or TOOL=deny")
    return tool, rule


def _tokens(given: str) -> int:
    if not (given.isascii() and given.isdigit() and 0 < int(given[:17]) <= _MAX_TOKENS and len(given) < 17):
        raise typer.BadParameter(f"{given!r} is not a number of tokens")
    return int(given)


class ReasoningEffort(StrEnum):
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


Title = Annotated[str | None, typer.Option(parser=line, metavar="TITLE", help="Title of the session.")]
Model = Annotated[
    str | None,
    typer.Option(
        parser=line,
        metavar="MODEL",
        help="provider:name, or demo. Default: set by the server.",
        autocompletion=completion.models,
    ),
]
Instructions = Annotated[str | None, typer.Option(parser=text, metavar="TEXT", help="Instructions for the agent.")]
InstructionsFile = Annotated[
    str | None, typer.Option(parser=file_name, metavar="FILE", help="Read the instructions from a file.")
]
Skills = Annotated[
    list[str] | None,
    typer.Option(
        "--skill",
        metavar="SKILL[@VERSION]",
        help="ID or name of a skill. Can be repeated.",
        autocompletion=completion.skills,
    ),
]
Temperature = Annotated[
    float | None, typer.Option(min=0, max=2, metavar="NUMBER", help="Temperature of the model, from 0 to 2.")
]
MaxOutputTokens = Annotated[
    int | None, typer.Option(min=1, metavar="COUNT", help="Maximum tokens of one answer, including reasoning.")
]
Effort = Annotated[
    ReasoningEffort | None, typer.Option(metavar="EFFORT", help="Reasoning effort: low, medium or high.")
]
Policy = Annotated[
    list[Any] | None,
    typer.Option(
        "--policy",
        parser=_rule,
        metavar="TOOL=RULE",
        help="Rule for a tool or a prefix: bash=ask or crm_*=deny. Rules are allow, ask and deny. Can be repeated.",
    ),
]
ToolsFile = Annotated[
    str | None,
    typer.Option(
        "--tools",
        parser=file_name,
        metavar="FILE",
        help="JSON file with the client tools: a list of objects with name, description and parameters.",
    ),
]


def _json_schema(given: str) -> dict[str, Any]:
    return json_object(given if given.lstrip().startswith("{") else _read_file(file_name(given)))


OutputSchema = Annotated[
    dict[str, Any] | None,
    typer.Option(
        "--output-schema",
        parser=_json_schema,
        metavar="SCHEMA",
        help="JSON Schema that answers must match: JSON, or the name of a file with it.",
    ),
]
MaxCost = Annotated[
    float | None,
    typer.Option("--max-cost-usd", parser=usd, metavar="USD", help="Maximum cost of one run."),
]
MaxTokens = Annotated[
    int | None, typer.Option("--max-tokens", parser=_tokens, metavar="COUNT", help="Maximum tokens of one run.")
]
SessionMaxCost = Annotated[
    float | None,
    typer.Option("--session-max-cost-usd", parser=usd, metavar="USD", help="Maximum cost of all runs together."),
]
SessionMaxTokens = Annotated[
    int | None,
    typer.Option("--session-max-tokens", parser=_tokens, metavar="COUNT", help="Maximum tokens of all runs together."),
]


Workspace = Annotated[
    Literal["none", "sandbox"] | None,
    typer.Option(
        "--workspace",
        metavar="KIND",
        help="sandbox: the agent has files and a shell. none: it has neither. Default: set by the server.",
    ),
]


def _field(given: str) -> str:
    from quarterdeck.client.models import ConfigurationField

    if given not in list(ConfigurationField):
        raise typer.BadParameter(f"{given!r} is not one of {', '.join(ConfigurationField)}")
    return given


Inherit = Annotated[
    list[Any] | None,
    typer.Option(
        "--inherit",
        parser=_field,
        metavar="FIELD",
        help="Take a field from the agent again, such as model. Can be repeated.",
    ),
]
McpServers = Annotated[
    list[str] | None,
    typer.Option(
        "--mcp-server",
        metavar="SERVER",
        help="ID or name of an MCP server. Can be repeated.",
        autocompletion=completion.mcp_servers,
    ),
]


def split_version(given: str) -> tuple[str, int | None]:
    """NAME or NAME@VERSION."""
    name, at, version = given.rpartition("@")
    is_number = version.isascii() and version.isdigit() and len(version) < 10 and int(version) > 0
    return (name, int(version)) if at and is_number else (given, None)


def agent(client: "Client", given: str) -> "AgentReference":
    from quarterdeck.client.models import AgentReference

    name, version = split_version(given)
    return AgentReference(find.agent(client, name).id, version)


def skill(client: "Client", given: str) -> "SessionSkill":
    from quarterdeck.client.models import SessionSkill

    name, version = split_version(given)
    return SessionSkill(find.skill(client, name).id, version)


def or_unset(given: str | None) -> str | UnsetType:
    return UNSET if given is None else given


def instructions_text(given: str | None, file: str | None) -> str | None:
    if file is None:
        return given
    if given is not None:
        raise UsageError("Use either --instructions or --instructions-file")
    return _read_file(file)


def _read_file(name: str) -> str:
    try:
        return Path(name).read_text("utf-8")
    except OSError as error:
        raise typer.BadParameter(f"{name}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise typer.BadParameter(f"{name}: not valid UTF-8") from None


def mcp_servers(client: "Client", given: list[str]) -> "list[UUID | str]":
    return [find.mcp_server_id(client, one) for one in given]


def mcp_servers_text(client: "Client", session: "SessionBody") -> list[str]:
    from quarterdeck.client import Forbidden, NotFound

    def name(server_id: "UUID") -> str:
        try:
            return client.get_mcp_server(server_id).name
        except NotFound:
            return f"{server_id} (removed)"
        except Forbidden:
            # A session token cannot read MCP servers.
            return str(server_id)

    return [name(one) for one in session.mcp_servers]


def agent_text(session: "SessionBody") -> str | None:
    if session.agent is None:
        return None
    if session.agent.version is not None:
        return f"{session.agent.name} version {session.agent.version}"
    return f"{session.agent.name} (now version {session.agent.current_version})"


def workspace(given: Literal["none", "sandbox"] | None) -> "WorkspaceKind | UnsetType":
    from quarterdeck.client.models import WorkspaceKind

    return UNSET if given is None else WorkspaceKind(given)


def policy(given: list[Any]) -> "dict[str, ToolRule]":
    from quarterdeck.client.models import ToolRule

    return {tool: ToolRule(rule) for tool, rule in given}


def client_tools(file: str) -> "list[ToolSpec]":
    from pathlib import Path

    from quarterdeck.client.models import ToolSpec

    try:
        return msgspec.json.decode(Path(file).read_bytes(), type=list[ToolSpec])
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}") from None
    except msgspec.DecodeError as error:
        raise UsageError(f"{file} is not a JSON list of tools with name, description and parameters: {error}") from None


class GivenLimits(msgspec.Struct, frozen=True):
    """None: not given."""

    run_cost: float | None
    run_tokens: int | None
    session_cost: float | None
    session_tokens: int | None

    @property
    def is_empty(self) -> bool:
        return all(value is None for value in msgspec.structs.astuple(self))

    def body(self, *, remove_others: bool = False) -> "SetLimits":
        from quarterdeck.client.models import SetLimit, SetLimits

        def limit(cost: float | None, tokens: int | None) -> SetLimit:
            if remove_others:
                return SetLimit(cost, tokens)
            return SetLimit(UNSET if cost is None else cost, UNSET if tokens is None else tokens)

        return SetLimits(limit(self.run_cost, self.run_tokens), limit(self.session_cost, self.session_tokens))


def policy_text(session: "SessionBody") -> str | None:
    return "\n".join(f"{tool}: {rule}" for tool, rule in session.tool_policy.items()) or None


def tools_text(session: "SessionBody") -> str | None:
    return "\n".join(tool.name for tool in session.client_tools) or None


def limits_text(session: "SessionBody") -> str | None:
    from quarterdeck.cli.action_text import cost_text

    lines = []
    for scope, limit in (("run", session.limits.run), ("session", session.limits.session)):
        found = [] if limit.max_cost_usd is None else [cost_text(limit.max_cost_usd)]
        found += [] if limit.max_tokens is None else [f"{limit.max_tokens:,} tokens"]
        if found:
            lines.append(f"{scope}: {', '.join(found)}")
    return "\n".join(lines) or None
