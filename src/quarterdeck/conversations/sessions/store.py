"""SQL for sessions."""

from typing import Any
from uuid import UUID

import msgspec
from psycopg.types.json import Jsonb

from quarterdeck.agents.configuration import Limits, SessionSkill
from quarterdeck.agents.model import NO_OPTIONS, ModelOptions, ToolRule, ToolSpec
from quarterdeck.agents.workspace.model import WorkspaceKind
from quarterdeck.conversations.runs.model import RunSetup, RunState, Usage, UsedSkill
from quarterdeck.conversations.sessions.model import (
    ActiveRun,
    CreateSessionBody,
    ForkedFrom,
    LastRun,
    ListedSession,
    SessionBody,
)
from quarterdeck.core.actors import ActorBody
from quarterdeck.core.ids import created_at
from quarterdeck.core.pages import bounds
from quarterdeck.db.database import Connection

_ADD = """
INSERT INTO sessions
    (id, workspace_id, title, model, instructions, settings, tool_policy, client_tools, limits, workspace,
     created_by, forked_from_session_id, forked_from_event_id)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
"""
_ADD_SKILL = "INSERT INTO session_skills (session_id, position, skill_id, version) VALUES (%s, %s, %s, %s)"
_DROP_SKILLS = """
DELETE FROM session_skills WHERE session_id IN (SELECT id FROM sessions WHERE workspace_id = %s AND id = %s)
"""
_CHANGE = """
UPDATE sessions
SET title = %s, model = %s, instructions = %s, settings = %s, tool_policy = %s, client_tools = %s, limits = %s,
    workspace = %s, archived_at = %s, revision = %s
WHERE workspace_id = %s AND id = %s
"""
_TOOL_POLICY = "SELECT tool_policy FROM sessions WHERE id = %s"
_RUN_SETUP = "SELECT model, instructions, settings, client_tools, workspace FROM sessions WHERE id = %s"
# The weakest lock that conflicts with a deletion.
_PREVENT_DELETION = "SELECT FROM sessions WHERE id = %s FOR KEY SHARE"
_GET = """
SELECT s.id, s.workspace_id, s.title, s.model, s.settings, used.skills, s.archived_at, s.revision,
       u.id, u.display_name, u.email, s.instructions, s.tool_policy, s.client_tools, s.limits, s.workspace,
       spent.input_tokens, spent.cached_tokens, spent.output_tokens, spent.cost_usd,
       s.forked_from_session_id, s.forked_from_event_id
FROM sessions s JOIN users u ON u.id = s.created_by
CROSS JOIN LATERAL (
    SELECT json_agg(json_build_object('skill_id', k.skill_id, 'version', k.version) ORDER BY k.position) AS skills
    FROM session_skills k WHERE k.session_id = s.id
) AS used
CROSS JOIN LATERAL (
    SELECT coalesce(sum(r.input_tokens), 0)::bigint AS input_tokens,
           coalesce(sum(r.cached_tokens), 0)::bigint AS cached_tokens,
           coalesce(sum(r.output_tokens), 0)::bigint AS output_tokens,
           sum(r.cost_usd)::float8 AS cost_usd
    FROM runs r WHERE r.session_id = s.id
) AS spent
WHERE s.workspace_id = %s AND s.id = %s
"""


def _list_query(page: str, *, newest_first: bool) -> str:
    """`page` selects the rows; the joins then run for these rows only. ORDER BY names the session too, so that only
    the index of a session's runs fits, and not the one of all runs."""
    # All parts of the statement are constants.
    return f"""
SELECT s.id, s.workspace_id, s.title, s.model, s.settings, used.skills, s.archived_at, s.revision,
       u.id, u.display_name, u.email, active.id, active.state, last.id, last.state, entry.created_at,
       s.forked_from_session_id, s.forked_from_event_id
FROM ({page}) AS s JOIN users u ON u.id = s.created_by
CROSS JOIN LATERAL (
    SELECT json_agg(json_build_object('skill_id', k.skill_id, 'version', k.version) ORDER BY k.position) AS skills
    FROM session_skills k WHERE k.session_id = s.id
) AS used
LEFT JOIN LATERAL (
    SELECT r.id, r.state FROM runs r WHERE r.session_id = s.id AND r.state IN ('queued', 'running', 'waiting') LIMIT 1
) AS active ON true
LEFT JOIN LATERAL (
    SELECT r.id, r.state FROM runs r WHERE r.session_id = s.id ORDER BY r.session_id DESC, r.id DESC LIMIT 1
) AS last ON true
LEFT JOIN LATERAL (
    SELECT e.created_at FROM session_events e WHERE e.session_id = s.id ORDER BY e.session_id DESC, e.id DESC LIMIT 1
) AS entry ON true
ORDER BY s.id {"DESC" if newest_first else "ASC"}
"""  # noqa: S608


