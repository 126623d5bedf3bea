"""SQL for agents and their versions."""

from collections.abc import Sequence
from uuid import UUID

import msgspec
from psycopg.types.json import Jsonb

from quarterdeck.agents.configuration import AgentConfiguration, AgentReference
from quarterdeck.agents.model import AgentBody, AgentVersionBody, AgentVersionItem, UsedVersion
from quarterdeck.core.versioned import VersionedState
from quarterdeck.db.database import Connection
from quarterdeck.db.records import VersionedRecords, VersionPages, as_record, fetch_record, fetch_rows, fetch_value

_AGENTS = VersionedRecords(
    AgentBody,
    table="agents",
    columns="""r.id, r.workspace_id, r.name, nullif(r.latest_version, 0) AS latest_version, r.default_version,
        v.configuration->>'model' AS model, r.revision, r.archived_at, actor(u) AS created_by""",
    joins="""JOIN users u ON u.id = r.created_by
        LEFT JOIN agent_versions v
            ON v.agent_id = r.id AND v.version = coalesce(r.default_version, r.latest_version)""",
)
add, get, page, change, is_name_taken = _AGENTS.add, _AGENTS.get, _AGENTS.page, _AGENTS.change, _AGENTS.is_name_taken
lock = _AGENTS.lock
_STATE = _AGENTS.state_query
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
_VERSIONS = VersionPages(
    AgentVersionItem,
    table="agent_versions",
    owner="agent_id",
    columns="r.id, r.agent_id, r.version, r.configuration->>'model' AS model, actor(u) AS created_by",
    joins="JOIN users u ON u.id = r.created_by",
)
versions = _VERSIONS.page
_VERSION = """
SELECT v.id, v.agent_id, v.version, v.configuration, actor(u) AS created_by
FROM agent_versions v JOIN agents a ON a.id = v.agent_id JOIN users u ON u.id = v.created_by
WHERE a.workspace_id = %s AND v.agent_id = %s AND v.version = %s
"""
# A summary is without the fields that may be long.
_USED = {
    is_summary: f"""
SELECT r.agent_id, r.version AS pinned, a.name, v.version, {configuration} AS configuration
FROM unnest(%s::uuid[], %s::integer[]) AS r (agent_id, version)
JOIN agents a ON a.id = r.agent_id AND a.workspace_id = %s
JOIN agent_versions v ON v.agent_id = a.id AND v.version = coalesce(r.version, a.default_version, a.latest_version)
"""  # noqa: S608  built from constants
    for is_summary, configuration in (
        (False, "v.configuration"),
        (True, "v.configuration - ARRAY['instructions', 'client_tools', 'tool_policy', 'output_schema']"),
    )
}


async def state(connection: Connection, workspace_id: UUID, agent_id: UUID) -> VersionedState | None:
    return await fetch_record(connection, VersionedState, _STATE, (workspace_id, agent_id))


async def add_version(
    connection: Connection,
    version_id: UUID,
    workspace_id: UUID,
    agent_id: UUID,
    configuration: AgentConfiguration,
    user_id: UUID,
) -> int | None:
    """Its number. None: there is no such agent. The caller holds the lock of the agent, or has just added it."""
    number: int | None = await fetch_value(connection, _NUMBER_VERSION, (workspace_id, agent_id))
    if number is None:
        return None
    stored = Jsonb(msgspec.to_builtins(configuration))
    await connection.execute(_ADD_VERSION, (version_id, agent_id, number, stored, user_id))
    if configuration.skills:
        await connection.execute(_ADD_SKILLS, (version_id, [skill.skill_id for skill in configuration.skills]))
    return number


async def version(connection: Connection, workspace_id: UUID, agent_id: UUID, number: int) -> AgentVersionBody | None:
    rows = await fetch_rows(connection, _VERSION, (workspace_id, agent_id, number))
    return as_record(AgentVersionBody, rows[0] | rows[0]["configuration"]) if rows else None


async def used(
    connection: Connection, workspace_id: UUID, references: Sequence[AgentReference], *, summaries: bool
) -> dict[AgentReference, UsedVersion]:
    """`summaries`: without the fields that may be long."""
    wanted = list(dict.fromkeys(references))
    values = ([one.agent_id for one in wanted], [one.version for one in wanted], workspace_id)
    rows = await fetch_rows(connection, _USED[summaries], values)
    return {AgentReference(row["agent_id"], row["pinned"]): as_record(UsedVersion, row) for row in rows}
