"""SQL for agents and their versions."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec
from msgspec.structs import asdict
from psycopg.types.json import Jsonb

from quarterdeck.agents.configuration import AgentConfiguration, AgentReference
from quarterdeck.agents.model import AgentBody, AgentState, AgentVersionBody, AgentVersionItem, UsedVersion
from quarterdeck.core.actors import ActorBody
from quarterdeck.core.ids import created_at
from quarterdeck.core.pages import bounds
from quarterdeck.db.database import Connection

_ADD = "INSERT INTO agents (id, workspace_id, name, created_by) VALUES (%s, %s, %s, %s)"
_GET = """
SELECT a.id, a.workspace_id, a.name, a.latest_version, a.default_version, v.configuration->>'model', a.revision,
       a.archived_at, u.id, u.display_name, u.email
FROM agents a JOIN users u ON u.id = a.created_by
LEFT JOIN agent_versions v ON v.agent_id = a.id AND v.version = coalesce(a.default_version, a.latest_version)
WHERE a.workspace_id = %s AND a.id = %s
"""


def _page_query(*, archived: bool, newest_first: bool) -> str:
    """From the partial index of the list: the workspace is part of the bounds and of the order, so that PostgreSQL uses
    no other index."""
    order = "DESC" if newest_first else "ASC"
    # All parts of the statement are constants.
    return f"""
SELECT a.id, a.workspace_id, a.name, a.latest_version, a.default_version, v.configuration->>'model', a.revision,
       a.archived_at, u.id, u.display_name, u.email
FROM (
    SELECT * FROM agents
    WHERE (workspace_id, id) > (%s, %s) AND (workspace_id, id) < (%s, %s)
      AND archived_at IS {"NOT NULL" if archived else "NULL"}
    ORDER BY workspace_id {order}, id {order} LIMIT %s
) AS a JOIN users u ON u.id = a.created_by
LEFT JOIN agent_versions v ON v.agent_id = a.id AND v.version = coalesce(a.default_version, a.latest_version)
ORDER BY a.id {order}
"""  # noqa: S608


_PAGES = {
    (archived, newest_first): _page_query(archived=archived, newest_first=newest_first)
    for archived in (True, False)
    for newest_first in (True, False)
}
_CHANGE = """
UPDATE agents
SET name = %s, default_version = %s, revision = revision + 1,
    archived_at = CASE WHEN %s THEN coalesce(archived_at, clock_timestamp()) END
WHERE workspace_id = %s AND id = %s
"""
_LOCK = """
SELECT revision, name, latest_version, default_version, archived_at IS NOT NULL
FROM agents WHERE workspace_id = %s AND id = %s FOR NO KEY UPDATE
"""
_NAME_TAKEN = """
SELECT EXISTS (SELECT FROM agents WHERE workspace_id = %s AND name = %s AND archived_at IS NULL)
"""
_STATE = """
SELECT revision, name, latest_version, default_version, archived_at IS NOT NULL
FROM agents WHERE workspace_id = %s AND id = %s
"""
# The caller holds the lock of the agent, and the number is committed with the version: there are no gaps.
_NUMBER_VERSION = """
UPDATE agents SET latest_version = latest_version + 1, revision = revision + 1
WHERE workspace_id = %s AND id = %s RETURNING latest_version
"""
_ADD_VERSION = """
INSERT INTO agent_versions (id, agent_id, version, configuration, created_by) VALUES (%s, %s, %s, %s, %s)
"""
_ADD_SKILLS = """
INSERT INTO agent_version_skills (agent_version_id, skill_id) SELECT %s, unnest(%s::uuid[])
"""
# By number: the order of ids depends on the clocks of several processes.
_VERSIONS_NEWEST_FIRST = """
SELECT v.id, v.agent_id, v.version, v.configuration->>'model', u.id, u.display_name, u.email
FROM agent_versions v JOIN users u ON u.id = v.created_by
WHERE v.agent_id = %s
  AND v.version <= coalesce((SELECT version FROM agent_versions WHERE agent_id = %s AND id = %s), 2147483647)
ORDER BY v.version DESC LIMIT %s
"""
_VERSIONS_OLDEST_FIRST = """
SELECT v.id, v.agent_id, v.version, v.configuration->>'model', u.id, u.display_name, u.email
FROM agent_versions v JOIN users u ON u.id = v.created_by
WHERE v.agent_id = %s
  AND v.version >= coalesce((SELECT version FROM agent_versions WHERE agent_id = %s AND id = %s), 1)
ORDER BY v.version LIMIT %s
"""
_VERSION = """
SELECT v.id, v.agent_id, v.version, v.configuration, u.id, u.display_name, u.email
FROM agent_versions v JOIN agents a ON a.id = v.agent_id JOIN users u ON u.id = v.created_by
WHERE a.workspace_id = %s AND v.agent_id = %s AND v.version = %s
"""
_USED = """
SELECT r.agent_id, r.version, a.name, v.version, v.configuration
FROM unnest(%s::uuid[], %s::integer[]) AS r (agent_id, version)
JOIN agents a ON a.id = r.agent_id AND a.workspace_id = %s
JOIN agent_versions v ON v.agent_id = a.id AND v.version = coalesce(r.version, a.default_version, a.latest_version)
"""
# Without the fields that may be long.
_USED_SUMMARIES = """
SELECT r.agent_id, r.version, a.name, v.version,
       jsonb_build_object('model', v.configuration->'model', 'settings', v.configuration->'settings',
                          'skills', v.configuration->'skills')
