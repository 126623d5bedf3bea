"""SQL for sessions."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from msgspec import UNSET
from psycopg.types.json import Jsonb

from quarterdeck.agents.configuration import AgentConfiguration, AgentReference, ConfigurationField, SessionSkill
from quarterdeck.core import errors
from quarterdeck.core.actors import Principal
from quarterdeck.core.ids import created_at, new_id
from quarterdeck.core.pages import bounds
from quarterdeck.core.secrets import Secret
from quarterdeck.db import driver_errors
from quarterdeck.db.database import Connection
from quarterdeck.db.records import (
    ARCHIVED_FILTERS,
    Pages,
    Records,
    Row,
    as_record,
    fetch_column,
    fetch_record,
    fetch_records,
    fetch_rows,
    fetch_value,
)
from quarterdeck.models.model import ModelOptions
from quarterdeck.sessions.model import (
    CreateSessionTokenBody,
    ForkedFrom,
    ListedSession,
    LogEntry,
    NewSession,
    SessionBody,
    SessionTokenBody,
    StoredSettings,
    configuration_of,
)
from quarterdeck.tools.model import ToolRule

# In the order of `_columns`.
_CONFIGURATION = """model, instructions, settings, tool_policy, client_tools, limits, sandbox, mcp_servers,
    output_schema, fallback_models"""
_ADD = f"""
INSERT INTO sessions ({_CONFIGURATION}, agent_id, agent_version, overrides, id, workspace_id, title, created_by,
                      forked_from_session_id, forked_from_event_id)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
"""  # noqa: S608  built from constants
_ADD_SKILL = "INSERT INTO session_skills (session_id, position, skill_id, version) VALUES (%s, %s, %s, %s)"
_DROP_SKILLS = """
DELETE FROM session_skills WHERE session_id IN (SELECT id FROM sessions WHERE workspace_id = %s AND id = %s)
"""
_CHANGE = f"""
UPDATE sessions
SET ({_CONFIGURATION}, agent_id, agent_version, overrides) = (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s),
    title_event_id = CASE WHEN title IS NOT DISTINCT FROM %s THEN title_event_id END,
    title = %s, archived_at = %s, revision = %s
WHERE workspace_id = %s AND id = %s
"""  # noqa: S608  built from constants
# Removes limits that people raised for the active run: those that are named, and those that now allow less than the
# limits of the session.
_FORGET_RAISED = """
UPDATE runs SET max_cost_usd = CASE WHEN NOT %s AND max_cost_usd >= %s THEN max_cost_usd END,
                max_tokens = CASE WHEN NOT %s AND max_tokens >= %s THEN max_tokens END
WHERE workspace_id = %s AND session_id = %s AND state IN ('queued', 'running', 'waiting')
"""
_TOOL_POLICY = "SELECT tool_policy FROM sessions WHERE id = %s"
# Changes no revision: the session has not changed, but its agent.
_FOLLOW_AGENT = f"""
UPDATE sessions SET ({_CONFIGURATION}) = (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s) WHERE workspace_id = %s AND id = %s
"""  # noqa: S608  built from constants
_SETTINGS = """
SELECT workspace_id, overrides, EXISTS (SELECT FROM session_skills u WHERE u.session_id = sessions.id) AS has_skills,
       json_build_object(
           'model', model, 'instructions', instructions, 'settings', settings, 'tool_policy', tool_policy,
           'client_tools', client_tools, 'limits', limits, 'sandbox', sandbox, 'mcp_servers', mcp_servers,
           'output_schema', output_schema, 'fallback_models', fallback_models
       ) AS configuration,
       CASE WHEN agent_id IS NOT NULL
            THEN json_build_object('agent_id', agent_id, 'version', agent_version) END AS agent
