"""Rules for changes to sessions."""

import re
from datetime import datetime
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from quarterdeck.agents.configuration import Limit, SessionSkill, SetLimit
from quarterdeck.agents.model import ToolSpec
from quarterdeck.conversations.sessions.model import ChangeSessionBody, CreateSessionBody, SessionBody
from quarterdeck.core import errors, json_values
from quarterdeck.core.text_types import MAX_LINE_LENGTH

_FORK_TITLE = re.compile(r"(.*) \(fork(?: ([1-9][0-9]{0,8}))?\)")


def without_agent(body: CreateSessionBody) -> CreateSessionBody:
    """A body without an agent sets the fields that earlier releases always had, so that its fingerprint is the same."""
    if body.agent:
        return body
    return msgspec.structs.replace(
        body,
        model=None if body.model is UNSET else body.model,
        instructions=None if body.instructions is UNSET else body.instructions,
        skills=[] if body.skills is UNSET else body.skills,
        agent=UNSET,
    )


def check_distinct(skills: list[SessionSkill]) -> None:
    if len({skill.skill_id for skill in skills}) < len(skills):
        raise errors.invalid("A skill is named twice.")


def fork_title(title: str | None) -> str | None:
    """`Plan` becomes `Plan (fork)`, then `Plan (fork 2)`. An untitled session stays untitled."""
    if title is None:
        return None
    suffix = " (fork)"
    if found := _FORK_TITLE.fullmatch(title):
        title, suffix = found[1], f" (fork {int(found[2] or 1) + 1})"
    longest = MAX_LINE_LENGTH - len(suffix)
    return (title if len(title) <= longest else f"{title[: longest - 1]}…") + suffix


def check_client_tools(tools: list[ToolSpec] | UnsetType) -> None:
    if tools is UNSET:
        return
    names = [tool.name for tool in tools]
    for tool in tools:
        if names.count(tool.name) > 1:
            raise errors.invalid(f"client_tools has two tools with the name {tool.name}.")
        _check_parameters(f"parameters of the tool {tool.name}", tool.parameters)


def check_names_free(tools: list[ToolSpec], built_in: frozenset[str]) -> None:
    for tool in tools:
        if tool.name in built_in:
            raise errors.invalid(f"{tool.name} is the name of a built-in tool. Choose another name.")


def _check_parameters(name: str, schema: dict[str, Any]) -> None:
    """What all providers need. They check the rest themselves, each in its own way."""
    json_values.check_storable(name, schema)
    if schema.get("type") != "object":
        raise errors.invalid(f'{name} must be a JSON Schema with "type": "object".')
    properties = schema.get("properties", {})
    if not isinstance(properties, dict) or not all(isinstance(one, dict | bool) for one in properties.values()):
        raise errors.invalid(f"{name}: properties must be an object of JSON Schemas.")
    required = schema.get("required", [])
    if not isinstance(required, list) or not all(isinstance(one, str) for one in required):
        raise errors.invalid(f"{name}: required must be a list of names.")


def changed(session: SessionBody, change: ChangeSessionBody, now: datetime) -> SessionBody:
    """The changed session. Its revision grows only if anything is different."""
    fields = _given(change)
    if change.settings is not UNSET:
        fields["settings"] = msgspec.structs.replace(session.settings, **_given(change.settings))
    if change.limits is not UNSET:
        scopes = {
            scope: changed_limit(getattr(session.limits, scope), one) for scope, one in _given(change.limits).items()
        }
        fields["limits"] = msgspec.structs.replace(session.limits, **scopes)
    archived = fields.pop("archived", session.archived_at is not None)
    # Archiving again keeps the time of the first archiving.
    archived_at = (session.archived_at or now) if archived else None
    changed_session = msgspec.structs.replace(session, **fields, archived_at=archived_at)
    if changed_session == session:
        return session
    return msgspec.structs.replace(changed_session, revision=session.revision + 1)


def changed_limit(limit: Limit, change: SetLimit) -> Limit:
    return msgspec.structs.replace(limit, **_given(change))


def changed_fields(before: SessionBody, after: SessionBody) -> list[str]:
    """The names of changed fields, for the audit log, which must not hold their content."""
    names = (
        "title",
        "model",
        "instructions",
        "skills",
        "settings",
        "tool_policy",
        "client_tools",
        "limits",
        "workspace",
        "archived_at",
    )
    return [name for name in names if getattr(before, name) != getattr(after, name)]


def _given(change: Struct) -> dict[str, Any]:
    return {name: value for name, value in msgspec.structs.asdict(change).items() if value is not UNSET}
