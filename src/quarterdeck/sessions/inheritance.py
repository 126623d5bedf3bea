"""How a session follows its agent: which fields are its own, and what the others become. No I/O."""

from collections.abc import Collection, Sequence
from typing import Any
from uuid import UUID

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import replace

from quarterdeck.agents import service as agents
from quarterdeck.agents.configuration import AgentConfiguration, AgentReference, ConfigurationField, Limits
from quarterdeck.core import errors
from quarterdeck.db.database import Connection
from quarterdeck.models.catalog import ModelCatalog
from quarterdeck.models.model import NO_OPTIONS
from quarterdeck.runs.model import UsedAgent
from quarterdeck.sessions import store
from quarterdeck.sessions.model import ChangeSessionBody, CreateSessionBody, ListedSession, SessionBody

# A run reads these from its session at each step. It has kept the other fields since it began.
_USED_BY_ACTIVE_RUN = {ConfigurationField.LIMITS, ConfigurationField.TOOL_POLICY}


def given_fields(body: CreateSessionBody | ChangeSessionBody) -> set[ConfigurationField]:
    return {field for field in ConfigurationField if getattr(body, field) is not UNSET}


def chosen(body: CreateSessionBody, agent: AgentConfiguration) -> AgentConfiguration:
    """What a new session starts with. A field of the body replaces the agent's as a whole."""
    values = {field.value: getattr(body, field) for field in given_fields(body)}
    if "settings" in values:
        values["settings"] = values["settings"] or NO_OPTIONS
    if "limits" in values:
        values["limits"] = msgspec.convert(msgspec.to_builtins(values["limits"]), Limits)
    return replace(agent, **values)


def inherited(agent: AgentConfiguration, overrides: Collection[ConfigurationField]) -> dict[str, Any]:
    """The values of the fields that follow the agent."""
    return {field.value: getattr(agent, field) for field in ConfigurationField if field not in overrides}


def inherited_summary(agent: AgentConfiguration, session: ListedSession) -> dict[str, Any]:
    """As `inherited`, but only the fields that lists show."""
    values = inherited(agent, session.overrides)
    return {name: values[name] for name in ("model", "settings", "skills") if name in values}


def check_inherit(change: ChangeSessionBody, *, has_agent: bool) -> None:
    if not change.inherit:
        return
    if not has_agent:
        raise errors.invalid("inherit is for sessions with an agent.")
    if both := given_fields(change).intersection(change.inherit):
        raise errors.invalid(f"{min(both)} is set and also named in inherit.")


def changed_overrides(session: SessionBody, change: ChangeSessionBody) -> list[ConfigurationField]:
    """For a session that has an agent after the change."""
    return sorted((given_fields(change) | set(session.overrides)) - set(change.inherit or ()))


def stored(session: SessionBody, after: SessionBody, change: ChangeSessionBody) -> SessionBody:
    """The changed session as it is stored. `session`: as it is stored now. Fields that the change does not touch keep
    what was stored, since the active run still uses some of it: the agent may have changed after the run began. The
    next run stores what the session has from its agent then."""
    if change.agent is None:
        return after
    kept = set(ConfigurationField) if change.agent is UNSET else _USED_BY_ACTIVE_RUN
    kept = kept - given_fields(change).union(change.inherit or ())
    return replace(after, **{field.value: getattr(session, field) for field in kept})


def agent_reference(session: SessionBody | ListedSession) -> AgentReference | None:
    """The version that the session uses now."""
    return None if session.agent is None else AgentReference(session.agent.agent_id, session.agent.current_version)


# Sessions with the values that they have from their agents now. The stored ones are those of the last run that began,
# or of the last change.


async def stored_session(
    connection: Connection, models: ModelCatalog, workspace_id: UUID, session_id: UUID
) -> SessionBody:
    return errors.existing(await store.get(connection, workspace_id, session_id, models.default), "session")


async def existing(connection: Connection, models: ModelCatalog, workspace_id: UUID, session_id: UUID) -> SessionBody:
    return await with_agent(connection, models, await stored_session(connection, models, workspace_id, session_id))


async def with_agent(connection: Connection, models: ModelCatalog, session: SessionBody) -> SessionBody:
    reference = agent_reference(session)
    if reference is None:
        return session
    used = await agents.used_version(connection, session.workspace_id, reference)
    session = replace(session, **inherited(used.configuration, session.overrides))
    return replace(session, effective_model=models.effective(session.model))


async def listed(
    connection: Connection, models: ModelCatalog, workspace_id: UUID, sessions: Sequence[ListedSession]
) -> list[ListedSession]:
    references = [agent_reference(session) for session in sessions]
    wanted = [reference for reference in references if reference is not None]
    if not wanted:
        return list(sessions)
    used = await agents.used_summaries(connection, workspace_id, wanted)
    shown = []
    for session, reference in zip(sessions, references, strict=True):
        if reference is not None:
            values = inherited_summary(used[reference].configuration, session)
            session = replace(session, **values)
            session = replace(session, effective_model=models.effective(session.model))
        shown.append(session)
    return shown


class Followed(Struct, frozen=True):
    """What a run that begins now uses of its session, but for the skills."""

    configuration: AgentConfiguration
    agent: UsedAgent | None
    has_skills: bool


async def follow(connection: Connection, session_id: UUID) -> Followed:
    """Stores what the session has from its agent: limits, tool policy and others are read from there while the run
    works. The caller holds the session's lock if the session has an agent."""
    session = errors.existing(await store.settings(connection, session_id), "session")
    if session.agent is None:
        return Followed(session.configuration, None, session.has_skills)
    used = await agents.used_version(connection, session.workspace_id, session.agent)
    values = inherited(used.configuration, session.overrides)
    skills = values.pop("skills", None)
    configuration = replace(session.configuration, **values)
    if configuration != session.configuration:
        await store.follow_agent(connection, session.workspace_id, session_id, configuration)
    if skills is not None:
        await store.follow_skills(connection, session.workspace_id, session_id, skills)
    return Followed(configuration, UsedAgent(used.agent_id, used.version), session.has_skills or bool(skills))