def _page_query(*, archived: bool, newest_first: bool) -> str:
    """Active and archived sessions have separate partial indexes. The workspace is part of the bounds and of the order
    so that only they fit: with `workspace_id = …`, PostgreSQL searched the sessions of all workspaces for the few of a
    small one.

    A search walks the same index and tests each title: docs/decisions/0020. Unlike LIKE, strpos gives % and _ no
    special meaning."""
    order = "DESC" if newest_first else "ASC"
    page = f"""
    SELECT id, workspace_id, title, model, settings, archived_at, revision, created_by,
           forked_from_session_id, forked_from_event_id
    FROM sessions
    WHERE (workspace_id, id) BETWEEN (%s, %s) AND (%s, %s) AND archived_at IS {"NOT NULL" if archived else "NULL"}
      AND (%s::text IS NULL OR strpos(lower(title), lower(%s::text)) > 0)
    ORDER BY workspace_id {order}, id {order} LIMIT %s
"""  # noqa: S608
    return _list_query(page, newest_first=newest_first)


_PAGES = {
    (archived, newest_first): _page_query(archived=archived, newest_first=newest_first)
    for archived in (True, False)
    for newest_first in (True, False)
}
# By ids that a search has found.
_FOUND = {
    newest_first: _list_query(
        "SELECT * FROM sessions WHERE workspace_id = %s AND id = ANY (%s)", newest_first=newest_first
    )
    for newest_first in (True, False)
}
_DELETE = """
WITH gone AS (DELETE FROM sessions WHERE workspace_id = %s AND id = %s RETURNING id)
INSERT INTO deleted_sessions (session_id) SELECT id FROM gone
"""
_DELETED = "SELECT session_id FROM deleted_sessions ORDER BY deleted_at LIMIT 1 FOR UPDATE SKIP LOCKED"
# By ctid: with IN (SELECT …), PostgreSQL may read the whole table to join it.
_PURGE_EVENTS = """
DELETE FROM session_events
WHERE ctid = ANY (ARRAY(SELECT ctid FROM session_events WHERE session_id = %s ORDER BY id LIMIT %s))
"""
_PURGE_RECEIPTS = """
DELETE FROM receipts WHERE ctid = ANY (ARRAY(SELECT ctid FROM receipts WHERE scope_id = %s LIMIT %s))
"""
_FORGET_DELETED = "DELETE FROM deleted_sessions WHERE session_id = %s"


async def add(
    connection: Connection,
    session_id: UUID,
    workspace_id: UUID,
    session: CreateSessionBody,
    user_id: UUID,
    forked_from: ForkedFrom | None = None,
) -> None:
    values = (session_id, workspace_id, session.title, session.model, session.instructions)
    origin = (None, None) if forked_from is None else (forked_from.session_id, forked_from.event_id)
    settings = _stored(session.settings or NO_OPTIONS)
    await connection.execute(_ADD, (*values, settings, *_tool_settings(session), user_id, *origin))
    await _add_skills(connection, session_id, session.skills)


async def change(connection: Connection, session: SessionBody) -> None:
    settings = _stored(session.settings)
    values = (session.title, session.model, session.instructions, settings, *_tool_settings(session))
    state = (session.archived_at, session.revision)
    await connection.execute(_CHANGE, (*values, *state, session.workspace_id, session.id))
    await connection.execute(_DROP_SKILLS, (session.workspace_id, session.id))
    await _add_skills(connection, session.id, session.skills)


async def get(connection: Connection, workspace_id: UUID, session_id: UUID, default_model: str) -> SessionBody | None:
    row = await (await connection.execute(_GET, (workspace_id, session_id))).fetchone()
    if row is None:
        return None
    return SessionBody(
        **_fields(row[:11], default_model),
        instructions=row[11],
        tool_policy=msgspec.convert(row[12], dict[str, ToolRule]),
        client_tools=msgspec.convert(row[13], list[ToolSpec]),
        limits=msgspec.convert(row[14], Limits),
        workspace=WorkspaceKind(row[15]),
        mcp_servers=[],
        output_schema=None,
        overrides=[],
        usage=Usage(*row[16:20]),
        forked_from=_origin(row[20], row[21]),
    )


async def page(
    connection: Connection,
    workspace_id: UUID,
    start: UUID,
    count: int,
    default_model: str,
    *,
    archived: bool,
    search: str | None,
    newest_first: bool,
) -> list[ListedSession]:
    """`count` sessions from `start` on, inclusive: either archived or active, whose title contains `search`."""
    lowest, highest = bounds(start, newest_first=newest_first)
    values = (workspace_id, lowest, workspace_id, highest, search, search, count)
    rows = await (await connection.execute(_PAGES[archived, newest_first], values)).fetchall()
    return [_listed(row, default_model) for row in rows]