FROM unnest(%s::uuid[], %s::integer[]) AS r (agent_id, version)
JOIN agents a ON a.id = r.agent_id AND a.workspace_id = %s
JOIN agent_versions v ON v.agent_id = a.id AND v.version = coalesce(r.version, a.default_version, a.latest_version)
"""


async def add(connection: Connection, agent_id: UUID, workspace_id: UUID, name: str, user_id: UUID) -> None:
    await connection.execute(_ADD, (agent_id, workspace_id, name, user_id))


async def get(connection: Connection, workspace_id: UUID, agent_id: UUID) -> AgentBody | None:
    row = await (await connection.execute(_GET, (workspace_id, agent_id))).fetchone()
    return None if row is None else _body(row)


async def page(
    connection: Connection, workspace_id: UUID, start: UUID, count: int, *, archived: bool, newest_first: bool
) -> list[AgentBody]:
    """`count` agents after the position of `start`, which may have been archived or restored."""
    lowest, highest = bounds(start, newest_first=newest_first)
    values = (workspace_id, lowest, workspace_id, highest, count)
    rows = await (await connection.execute(_PAGES[archived, newest_first], values)).fetchall()
    return [_body(row) for row in rows]


async def change(
    connection: Connection,
    workspace_id: UUID,
    agent_id: UUID,
    name: str,
    default_version: int | None,
    *,
    archived: bool,
) -> None:
    await connection.execute(_CHANGE, (name, default_version, archived, workspace_id, agent_id))


async def lock(connection: Connection, workspace_id: UUID, agent_id: UUID) -> AgentState | None:
    """Locks the agent until the transaction ends."""
    row = await (await connection.execute(_LOCK, (workspace_id, agent_id))).fetchone()
    return None if row is None else AgentState(*row)


async def state(connection: Connection, workspace_id: UUID, agent_id: UUID) -> AgentState | None:
    row = await (await connection.execute(_STATE, (workspace_id, agent_id))).fetchone()
    return None if row is None else AgentState(*row)


async def is_name_taken(connection: Connection, workspace_id: UUID, name: str) -> bool:
    """By an active agent."""
    row = await (await connection.execute(_NAME_TAKEN, (workspace_id, name))).fetchone()
    return row is not None and row[0]


async def add_version(
    connection: Connection,
    version_id: UUID,
    workspace_id: UUID,
    agent_id: UUID,
    configuration: AgentConfiguration,
    user_id: UUID,
) -> int | None:
    """Its number. None: there is no such agent. The caller holds the lock of the agent, or has just added it."""
    row = await (await connection.execute(_NUMBER_VERSION, (workspace_id, agent_id))).fetchone()
    if row is None:
        return None
    stored = Jsonb(msgspec.to_builtins(configuration))
    await connection.execute(_ADD_VERSION, (version_id, agent_id, row[0], stored, user_id))
    if configuration.skills:
        await connection.execute(_ADD_SKILLS, (version_id, [skill.skill_id for skill in configuration.skills]))
    number: int = row[0]
    return number


async def versions(
    connection: Connection, agent_id: UUID, start: UUID, count: int, *, newest_first: bool
) -> list[AgentVersionItem]:
    """`count` versions from that with the id `start` on, itself included; from the first where there is none."""
    query = _VERSIONS_NEWEST_FIRST if newest_first else _VERSIONS_OLDEST_FIRST
    rows = await (await connection.execute(query, (agent_id, agent_id, start, count))).fetchall()
    return [
        AgentVersionItem(
            id=version_id,
            agent_id=of_agent,
            version=number,
            model=model,
            created_at=created_at(version_id),
            created_by=ActorBody(*actor),
        )
        for version_id, of_agent, number, model, *actor in rows
    ]


async def version(connection: Connection, workspace_id: UUID, agent_id: UUID, number: int) -> AgentVersionBody | None:
    row = await (await connection.execute(_VERSION, (workspace_id, agent_id, number))).fetchone()
    if row is None:
        return None
    version_id, of_agent, version, configuration, *actor = row
    return AgentVersionBody(
        **asdict(msgspec.convert(configuration, AgentConfiguration)),
        id=version_id,
        agent_id=of_agent,
        version=version,
        created_at=created_at(version_id),
        created_by=ActorBody(*actor),
    )


async def used(
    connection: Connection, workspace_id: UUID, references: Sequence[AgentReference], *, summaries: bool
) -> dict[AgentReference, UsedVersion]:
    """`summaries`: with model, settings and skills only."""
    wanted = list(dict.fromkeys(references))
    values = ([one.agent_id for one in wanted], [one.version for one in wanted], workspace_id)
    rows = await (await connection.execute(_USED_SUMMARIES if summaries else _USED, values)).fetchall()
    return {
        AgentReference(agent_id, pinned): UsedVersion(
            agent_id, name, version, msgspec.convert(configuration, AgentConfiguration)
        )
        for agent_id, pinned, name, version, configuration in rows
    }


def _body(row: tuple[Any, ...]) -> AgentBody:
    agent_id, workspace_id, name, latest_version, default_version, model, revision, archived_at, *actor = row
    return AgentBody(
        id=agent_id,
        workspace_id=workspace_id,
        name=name,
        latest_version=latest_version or None,
        default_version=default_version,
        model=model,
        revision=revision,
        archived_at=archived_at,
        created_at=created_at(agent_id),
        created_by=ActorBody(*actor),
    )
