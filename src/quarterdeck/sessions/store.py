"""SQL for sessions."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any
from uuid import UUID

import msgspec
from msgspec import UNSET
from psycopg.types.json import Jsonb

from quarterdeck.agents.configuration import (
    AgentConfiguration,
    AgentReference,
    ConfigurationField,
    Limits,
    SessionSkill,
)
from quarterdeck.core import errors
from quarterdeck.core.actors import ActorBody
from quarterdeck.core.ids import created_at
from quarterdeck.core.pages import bounds
from quarterdeck.db import driver_errors
from quarterdeck.db.database import Connection
from quarterdeck.models.model import ModelOptions
from quarterdeck.runs.model import RunState, Usage
from quarterdeck.sandbox.model import SandboxOptions
from quarterdeck.sessions.model import (
    ActiveRun,
    ForkedFrom,
    LastRun,
    ListedSession,
    LogEntry,
    NewSession,
    SessionAgent,
    SessionBody,
    StoredSettings,
    configuration_of,
)
from quarterdeck.tools.model import ToolRule, ToolSpec

_ADD = """
INSERT INTO sessions
    (model, instructions, settings, tool_policy, client_tools, limits, sandbox, mcp_servers, output_schema,
     agent_id, agent_version, overrides, id, workspace_id, title, created_by, forked_from_session_id,
     forked_from_event_id)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
"""
_ADD_SKILL = "INSERT INTO session_skills (session_id, position, skill_id, version) VALUES (%s, %s, %s, %s)"
_DROP_SKILLS = """
DELETE FROM session_skills WHERE session_id IN (SELECT id FROM sessions WHERE workspace_id = %s AND id = %s)
"""
_CHANGE = """
UPDATE sessions
SET model = %s, instructions = %s, settings = %s, tool_policy = %s, client_tools = %s, limits = %s, sandbox = %s,
    mcp_servers = %s, output_schema = %s, agent_id = %s, agent_version = %s, overrides = %s,
    title_event_id = CASE WHEN title IS NOT DISTINCT FROM %s THEN title_event_id END,
    title = %s, archived_at = %s, revision = %s
WHERE workspace_id = %s AND id = %s
"""
# What people raised for the active run: the limits that are named, and those that now allow less than the session's.
_FORGET_RAISED = """
UPDATE runs SET max_cost_usd = CASE WHEN NOT %s AND max_cost_usd >= %s THEN max_cost_usd END,
                max_tokens = CASE WHEN NOT %s AND max_tokens >= %s THEN max_tokens END
WHERE workspace_id = %s AND session_id = %s AND state IN ('queued', 'running', 'waiting')
"""
_TOOL_POLICY = "SELECT tool_policy FROM sessions WHERE id = %s"
# Changes no revision: the session has not changed, but its agent.
_FOLLOW_AGENT = """
UPDATE sessions
SET model = %s, instructions = %s, settings = %s, tool_policy = %s, client_tools = %s, limits = %s, sandbox = %s,
    mcp_servers = %s, output_schema = %s
WHERE workspace_id = %s AND id = %s
"""
_SETTINGS = """
SELECT workspace_id, model, instructions, settings, tool_policy, client_tools, limits, sandbox, mcp_servers,
       output_schema, agent_id, agent_version, overrides,
       EXISTS (SELECT FROM session_skills u WHERE u.session_id = sessions.id)
FROM sessions WHERE id = %s
"""
_SKILLS = "SELECT skill_id, version FROM session_skills WHERE session_id = %s ORDER BY position"
# The weakest lock that conflicts with a deletion.
_PREVENT_DELETION = "SELECT FROM sessions WHERE id = %s FOR KEY SHARE"
_GET = """
SELECT s.id, s.workspace_id, s.title, s.model, s.settings, used.skills, s.archived_at, s.revision,
       a.id, s.agent_version, a.name, coalesce(s.agent_version, a.default_version, a.latest_version), s.overrides,
       u.id, u.display_name, u.email, s.instructions, s.tool_policy, s.client_tools, s.limits, s.sandbox,
       s.mcp_servers, s.output_schema, spent.input_tokens, spent.cached_tokens, spent.output_tokens, spent.cost_usd,
       s.forked_from_session_id, s.forked_from_event_id
