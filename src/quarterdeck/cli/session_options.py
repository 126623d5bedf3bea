"""Options of `qd sessions create` and `edit`, and the fields of the API that they stand for."""

from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import typer
from msgspec import Struct

from quarterdeck.cli import completion, find
from quarterdeck.cli.errors import CliError
from quarterdeck.cli.options import (
    AgentOption,
    check_either,
    choice,
    file_name,
    flag,
    json_object,
    line,
    option,
    read_file,
    tokens_count,
    usd,
)
from quarterdeck.client import Client
from quarterdeck.client.models import (
    AgentReference,
    ConfigurationField,
    SandboxOptions,
    SessionSkill,
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


def _json_schema(given: str) -> dict[str, Any]:
    return json_object(given if given.lstrip().startswith("{") else read_file(file_name(given)))


class SessionOptions(Struct, frozen=True):
    """Options of both commands. None: not given."""

    agent: AgentOption = None
    title: Annotated[str | None, option("TITLE", "Title of the session.", parser=line)] = None
    model: Annotated[
        str | None,
        option("MODEL", "provider:name, or demo. Default: set by the server.", parser=line, complete=completion.models),
    ] = None
    fallback_model: Annotated[
        list[str] | None,
        option(
            "MODEL",
            "Answers while the model is not available. Can be repeated.",
            parser=line,
            complete=completion.models,
        ),
    ] = None
    instructions: Annotated[str | None, option("TEXT", "Instructions for the agent.")] = None
    instructions_file: Annotated[str | None, option("FILE", "Read the instructions from a file.", parser=file_name)] = (
        None
    )
    skill: Annotated[
        list[str] | None,
        option("SKILL[@VERSION]", "ID or name of a skill. Can be repeated.", complete=completion.skills),
    ] = None
    mcp_server: Annotated[
        list[str] | None,
        option("SERVER", "ID or name of an MCP server. Can be repeated.", complete=completion.mcp_servers),
    ] = None
    temperature: Annotated[
        float | None, option("NUMBER", "Temperature of the model, from 0 to 2.", parser=_temperature)
    ] = None
    max_output_tokens: Annotated[
        int | None, option("COUNT", "Maximum tokens of one answer, including reasoning.", parser=tokens_count)
    ] = None
    reasoning_effort: Annotated[
        Literal["low", "medium", "high"] | None,
        choice("EFFORT", "Reasoning effort: low, medium or high.", values=_EFFORTS),
    ] = None
    sandbox: Annotated[
        bool | None,
        flag("--sandbox/--no-sandbox", "Whether the agent has files and a shell. Default: set by the server."),
    ] = None
    policy: Annotated[
        list[Any] | None,
        option(
            "TOOL=RULE",
            "Rule for a tool or a prefix: bash=ask or crm_*=deny. Rules are allow, ask and deny. Can be repeated.",
            parser=_rule,
        ),
    ] = None
    tools: Annotated[
        str | None,
        option(
            "FILE",
            "JSON file with the client tools: a list of objects with name, description and parameters.",
            parser=file_name,
        ),
    ] = None
    output_schema: Annotated[
        dict[str, Any] | None,
        option(
            "SCHEMA", "JSON Schema that answers must match: JSON, or the name of a file with it.", parser=_json_schema
        ),
    ] = None
    max_cost_usd: Annotated[float | None, option("USD", "Maximum cost of one run.", parser=usd)] = None
    max_tokens: Annotated[int | None, option("COUNT", "Maximum tokens of one run.", parser=tokens_count)] = None
    session_max_cost_usd: Annotated[float | None, option("USD", "Maximum cost of all runs together.", parser=usd)] = (
        None
    )
    session_max_tokens: Annotated[
        int | None, option("COUNT", "Maximum tokens of all runs together.", parser=tokens_count)
    ] = None


class Removals(Struct, frozen=True):
    """Options of `edit` that remove a setting."""

    no_agent: Annotated[bool, flag("--no-agent", "Remove the agent. The session keeps its current values.")] = False
    inherit: Annotated[
        list[Any] | None,
        choice(
            "FIELD", "Take a field from the agent again, such as model. Can be repeated.", values=ConfigurationField
        ),
    ] = None
    default_model: Annotated[bool, flag("--default-model", "Use the default model of the server again.")] = False
    no_fallback_models: Annotated[bool, flag("--no-fallback-models", "Remove all fallback models.")] = False
    no_skills: Annotated[bool, flag("--no-skills", "Remove all skills.")] = False
    no_mcp_servers: Annotated[bool, flag("--no-mcp-servers", "Remove all MCP servers.")] = False
    default_settings: Annotated[
        bool,
        flag("--default-settings", "Reset temperature, output tokens and effort before other options are applied."),
    ] = False
    no_policy: Annotated[bool, flag("--no-policy", "Remove the tool policy.")] = False
    no_tools: Annotated[bool, flag("--no-tools", "Remove all client tools.")] = False
    no_output_schema: Annotated[bool, flag("--no-output-schema", "Answer in plain text again.")] = False
    no_limits: Annotated[bool, flag("--no-limits", "Remove all limits that are not given.")] = False


# The option that each removal excludes, the field of the API, and what removes it.
_REMOVALS: dict[str, tuple[str, str, object]] = {
    "no_agent": ("agent", "agent", None),
    "default_model": ("model", "model", None),
    "no_fallback_models": ("fallback_model", "fallback_models", []),
    "no_skills": ("skill", "skills", []),
    "no_mcp_servers": ("mcp_server", "mcp_servers", []),
    "no_policy": ("policy", "tool_policy", {}),
    "no_tools": ("tools", "client_tools", []),
    "no_output_schema": ("output_schema", "output_schema", None),
}


def session_fields(client: Client, given: SessionOptions, removals: Removals | None = None) -> dict[str, Any]:
    """The fields of the API that the options set. What is not given is left out: it comes from the agent."""
    removed = removals or Removals()
    asked = {name: parts for name, parts in _REMOVALS.items() if getattr(removed, name)}
    for name, (excluded, _, _) in asked.items():
        check_either(f"--{excluded.replace('_', '-')}", getattr(given, excluded), f"--{name.replace('_', '-')}", True)
    fields = {
        "title": given.title,
        "model": given.model,
        "fallback_models": given.fallback_model,
        "instructions": _instructions(given),
        "settings": _settings(given, reset=removed.default_settings) or None,
        "tool_policy": dict(given.policy) if given.policy else None,
        "client_tools": None if given.tools is None else _client_tools(given.tools),
        "output_schema": given.output_schema,
        "limits": _limits(given, remove_others=removed.no_limits),
        "inherit": removed.inherit or None,
        "agent": None if given.agent is None else agent(client, given.agent),
        "skills": [skill(client, each) for each in given.skill or []] or None,
        "mcp_servers": [find.mcp_server_id(client, each) for each in given.mcp_server or []] or None,
    }
    found = _given(fields) | {field: value for _, field, value in asked.values()}
    if given.sandbox is not None:
        found["sandbox"] = SandboxOptions() if given.sandbox else None
    return found


def _given(fields: dict[str, Any], *, with_none: bool = False) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None or with_none}


