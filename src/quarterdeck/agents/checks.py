"""Checks of the parts of an agent. Used for versions of agents and for sessions."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol
from uuid import UUID

import msgspec
from msgspec import UnsetType

from quarterdeck.agents.configuration import AgentConfiguration, SessionSkill
from quarterdeck.auth.access import Access, Lookup, Subject
from quarterdeck.core import errors, text_types
from quarterdeck.core.call import Body, Call
from quarterdeck.models.catalog import ModelCatalog
from quarterdeck.models.model import ModelFailure
from quarterdeck.models.output_schema import SchemaChecks, TooCostly
from quarterdeck.tools.model import BuiltIn, ToolSpec

_MAX_SCHEMA_BYTES = 64 * 1024
_MAX_SCHEMA_PARTS = 500
# Client tools are part of each request to the model, and checking larger ones would delay other requests.
_MAX_TOOLS_BYTES = 256 * 1024


class Configured(Protocol):
    """A body with the fields that hold JSON of any shape."""

    @property
    def client_tools(self) -> Sequence[ToolSpec] | UnsetType: ...

    @property
    def output_schema(self) -> dict[str, Any] | UnsetType | None: ...


async def checked_call(
    access: Access,
    checks: SchemaChecks,
    call: Call[Body],
    lookup: Lookup[Subject],
    part: Callable[[Body], Configured | None],
) -> Call[Body]:
    """The call with JSON that is checked when its body is read, before the fingerprint of the body is made, which fails
    for JSON that is nested too deeply. `part`: what the body sets of a configuration.

    The output schema is checked at once, for callers who may make the change: that takes too long for a transaction.
    Other faults of the request are raised later, at their place in the order of checks."""

    def read_body() -> Body:
        body = call.read_body()
        if (found := part(body)) is not None:
            _check_json(found.client_tools or [], found.output_schema or None)
        return body

    checked = msgspec.structs.replace(call, read_body=read_body)
    try:
        found = part(checked.read_body())
    except errors.ServiceError:
        return checked
    if found is None or not found.output_schema:
        return checked
    await access.find(call, lookup)
    try:
        fault = await checks.fault(call.owner, found.output_schema)
    except TooCostly:
        raise errors.invalid("output_schema takes too long to check. Use smaller patterns.") from None
    if fault is not None:
        raise errors.invalid(f"output_schema is no valid JSON Schema: {fault}")
    return checked


def _check_json(client_tools: Sequence[ToolSpec], output_schema: dict[str, Any] | None) -> None:
    try:
        if len(msgspec.json.encode(client_tools)) > _MAX_TOOLS_BYTES:
            raise errors.invalid(f"client_tools are too large. {_MAX_TOOLS_BYTES:,} bytes are allowed.")
    except RecursionError:
        raise errors.invalid("client_tools are nested too deeply.") from None
    names = [tool.name for tool in client_tools]
    for tool in client_tools:
        if names.count(tool.name) > 1:
            raise errors.invalid(f"client_tools has two tools with the name {tool.name}.")
        _check_parameters(f"parameters of the tool {tool.name}", tool.parameters)
    if output_schema is not None:
        _check_output_schema(output_schema)


def check_configuration(models: ModelCatalog, configuration: AgentConfiguration) -> None:
    check_model(models, configuration.model)
    check_fallback_models(models, configuration.fallback_models)
    check_names_free(configuration.client_tools)
    check_distinct_skills(configuration.skills)


def check_model(models: ModelCatalog, name: str | None) -> None:
    try:
        if name is not None:
            models.check(name)
    except ModelFailure as fault:
        raise errors.invalid(str(fault)) from None


def check_fallback_models(models: ModelCatalog, names: Sequence[str]) -> None:
    if len(set(names)) < len(names):
        raise errors.invalid("A fallback model is named twice.")
    for name in names:
        check_model(models, name)


def check_names_free(tools: Sequence[ToolSpec]) -> None:
    for tool in tools:
        if tool.name in set(BuiltIn):
            raise errors.invalid(f"{tool.name} is the name of a built-in tool. Choose another name.")


def check_distinct_skills(skills: Sequence[SessionSkill]) -> None:
    if len({skill.skill_id for skill in skills}) < len(skills):
        raise errors.invalid("A skill is named twice.")


def check_distinct_servers(server_ids: Sequence[UUID]) -> None:
    if len(set(server_ids)) < len(server_ids):
        raise errors.invalid("An MCP server is named twice.")


def _check_parameters(name: str, schema: dict[str, Any]) -> None:
    """What all providers need. They check the rest themselves, each in its own way."""
    text_types.check_storable(name, schema)
    if schema.get("type") != "object":
        raise errors.invalid(f'{name} must be a JSON Schema with "type": "object".')
    properties = schema.get("properties", {})
    if not isinstance(properties, dict) or not all(isinstance(one, dict | bool) for one in properties.values()):
        raise errors.invalid(f"{name}: properties must be an object of JSON Schemas.")
    required = schema.get("required", [])
    if not isinstance(required, list) or not all(isinstance(one, str) for one in required):
        raise errors.invalid(f"{name}: required must be a list of names.")


def _check_output_schema(schema: dict[str, Any]) -> None:
    text_types.check_storable("output_schema", schema)
    parts = list(_parts(schema))
    if len(parts) > _MAX_SCHEMA_PARTS or len(msgspec.json.encode(schema)) > _MAX_SCHEMA_BYTES:
        raise errors.invalid(
            f"output_schema is too large. {_MAX_SCHEMA_BYTES:,} bytes with {_MAX_SCHEMA_PARTS} objects and lists are "
            "allowed."
        )
    for part in parts:
        target = part.get("$ref") if isinstance(part, dict) else None
        # Nothing is fetched.
        if isinstance(target, str) and not target.startswith("#"):
            raise errors.invalid("output_schema: $ref must refer to a part of the schema itself, such as #/$defs/name.")


def _parts(value: Any) -> Iterator[Any]:
    """The objects and lists in it, itself included."""
    if isinstance(value, dict | list):
        yield value
        for part in value.values() if isinstance(value, dict) else value:
            yield from _parts(part)