async def found(
    connection: Connection, workspace_id: UUID, ids: list[UUID], default_model: str, *, newest_first: bool
) -> list[ListedSession]:
    rows = await (await connection.execute(_FOUND[newest_first], (workspace_id, ids))).fetchall()
    return [_listed(row, default_model) for row in rows]


async def prevent_deletion(connection: Connection, session_id: UUID) -> bool:
    """False if the session does not exist. Otherwise it exists at least until the transaction ends."""
    return (await connection.execute(_PREVENT_DELETION, (session_id,))).rowcount == 1


async def delete(connection: Connection, workspace_id: UUID, session_id: UUID) -> None:
    await connection.execute(_DELETE, (workspace_id, session_id))


async def lock_deleted(connection: Connection) -> UUID | None:
    """A deleted session whose log still exists and that no other process is purging."""
    row = await (await connection.execute(_DELETED)).fetchone()
    return None if row is None else row[0]


async def purge(connection: Connection, session_id: UUID, batch: int) -> bool:
    """Deletes one batch of the events and receipts of a deleted session. True if none are left."""
    events = (await connection.execute(_PURGE_EVENTS, (session_id, batch))).rowcount
    receipts = (await connection.execute(_PURGE_RECEIPTS, (session_id, batch))).rowcount
    if events == batch or receipts == batch:
        return False
    await connection.execute(_FORGET_DELETED, (session_id,))
    return True


async def tool_policy(connection: Connection, session_id: UUID) -> dict[str, ToolRule] | None:
    row = await (await connection.execute(_TOOL_POLICY, (session_id,))).fetchone()
    return None if row is None else msgspec.convert(row[0], dict[str, ToolRule])


async def run_setup(
    connection: Connection, session_id: UUID, default_model: str, skills: list[UsedSkill]
) -> RunSetup | None:
    row = await (await connection.execute(_RUN_SETUP, (session_id,))).fetchone()
    if row is None:
        return None
    model, instructions, settings, client_tools, workspace = row
    return RunSetup(
        model=default_model if model is None else model,
        settings=msgspec.convert(settings, ModelOptions),
        instructions=instructions,
        skills=skills,
        client_tools=msgspec.convert(client_tools, list[ToolSpec]),
        workspace=WorkspaceKind(workspace),
    )


async def _add_skills(connection: Connection, session_id: UUID, skills: list[SessionSkill]) -> None:
    if skills:
        rows = [(session_id, position, skill.skill_id, skill.version) for position, skill in enumerate(skills)]
        await connection.cursor().executemany(_ADD_SKILL, rows)


def _tool_settings(session: CreateSessionBody | SessionBody) -> tuple[Jsonb, Jsonb, Jsonb, str]:
    """The columns tool_policy, client_tools, limits and workspace."""
    return (
        Jsonb(session.tool_policy or {}),
        Jsonb(msgspec.to_builtins(session.client_tools or [])),
        Jsonb(msgspec.to_builtins(session.limits or Limits())),
        session.workspace or WorkspaceKind.NONE,
    )


def _stored(settings: ModelOptions) -> Jsonb:
    return Jsonb({name: value for name, value in msgspec.structs.asdict(settings).items() if value is not None})


def _listed(row: tuple[Any, ...], default_model: str) -> ListedSession:
    fields = _fields(row[:11], default_model)
    active_id, active_state, last_id, last_state, last_event_at, *origin = row[11:]
    if active_id is not None:
        # The newest run may be a pending one.
        last_id, last_state = active_id, active_state
    return ListedSession(
        **fields,
        active_run=None if active_id is None else ActiveRun(active_id, active_state),
        last_run=None if last_id is None else LastRun(last_id, RunState(last_state)),
        forked_from=_origin(*origin),
        # Events that a fork has copied are older than the fork.
        last_activity_at=max(last_event_at or fields["created_at"], fields["created_at"]),
    )


def _origin(session_id: UUID | None, event_id: int | None) -> ForkedFrom | None:
    return None if session_id is None else ForkedFrom(session_id, event_id)


def _fields(row: tuple[Any, ...], default_model: str) -> dict[str, Any]:
    session_id, workspace_id, title, model, settings, skills, archived_at, revision, user_id, name, email = row
    return {
        "id": session_id,
        "workspace_id": workspace_id,
        "title": title,
        "model": model,
        "effective_model": default_model if model is None else model,
        "settings": msgspec.convert(settings, ModelOptions),
        "skills": msgspec.convert(skills or [], list[SessionSkill]),
        "agent": None,
        "created_at": created_at(session_id),
        "created_by": ActorBody(user_id, name, email),
        "archived_at": archived_at,
        "revision": revision,
    }