FROM sessions WHERE id = %s
"""
_SKILLS = "SELECT skill_id, version FROM session_skills WHERE session_id = %s ORDER BY position"
# The weakest lock that conflicts with a deletion.
_PREVENT_DELETION = "SELECT FROM sessions WHERE id = %s FOR KEY SHARE"
# The columns of a session in a list and by itself. `r` is its row.
_SUMMARY = """r.id, r.workspace_id, r.title, r.model, r.settings, used.skills, r.archived_at, r.revision, r.overrides,
    actor(u) AS created_by,
    CASE WHEN a.id IS NOT NULL THEN json_build_object(
        'agent_id', a.id, 'version', r.agent_version, 'name', a.name,
        'current_version', coalesce(r.agent_version, a.default_version, a.latest_version)
    ) END AS agent,
    CASE WHEN r.forked_from_session_id IS NOT NULL THEN json_build_object(
        'session_id', r.forked_from_session_id, 'event_id', r.forked_from_event_id
    ) END AS forked_from"""
_SUMMARY_JOINS = """JOIN users u ON u.id = r.created_by LEFT JOIN agents a ON a.id = r.agent_id
CROSS JOIN LATERAL (
    SELECT coalesce(json_agg(json_build_object('skill_id', k.skill_id, 'version', k.version) ORDER BY k.position), '[]')
        AS skills
    FROM session_skills k WHERE k.session_id = r.id
) AS used"""
_GET = f"""
SELECT {_SUMMARY}, r.instructions, r.tool_policy, r.client_tools, r.limits, r.sandbox, r.mcp_servers, r.output_schema,
    r.fallback_models, (
    SELECT json_build_object(
        'input_tokens', r.expired_input_tokens + coalesce(sum(o.input_tokens), 0)::bigint,
        'cached_tokens', r.expired_cached_tokens + coalesce(sum(o.cached_tokens), 0)::bigint,
        'cache_write_tokens', r.expired_cache_write_tokens + coalesce(sum(o.cache_write_tokens), 0)::bigint,
        'output_tokens', r.expired_output_tokens + coalesce(sum(o.output_tokens), 0)::bigint,
        'cost_usd', coalesce(sum(o.cost_usd) + r.expired_cost_usd, sum(o.cost_usd), r.expired_cost_usd)::float8
    )
    FROM runs o WHERE o.session_id = r.id
) AS usage
FROM sessions r {_SUMMARY_JOINS}
WHERE r.workspace_id = %s AND r.id = %s
"""  # noqa: S608  built from constants
_LIST_COLUMNS = f"""{_SUMMARY}, active.run AS active_run, coalesce(active.run, last.run) AS last_run,
    entry.created_at AS last_activity_at"""
# ORDER BY names the session too, so that only the index of a session's runs fits, and not the one of all runs.
_LIST_JOINS = f"""{_SUMMARY_JOINS}
LEFT JOIN LATERAL (
    SELECT json_build_object('id', o.id, 'state', o.state) AS run
    FROM runs o WHERE o.session_id = r.id AND o.state IN ('queued', 'running', 'waiting') LIMIT 1
) AS active ON true
LEFT JOIN LATERAL (
    SELECT json_build_object('id', o.id, 'state', o.state) AS run
    FROM runs o WHERE o.session_id = r.id ORDER BY o.session_id DESC, o.id DESC LIMIT 1
) AS last ON true
LEFT JOIN LATERAL (
    SELECT e.created_at FROM session_events e WHERE e.session_id = r.id ORDER BY e.session_id DESC, e.id DESC LIMIT 1
) AS entry ON true"""  # noqa: S608  built from constants
# A search walks the same index and tests each title: docs/decisions/0020. Unlike LIKE, strpos gives % and _ no special
# meaning.
_TITLE_FILTER = "(%s::text IS NULL OR strpos(lower(title), lower(%s::text)) > 0)"
_SESSIONS = Pages(
    dict,
    table="sessions",
    columns=_LIST_COLUMNS,
    joins=_LIST_JOINS,
    filters={archived: f"{condition} AND {_TITLE_FILTER}" for archived, condition in ARCHIVED_FILTERS.items()},
)
# By ids that a search has found.
_FOUND = {
    newest_first: f"""