FROM sessions s JOIN users u ON u.id = s.created_by LEFT JOIN agents a ON a.id = s.agent_id
CROSS JOIN LATERAL (
    SELECT json_agg(json_build_object('skill_id', k.skill_id, 'version', k.version) ORDER BY k.position) AS skills
    FROM session_skills k WHERE k.session_id = s.id
) AS used
CROSS JOIN LATERAL (
    SELECT s.expired_input_tokens + coalesce(sum(r.input_tokens), 0)::bigint AS input_tokens,
           s.expired_cached_tokens + coalesce(sum(r.cached_tokens), 0)::bigint AS cached_tokens,
           s.expired_output_tokens + coalesce(sum(r.output_tokens), 0)::bigint AS output_tokens,
           coalesce(sum(r.cost_usd) + s.expired_cost_usd, sum(r.cost_usd), s.expired_cost_usd)::float8 AS cost_usd
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
       a.id, s.agent_version, a.name, coalesce(s.agent_version, a.default_version, a.latest_version), s.overrides,
       u.id, u.display_name, u.email, active.id, active.state, last.id, last.state, entry.created_at,
       s.forked_from_session_id, s.forked_from_event_id
FROM ({page}) AS s JOIN users u ON u.id = s.created_by LEFT JOIN agents a ON a.id = s.agent_id
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
    SELECT id, workspace_id, title, model, settings, archived_at, revision, created_by, agent_id, agent_version,
           overrides, forked_from_session_id, forked_from_event_id
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
    session: NewSession,
    user_id: UUID,
    forked_from: ForkedFrom | None = None,
) -> None:
    columns = (*_columns(session.configuration), *_agent_columns(session.agent, session.overrides))
    origin = (None, None) if forked_from is None else (forked_from.session_id, forked_from.event_id)
    await connection.execute(_ADD, (*columns, session_id, workspace_id, session.title, user_id, *origin))
    await _add_skills(connection, session_id, session.configuration.skills)


async def change(connection: Connection, session: SessionBody) -> None:
    agent = None if session.agent is None else AgentReference(session.agent.agent_id, session.agent.version)
    columns = (*_columns(configuration_of(session)), *_agent_columns(agent, session.overrides))
    state = (session.title, session.title, session.archived_at, session.revision)
    await connection.execute(_CHANGE, (*columns, *state, session.workspace_id, session.id))
    await _replace_skills(connection, session.workspace_id, session.id, session.skills)


async def forget_raised_limits(connection: Connection, session: SessionBody, names: Collection[str]) -> None:
    """The active run has these limits of the session again, and those that allow it more than what was raised."""
    limit = session.limits.run
    cost, tokens = ("max_cost_usd" in names, limit.max_cost_usd), ("max_tokens" in names, limit.max_tokens)
    await connection.execute(_FORGET_RAISED, (*cost, *tokens, session.workspace_id, session.id))


async def follow_agent(
    connection: Connection, workspace_id: UUID, session_id: UUID, configuration: AgentConfiguration
) -> None:
    """Stores what the session has from its agent, but for the skills."""
    await connection.execute(_FOLLOW_AGENT, (*_columns(configuration), workspace_id, session_id))


async def follow_skills(
    connection: Connection, workspace_id: UUID, session_id: UUID, skills: list[SessionSkill]
) -> None:
    """Writes nothing if the session has these."""
    rows = await (await connection.execute(_SKILLS, (session_id,))).fetchall()
    if [SessionSkill(*row) for row in rows] != skills:
        await _replace_skills(connection, workspace_id, session_id, skills)


