"""Sessions with the values that they have from their agents now. The stored ones are those of the last run that began,
or of the last change."""

from collections.abc import Sequence
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from quarterdeck.agents import service as agents
from quarterdeck.agents.configuration import AgentConfiguration
from quarterdeck.core import errors
from quarterdeck.db.database import Connection
from quarterdeck.models.catalog import ModelCatalog
from quarterdeck.runs.model import UsedAgent
from quarterdeck.sessions import inheritance, store
from quarterdeck.sessions.model import ListedSession, SessionBody


async def stored(connection: Connection, models: ModelCatalog, workspace_id: UUID, session_id: UUID) -> SessionBody:
    session = await store.get(connection, workspace_id, session_id, models.default)
    if session is None:
        raise errors.not_found("session")
    return session


async def existing(connection: Connection, models: ModelCatalog, workspace_id: UUID, session_id: UUID) -> SessionBody:
    return await with_agent(connection, models, await stored(connection, models, workspace_id, session_id))


async def with_agent(connection: Connection, models: ModelCatalog, session: SessionBody) -> SessionBody:
    reference = inheritance.reference(session)
    if reference is None:
        return session
    used = await agents.used_version(connection, session.workspace_id, reference)
    session = replace(session, **inheritance.inherited(used.configuration, session.overrides))
    return replace(session, effective_model=models.effective(session.model))


async def listed(
    connection: Connection, models: ModelCatalog, workspace_id: UUID, sessions: Sequence[ListedSession]
) -> list[ListedSession]:
    references = [inheritance.reference(session) for session in sessions]
    wanted = [reference for reference in references if reference is not None]
    if not wanted:
        return list(sessions)
    used = await agents.used_summaries(connection, workspace_id, wanted)
    shown = []
    for session, reference in zip(sessions, references, strict=True):
        if reference is not None:
            values = inheritance.inherited_summary(used[reference].configuration, session)
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
    session = await store.settings(connection, session_id)
    if session is None:
        raise errors.not_found("session")
    if session.agent is None:
        return Followed(session.configuration, None, session.has_skills)
    used = await agents.used_version(connection, session.workspace_id, session.agent)
    values = inheritance.inherited(used.configuration, session.overrides)
    skills = values.pop("skills", None)
    configuration = replace(session.configuration, **values)
    if configuration != session.configuration:
        await store.follow_agent(connection, session.workspace_id, session_id, configuration)
    if skills is not None:
        await store.follow_skills(connection, session.workspace_id, session_id, skills)
    return Followed(configuration, UsedAgent(used.agent_id, used.version), session.has_skills or bool(skills))