SELECT {_LIST_COLUMNS} FROM sessions r {_LIST_JOINS}
WHERE r.workspace_id = %s AND r.id = ANY (%s) ORDER BY r.id {order}
"""  # noqa: S608  built from constants
    for newest_first, order in ((True, "DESC"), (False, "ASC"))
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
    if await fetch_records(connection, SessionSkill, _SKILLS, (session_id,)) != skills:
        await _replace_skills(connection, workspace_id, session_id, skills)


async def get(connection: Connection, workspace_id: UUID, session_id: UUID, default_model: str) -> SessionBody | None:
    """As stored: fields that follow an agent have the values of when they were stored."""
    rows = await fetch_rows(connection, _GET, (workspace_id, session_id))
    return as_record(SessionBody, _with_model(rows[0], default_model)) if rows else None


async def page(
    connection: Connection,
    workspace_id: UUID,
    start: UUID,
    count: int,
    *,
    default_model: str,
    archived: bool,
    search: str | None,
    in_conversations: bool = False,
    newest_first: bool,
) -> list[ListedSession]:
    """`count` sessions from `start` on, inclusive: either archived or active, whose title contains `search`, or whose
    conversation matches it."""
    if search is not None and in_conversations:
        ids = await find(
            connection, workspace_id, start, count, archived=archived, search=search, newest_first=newest_first
        )
        rows = await fetch_rows(connection, _FOUND[newest_first], (workspace_id, ids))
    else:
        rows = await _SESSIONS.page(
            connection, workspace_id, start, count, search, search, filter_key=archived, newest_first=newest_first
        )
    return [_listed(row, default_model) for row in rows]


async def prevent_deletion(connection: Connection, session_id: UUID) -> bool:
    """False if the session does not exist. Otherwise it exists at least until the transaction ends."""
    return (await connection.execute(_PREVENT_DELETION, (session_id,))).rowcount == 1


async def delete(connection: Connection, workspace_id: UUID, session_id: UUID) -> None:
    await connection.execute(_DELETE, (workspace_id, session_id))


async def lock_deleted(connection: Connection) -> UUID | None:
    """A deleted session whose log still exists and that no other process is purging."""
    return await fetch_value(connection, _DELETED)


async def purge(connection: Connection, session_id: UUID, batch: int) -> bool:
    """Deletes one batch of the events and receipts of a deleted session. True if none are left."""
    events = (await connection.execute(_PURGE_EVENTS, (session_id, batch))).rowcount
    receipts = (await connection.execute(_PURGE_RECEIPTS, (session_id, batch))).rowcount
    if events == batch or receipts == batch:
        return False
    await connection.execute(_FORGET_DELETED, (session_id,))
    return True


async def tool_policy(connection: Connection, session_id: UUID) -> dict[str, ToolRule] | None:
    """None if there is no such session."""
    return msgspec.convert(await fetch_value(connection, _TOOL_POLICY, (session_id,)), dict[str, ToolRule] | None)


async def settings(connection: Connection, session_id: UUID) -> StoredSettings | None:
    return await fetch_record(connection, StoredSettings, _SETTINGS, (session_id,))


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
    """In the order of `_CONFIGURATION`."""
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
        configuration.fallback_models,
    )


def _agent_columns(agent: AgentReference | None, overrides: list[ConfigurationField]) -> tuple[Any, ...]:
    reference = (None, None) if agent is None else (agent.agent_id, agent.version)
    return (*reference, [field.value for field in overrides])


def _stored(settings: ModelOptions) -> Jsonb:
    return Jsonb({name: value for name, value in msgspec.structs.asdict(settings).items() if value is not None})


def _listed(row: Row, default_model: str) -> ListedSession:
    created = created_at(row["id"])
    # Events that a fork has copied are older than the fork.
    row["last_activity_at"] = max(row["last_activity_at"] or created, created)
    return as_record(ListedSession, _with_model(row, default_model))


def _with_model(row: Row, default_model: str) -> Row:
    return row | {"effective_model": default_model if row["model"] is None else row["model"]}


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
       )) END AS accepted_id,
       pg_column_size(e.data) + coalesce(pg_column_size(e.record), 0) AS stored_bytes,
       coalesce(r.state NOT IN ('succeeded', 'failed', 'cancelled'), false) AS run_is_active,
       coalesce(r.unanswered_left_out, false) AS unanswered_left_out,
       e.type = 'input.consumed' AND (
           SELECT d.id FROM session_events d
           WHERE d.session_id = e.session_id AND d.data->>'input_id' = e.data->>'input_id'
             AND d.type LIKE 'input.%%' AND d.type = 'input.discarded' LIMIT 1
       ) IS NOT NULL AS is_dropped
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
# Events that the model does not see are marked in `record`: see read_conversation().
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
    return await fetch_records(connection, LogEntry, _ENTRIES, (session_id, before_id, count))


async def mark_title(connection: Connection, origin_id: UUID, fork_id: UUID) -> None:
    await connection.execute(_MARK_TITLE, (fork_id, origin_id))


async def last_answers(connection: Connection, session_id: UUID, run_ids: Sequence[UUID]) -> dict[UUID, int]:
    return dict(await (await connection.execute(_LAST_ANSWERS, (session_id, list(run_ids)))).fetchall())


async def new_event_ids(connection: Connection, count: int) -> list[int]:
    return await fetch_column(connection, _NEW_IDS, (count,))


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


# Reads the sessions in order and tests the texts of each. OFFSET 0 keeps PostgreSQL from collecting all matches first;
# the query is made once, in a subquery of its own.
_WALKS = {
    (archived, newest_first): f"""