def _settings(given: SessionOptions, *, reset: bool) -> dict[str, Any]:
    names = ("temperature", "max_output_tokens", "reasoning_effort")
    return _given({name: getattr(given, name) for name in names}, with_none=reset)


def _limits(given: SessionOptions, *, remove_others: bool) -> dict[str, Any] | None:
    run = {"max_cost_usd": given.max_cost_usd, "max_tokens": given.max_tokens}
    session = {"max_cost_usd": given.session_max_cost_usd, "max_tokens": given.session_max_tokens}
    run, session = _given(run, with_none=remove_others), _given(session, with_none=remove_others)
    return {"run": run, "session": session} if run or session else None


def agent(client: Client, given: str) -> AgentReference:
    name, version = _split_version(given)
    return AgentReference(find.agent(client, name).id, version)


def skill(client: Client, given: str) -> SessionSkill:
    name, version = _split_version(given)
    return SessionSkill(find.skill(client, name).id, version)


def _split_version(given: str) -> tuple[str, int | None]:
    """NAME or NAME@VERSION."""
    name, at, version = given.rpartition("@")
    is_number = version.isascii() and version.isdigit() and len(version) < 10 and int(version) > 0
    return (name, int(version)) if at and is_number else (given, None)


def _instructions(given: SessionOptions) -> str | None:
    check_either("--instructions", given.instructions, "--instructions-file", given.instructions_file)
    return given.instructions if given.instructions_file is None else read_file(given.instructions_file)


def _client_tools(file: str) -> list[ToolSpec]:
    try:
        return msgspec.json.decode(Path(file).read_bytes(), type=list[ToolSpec])
    except msgspec.DecodeError as error:
        raise CliError(f"{file} is not a JSON list of tools with name, description and parameters: {error}") from None
