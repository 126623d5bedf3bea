"""Reads the folder of an agent: `agent.yaml` and `instructions.md`. Reports as many errors at once as possible."""

import difflib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
import yaml
from msgspec import UNSET, Meta, Struct, UnsetType

from quarterdeck.agents.configuration import Limit, Limits, ToolPolicy
from quarterdeck.cli import find
from quarterdeck.cli.errors import CliError
from quarterdeck.cli.options import read_file
from quarterdeck.cli.session_options import skill
from quarterdeck.client import Client
from quarterdeck.core.text_types import Line
from quarterdeck.models.model import ModelOptions
from quarterdeck.sandbox.model import SandboxOptions
from quarterdeck.tools.model import ToolSpec

INSTRUCTIONS = "Say who the agent is, what it is asked to do, and how it answers.\n"
AGENT_YAML = """\
# What sessions of this agent use, besides instructions.md. `qd agents push` makes a version of it.
# Remove the # of what you need. Everything has a default.

# `provider:name`, or demo. `qd models` lists models. Default: that of the server.
# model: demo

# They answer while the model is not available, the first of them first.
# fallback_models:
#   - demo

# settings:
#   temperature: 0.3
#   max_output_tokens: 4000
#   reasoning_effort: low        # low, medium or high

# Names or IDs, with @VERSION to stay at a version. `qd skills list` shows them.
# skills:
#   - house-style
#   - release-notes@2

# Names or IDs. `qd mcp list` shows them.
# mcp_servers:
#   - tracker

# allow, ask or deny, by name of a tool or by prefix.
# tool_policy:
#   bash: ask
#   tracker__*: allow

# For one run and for all runs of a session together.
# limits:
#   run: {max_cost_usd: 2.50}
#   session: {max_tokens: 2000000}

# Files and commands: {} for the defaults, null for neither.
# sandbox: {}

# Tools that your program carries out: a list with name, description and parameters, or a JSON file with that list.
# client_tools: tools.json

# The answer is JSON that matches this JSON Schema: an object, or a JSON file.
# output_schema: answer.json
"""
AGENT_FILE = "agent.yaml"
INSTRUCTIONS_FILE = "instructions.md"
# The files that `qd agents init` writes.
TEMPLATES = {AGENT_FILE: AGENT_YAML, INSTRUCTIONS_FILE: INSTRUCTIONS}

Parsed = TypeVar("Parsed")


class _Settings(ModelOptions, frozen=True, forbid_unknown_fields=True):
    pass


class _Limit(Limit, frozen=True, forbid_unknown_fields=True):
    pass


class _Limits(Limits, frozen=True, forbid_unknown_fields=True):
    run: _Limit = _Limit()
    session: _Limit = _Limit()


class AgentFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """agent.yaml. Its fields are those of a version, without the instructions."""

    model: Annotated[str, Meta(pattern=r"^(demo$|[^:\s]+:\S)", max_length=200)] | None = None
    fallback_models: list[Line] = []
    settings: _Settings = _Settings()
    # Names or IDs, with or without @VERSION.
    skills: list[Line] = []
    mcp_servers: list[Line] = []
    # The value itself, or the name of a JSON file in the folder.
    client_tools: list[ToolSpec] | str = []
    tool_policy: ToolPolicy = {}
    limits: _Limits = _Limits()
    sandbox: SandboxOptions | UnsetType | None = UNSET
    output_schema: dict[str, Any] | str | None = None


class AgentFolder(Struct, frozen=True):
    file: AgentFile
    instructions: str | None
    client_tools: list[ToolSpec]
    output_schema: dict[str, Any] | None
    is_template: bool


def read_agent_folder(folder: Path) -> AgentFolder:
    """Raises CliError with the first error, and the number of others."""
    faults: list[str] = []

    def attempt(read: Callable[[], Parsed]) -> Parsed | None:
        try:
            return read()
        except CliError as fault:
            faults.append(str(fault))
            return None

    if not folder.is_dir():
        raise CliError(f"{folder}: no such folder")
    text = attempt(lambda: read_file(folder / AGENT_FILE))
    instructions = attempt(lambda: read_file(folder / INSTRUCTIONS_FILE))
    file = None if text is None else attempt(lambda: _agent_file(folder / AGENT_FILE, text))
    tools, schema = (None, None) if file is None else (file.client_tools, file.output_schema)
    if isinstance(tools, str):
        path = folder / tools
        tools = attempt(lambda: _json_file(path, list[ToolSpec]))
    if isinstance(schema, str):
        schema_path = folder / schema
        schema = attempt(lambda: _json_file(schema_path, dict[str, Any]))
    if faults:
        more = f" ({len(faults) - 1} more: {'; '.join(faults[1:])})" if len(faults) > 1 else ""
        raise CliError(f"{faults[0]}{more}")
    assert file is not None, "an error otherwise"
    is_template = (text, instructions) == (AGENT_YAML, INSTRUCTIONS)
    return AgentFolder(file, (instructions or "").strip() or None, tools or [], schema, is_template)


def configuration(client: Client, found: AgentFolder) -> dict[str, Any]:
    """The fields of a version, with IDs in place of names. Without `sandbox`: the default of the server."""
    fields: dict[str, Any] = {
        "model": found.file.model,
        "fallback_models": found.file.fallback_models,
        "settings": found.file.settings,
        "instructions": found.instructions,
        "skills": [skill(client, given) for given in found.file.skills],
        "client_tools": found.client_tools,
        "mcp_servers": [find.mcp_server_id(client, given) for given in found.file.mcp_servers],
        "tool_policy": found.file.tool_policy,
        "limits": found.file.limits,
        "output_schema": found.output_schema,
    }
    if found.file.sandbox is not UNSET:
        fields["sandbox"] = found.file.sandbox
    return fields


def _agent_file(path: Path, text: str) -> AgentFile:
    try:
        given = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        raise _fault(path, error.problem or "not valid YAML", None if mark is None else mark.line + 1) from None
    except (yaml.YAMLError, ValueError, RecursionError):
        raise _fault(path, "not valid YAML") from None
    if given is None:
        return AgentFile()
    if not isinstance(given, dict):
        raise _fault(path, "must be a mapping of fields")
    known = AgentFile.__struct_fields__
    unknown = [str(name) for name in given if name not in known]
    if unknown:
        near = difflib.get_close_matches(unknown[0], known, 1)
        hint = f" Did you mean {near[0]}?" if near else f" There are {', '.join(known)}."
        raise _fault(path, f"unknown field {', '.join(unknown)}.{hint}")
    return _converted(path, given, AgentFile)


def _json_file(path: Path, kind: type[Parsed]) -> Parsed:
    try:
        return _converted(path, json.loads(read_file(path)), kind)
    except (ValueError, RecursionError) as error:
        raise _fault(path, f"not valid JSON: {error}") from None


def _converted(path: Path, given: object, kind: type[Parsed]) -> Parsed:
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        if "$.model" in str(error):
            raise _fault(path, f"model {given['model']!r} is not provider:name or demo") from None  # type: ignore[index]
        raise _fault(path, str(error)) from None


def _fault(path: Path, message: str, line: int | None = None) -> CliError:
    return CliError(f"{path}{'' if line is None else f':{line}'}: {message}")