SELECT id FROM sessions
WHERE (workspace_id, id) BETWEEN (%s, %s) AND (%s, %s) AND {condition}
  AND EXISTS (
      SELECT FROM conversation_words w
      WHERE w.session_id = sessions.id AND w.words @@ (SELECT search_query(%s, %s)) OFFSET 0
  )
ORDER BY workspace_id {order}, id {order} LIMIT %s
"""  # noqa: S608  built from constants
    for archived, condition in ARCHIVED_FILTERS.items()
    for newest_first, order in ((True, "DESC"), (False, "ASC"))
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
    try:
        found: list[UUID | None] = await fetch_column(connection, _MATCHING, (workspace_id, search, max_matches))
        if found == [None]:
            values = (workspace_id, lowest, workspace_id, highest, workspace_id, search, count)
            found = await fetch_column(connection, _WALKS[archived, newest_first], values)
        elif found:
            found = await fetch_column(connection, _AMONG, (workspace_id, found, lowest, highest, archived))
    except driver_errors.TIMED_OUT as fault:
        raise errors.search_too_slow() from fault
    return sorted((one for one in found if one is not None), reverse=newest_first)[:count]


async def purge_search(connection: Connection, session_id: UUID, batch: int) -> int:
    return (await connection.execute(_PURGE, (session_id, batch))).rowcount


_ADD_TOKEN = """
INSERT INTO session_tokens
    (id, session_id, api_key_id, created_by, secret_hash, prefix, label, may_resolve, expires_at)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)
"""
_TOKENS = Records(
    SessionTokenBody,
    table="session_tokens",
    scope="session_id",
    columns="""r.id, r.session_id, r.prefix, r.label, r.may_resolve, r.api_key_id, r.expires_at, r.revoked_at,
        actor(u) AS created_by""",
    joins="JOIN users u ON u.id = r.created_by",
)
get_token = _TOKENS.get
page_of_tokens = _TOKENS.page
_REVOKE_TOKEN = """
UPDATE session_tokens SET revoked_at = clock_timestamp() WHERE session_id = %s AND id = %s AND revoked_at IS NULL
"""


async def add_token(
    connection: Connection,
    session_id: UUID,
    principal: Principal,
    secret: Secret,
    body: CreateSessionTokenBody,
    expires_at: datetime,
) -> SessionTokenBody:
    """`expires_at`: in place of that of the body."""
    token_id = new_id()
    maker = (principal.api_key_id, principal.user_id)
    values = (secret.hash, secret.prefix, body.label, body.may_resolve, expires_at)
    await connection.execute(_ADD_TOKEN, (token_id, session_id, *maker, *values))
    stored = await get_token(connection, session_id, token_id)
    assert stored is not None
    return stored


_TOKENS_OF_USER = """
SELECT t.id FROM session_tokens t JOIN sessions s ON s.id = t.session_id
WHERE s.workspace_id = %s AND t.created_by = %s AND t.revoked_at IS NULL AND t.expires_at > clock_timestamp()
"""
_REVOKE_TOKENS = """
UPDATE session_tokens SET revoked_at = clock_timestamp() WHERE id = ANY (%s) AND revoked_at IS NULL
"""


async def tokens_of_user(connection: Connection, workspace_id: UUID, user_id: UUID) -> list[UUID]:
    """Those that are valid."""
    return await fetch_column(connection, _TOKENS_OF_USER, (workspace_id, user_id))


async def revoke_tokens(connection: Connection, ids: list[UUID]) -> None:
    await connection.execute(_REVOKE_TOKENS, (ids,))


async def revoke_token(connection: Connection, session_id: UUID, token_id: UUID) -> bool:
    """False if the token was revoked already."""
    return (await connection.execute(_REVOKE_TOKEN, (session_id, token_id))).rowcount == 1