async def get(connection: Connection, workspace_id: UUID, session_id: UUID, default_model: str) -> SessionBody | None:
    """As stored: fields that follow an agent have the values of when they were stored."""
    row = await (await connection.execute(_GET, (workspace_id, session_id))).fetchone()
    if row is None:
        return None
    instructions, tool_policy, client_tools, limits, sandbox, mcp_servers, output_schema = row[16:23]
    return SessionBody(
        **_fields(row[:16], default_model),
        instructions=instructions,
        tool_policy=msgspec.convert(tool_policy, dict[str, ToolRule]),
        client_tools=msgspec.convert(client_tools, list[ToolSpec]),
        limits=msgspec.convert(limits, Limits),
        sandbox=msgspec.convert(sandbox, SandboxOptions | None),
        mcp_servers=mcp_servers,
        output_schema=output_schema,
        usage=Usage(*row[23:27]),
        forked_from=_origin(row[27], row[28]),
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


async def settings(connection: Connection, session_id: UUID) -> StoredSettings | None:
    row = await (await connection.execute(_SETTINGS, (session_id,))).fetchone()
    if row is None:
        return None
    workspace_id, model, instructions, options, tool_policy, client_tools, limits, sandbox, *rest = row
    mcp_servers, output_schema, agent_id, agent_version, overrides, has_skills = rest
    return StoredSettings(
        workspace_id=workspace_id,
        configuration=AgentConfiguration(
            model=model,
            settings=msgspec.convert(options, ModelOptions),
            instructions=instructions,
            client_tools=msgspec.convert(client_tools, list[ToolSpec]),
            mcp_servers=mcp_servers,
            tool_policy=msgspec.convert(tool_policy, dict[str, ToolRule]),
            limits=msgspec.convert(limits, Limits),
            sandbox=msgspec.convert(sandbox, SandboxOptions | None),
            output_schema=output_schema,
        ),
        agent=None if agent_id is None else AgentReference(agent_id, agent_version),
        overrides=[ConfigurationField(name) for name in overrides],
        has_skills=has_skills,
    )


async def _replace_skills(
    connection: Connection, workspace_id: UUID, session_id: UUID, skills: list[SessionSkill]
) -> None:
    await connection.execute(_DROP_SKILLS, (workspace_id, session_id))
    await _add_skills(connection, session_id, skills)


async def _add_skills(connection: Connection, session_id: UUID, skills: list[SessionSkill]) -> None:
    if skills:
        rows = [(session_id, position, skill.skill_id, skill.version) for position, skill in enumerate(skills)]
        await connection.cursor().executemany(_ADD_SKILL, rows)


def _columns(configuration: AgentConfiguration) -> tuple[Any, ...]:
    """From `model` to `output_schema`."""
    assert configuration.sandbox is not UNSET
    return (
        configuration.model,
        configuration.instructions,
        _stored(configuration.settings),
        Jsonb(configuration.tool_policy),
        Jsonb(msgspec.to_builtins(configuration.client_tools)),
        Jsonb(msgspec.to_builtins(configuration.limits)),
        None if configuration.sandbox is None else Jsonb(msgspec.to_builtins(configuration.sandbox)),
        configuration.mcp_servers,
        None if configuration.output_schema is None else Jsonb(configuration.output_schema),
    )


def _agent_columns(agent: AgentReference | None, overrides: list[ConfigurationField]) -> tuple[Any, ...]:
    reference = (None, None) if agent is None else (agent.agent_id, agent.version)
    return (*reference, [field.value for field in overrides])


def _stored(settings: ModelOptions) -> Jsonb:
    return Jsonb({name: value for name, value in msgspec.structs.asdict(settings).items() if value is not None})


def _listed(row: tuple[Any, ...], default_model: str) -> ListedSession:
    fields = _fields(row[:16], default_model)
    active_id, active_state, last_id, last_state, last_event_at, *origin = row[16:]
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
    session_id, workspace_id, title, model, settings, skills, archived_at, revision = row[:8]
    agent_id, agent_version, agent_name, current_version, overrides, user_id, name, email = row[8:]
    return {
        "id": session_id,
        "workspace_id": workspace_id,
        "title": title,
        "model": model,
        "effective_model": default_model if model is None else model,
        "settings": msgspec.convert(settings, ModelOptions),
        "skills": msgspec.convert(skills or [], list[SessionSkill]),
        "agent": None if agent_id is None else SessionAgent(agent_id, agent_version, agent_name, current_version),
        "overrides": [ConfigurationField(field) for field in overrides],
        "created_at": created_at(session_id),
        "created_by": ActorBody(user_id, name, email),
        "archived_at": archived_at,
        "revision": revision,
    }


_HAS_EVENT = "SELECT FROM session_events WHERE session_id = %s AND id = %s"
# One statement, so one snapshot: events become visible in the order of their ids, and the states of runs fit to them.
# The sizes are those of stored values, which are not read. LIKE: only then the index session_events_of_input is used.
# LIMIT 1 instead of EXISTS: PostgreSQL would read the discarded inputs of all sessions into a hash table.
_ENTRIES = """
SELECT e.id, e.run_id, e.type,
       CASE WHEN e.type IN ('input.consumed', 'input.discarded') THEN coalesce(e.input_event_id, (
           SELECT a.id FROM session_events a
           WHERE a.session_id = e.session_id AND a.data->>'input_id' = e.data->>'input_id'
             AND a.type LIKE 'input.%%' AND a.type = 'input.accepted'
       )) END,
       pg_column_size(e.data) + coalesce(pg_column_size(e.record), 0),
       coalesce(r.state NOT IN ('succeeded', 'failed', 'cancelled'), false), coalesce(r.unanswered_left_out, false),
       e.type = 'input.consumed' AND (
           SELECT d.id FROM session_events d
           WHERE d.session_id = e.session_id AND d.data->>'input_id' = e.data->>'input_id'
             AND d.type LIKE 'input.%%' AND d.type = 'input.discarded' LIMIT 1
       ) IS NOT NULL
FROM session_events e LEFT JOIN runs r ON r.id = e.run_id
WHERE e.session_id = %s AND e.id < %s AND e.type <> 'session.forked'
ORDER BY e.id LIMIT %s
"""
_LAST_ANSWERS = """
SELECT e.run_id, max(e.id) FROM session_events e
WHERE e.session_id = %s AND e.type = 'message' AND e.run_id = ANY (%s::uuid[]) GROUP BY e.run_id
"""
_NEW_IDS = "SELECT nextval('session_event_ids') FROM generate_series(1, %s)"
# A title that quotes an input expires with the beginning of the log.
_MARK_TITLE = """
UPDATE sessions f SET title_event_id = (SELECT min(e.id) FROM session_events e WHERE e.session_id = f.id)
FROM sessions o WHERE f.id = %s AND o.id = %s AND o.title_event_id IS NOT NULL
"""
# For the rest of the transaction the trigger adds no words for the search: see add_conversation_words().
_ADD_NO_WORDS = "SELECT set_config('app.copies_events', 'on', true)"
# Inputs have no workspace_id, since they would be counted a second time. next_run_id may name a run that is not copied.
# What the model does not see is marked in `record`: see read_conversation().
_COPY = """
INSERT INTO session_events (id, session_id, run_id, type, created_at, data, record, input_event_id)
SELECT c.new_id, %s, c.new_run_id, e.type, e.created_at,
       CASE e.type WHEN 'run.failed' THEN e.data - 'next_run_id' ELSE e.data END,
       CASE WHEN c.hidden THEN '{"left_out": true}'::jsonb ELSE e.record END, c.new_accepted_id
FROM unnest(%s::bigint[], %s::bigint[], %s::uuid[], %s::bigint[], %s::boolean[])
    AS c (old_id, new_id, new_run_id, new_accepted_id, hidden)
JOIN session_events e ON e.session_id = %s AND e.id = c.old_id AND e.id BETWEEN %s AND %s
ORDER BY c.old_id
"""


async def has_event(connection: Connection, session_id: UUID, event_id: int) -> bool:
    return (await connection.execute(_HAS_EVENT, (session_id, event_id))).rowcount == 1


async def entries(connection: Connection, session_id: UUID, before_id: int, count: int) -> list[LogEntry]:
    """The oldest `count` events before this one, without their content."""
    rows = await (await connection.execute(_ENTRIES, (session_id, before_id, count))).fetchall()
    return [LogEntry(*row) for row in rows]


async def mark_title(connection: Connection, origin_id: UUID, fork_id: UUID) -> None:
    await connection.execute(_MARK_TITLE, (fork_id, origin_id))


async def last_answers(connection: Connection, session_id: UUID, run_ids: Sequence[UUID]) -> dict[UUID, int]:
    return dict(await (await connection.execute(_LAST_ANSWERS, (session_id, list(run_ids)))).fetchall())


async def new_event_ids(connection: Connection, count: int) -> list[int]:
    rows = await (await connection.execute(_NEW_IDS, (count,))).fetchall()
    return [event_id for (event_id,) in rows]


async def add_no_words(connection: Connection) -> None:
    await connection.execute(_ADD_NO_WORDS)


async def copy_events(
    connection: Connection,
    origin_id: UUID,
    fork_id: UUID,
    batch: Sequence[LogEntry],
    run_ids: Sequence[UUID | None],
    new_ids: Mapping[int, int],
    hidden: set[int],
) -> None:
    """`run_ids`: of the copies. `new_ids`: of all copied events, by their ids in the origin."""
    values = (
        [one.id for one in batch],
        [new_ids[one.id] for one in batch],
        list(run_ids),
        [None if one.accepted_id is None else new_ids[one.accepted_id] for one in batch],
        [one.id in hidden for one in batch],
    )
    await connection.execute(_COPY, (fork_id, *values, origin_id, batch[0].id, batch[-1].id))


# Texts that a search looks at: so many are fetched and sorted in a few hundredths of a second.
MAX_MATCHES = 10_000

_MATCHING = "SELECT matching_sessions(%s, %s, %s)"
_AMONG = """
SELECT id FROM sessions
WHERE workspace_id = %s AND id = ANY (%s) AND id BETWEEN %s AND %s AND (archived_at IS NOT NULL) = %s
"""
_PURGE = """
DELETE FROM conversation_words
WHERE ctid = ANY (ARRAY(SELECT ctid FROM conversation_words WHERE session_id = %s ORDER BY event_id LIMIT %s))
"""


def _walk_query(*, archived: bool, newest_first: bool) -> str:
    """Reads the sessions in order and tests the texts of each. OFFSET 0 keeps PostgreSQL from collecting all matches
    first; the query is made once, in a subquery of its own."""
    order = "DESC" if newest_first else "ASC"
    # All parts of the statement are constants.
    return f"""
SELECT id FROM sessions
WHERE (workspace_id, id) BETWEEN (%s, %s) AND (%s, %s) AND archived_at IS {"NOT NULL" if archived else "NULL"}
  AND EXISTS (
      SELECT FROM conversation_words w
      WHERE w.session_id = sessions.id AND w.words @@ (SELECT search_query(%s, %s)) OFFSET 0
  )
ORDER BY workspace_id {order}, id {order} LIMIT %s
"""  # noqa: S608


_WALKS = {
    (archived, newest_first): _walk_query(archived=archived, newest_first=newest_first)
    for archived in (True, False)
    for newest_first in (True, False)
}


async def find(
    connection: Connection,
    workspace_id: UUID,
    start: UUID,
    count: int,
    *,
    archived: bool,
    search: str,
    newest_first: bool,
    max_matches: int = MAX_MATCHES,
) -> list[UUID]:
    """The ids of `count` sessions from `start` on, inclusive, whose conversation matches.

    All matches come from the index, which has no order. If there are too many to sort, matches are frequent, and the
    first sessions that have one are soon found in order."""
    lowest, highest = bounds(start, newest_first=newest_first)
    among = (lowest, highest, archived, newest_first)
    try:
        found = await _find(connection, workspace_id, search, among, count, max_matches)
    except driver_errors.TIMED_OUT as fault:
        raise errors.search_too_slow() from fault
    return sorted(found, reverse=newest_first)[:count]


async def _find(
    connection: Connection,
    workspace_id: UUID,
    search: str,
    among: tuple[UUID, UUID, bool, bool],
    count: int,
    max_matches: int,
) -> list[UUID]:
    lowest, highest, archived, newest_first = among
    rows = await (await connection.execute(_MATCHING, (workspace_id, search, max_matches))).fetchall()
    matching = [session_id for (session_id,) in rows]
    if matching == [None]:
        values = (workspace_id, lowest, workspace_id, highest, workspace_id, search, count)
        rows = await (await connection.execute(_WALKS[archived, newest_first], values)).fetchall()
    elif matching:
        rows = await (await connection.execute(_AMONG, (workspace_id, matching, lowest, highest, archived))).fetchall()
    return [session_id for (session_id,) in rows]


async def purge_search(connection: Connection, session_id: UUID, batch: int) -> int:
    return (await connection.execute(_PURGE, (session_id, batch))).rowcount
