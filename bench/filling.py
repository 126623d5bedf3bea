"""A long history, written by SQL instead of being lived through: sessions, runs, logs, words for the search, usage,
audit, receipts, keys.

The rows are those that the service would have written. What would be built row by row, indexes above all, is taken away
and made again in the same transaction: a fill that fails leaves the database as it was.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import psycopg
from psycopg import sql

Connection = psycopg.Connection[tuple[Any, ...]]
Tell = Callable[[str], None]

# Events of a run without tools: input accepted, run started, input consumed, message, run succeeded.
EVENTS_A_RUN = 5
# The last of every hundred sessions has a run that waits for a worker.
ACTIVE_EVERY = 100

_OWNER = "SELECT owner_id FROM workspaces WHERE id = %s"
_SCOPE = "SELECT lineage_id FROM api_keys WHERE workspace_id = %s ORDER BY id LIMIT 1"
_ACTOR = """
SELECT jsonb_build_object(
    'type', 'api_key', 'id', k.id, 'label', k.label, 'user_id', u.id, 'display_name', u.display_name)
FROM api_keys k JOIN users u ON u.id = k.created_by WHERE k.workspace_id = %s ORDER BY k.id LIMIT 1
"""
# The service draws ids one at a time: those of a whole history are taken from it at once.
_RESERVE = "SELECT setval('session_event_ids', nextval('session_event_ids') + %s) - %s"

# Their titles are from the inputs of their first runs.
_SESSIONS = """
INSERT INTO sessions (id, workspace_id, title, title_event_id, limits, sandbox, created_by)
SELECT ('01900000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, %(workspace)s,
       CASE WHEN j <= %(ended)s THEN 'What is on deck? ' || j END,
       CASE WHEN j <= %(ended)s THEN %(before)s + %(events_a_run)s * (j - 1) + 1 END,
       '{"run": {"max_tokens": null, "max_cost_usd": null}, "session": {"max_tokens": null, "max_cost_usd": null}}',
       '{}', %(owner)s
FROM generate_series(%(first)s, %(first)s + %(sessions)s - 1) n CROSS JOIN LATERAL (SELECT n - %(first)s + 1 AS j)
"""
# Rounds: each session has its first run before any has its second. Ids are UUIDv7 of the time of their run, over the
# last 30 days. Runs with numbers above `ended` are the active ones.
_PLAN = """
CREATE TEMPORARY TABLE planned_runs ON COMMIT DROP AS
SELECT j, at, j > %(ended)s AS active,
       (stamp || '70008' || serial)::uuid AS id, (stamp || '70018' || serial)::uuid AS input_id,
       ('01900000-0000-7000-8000-' || lpad(to_hex(%(first)s - 1 + n), 12, '0'))::uuid AS session_id,
       %(before)s + %(events_a_run)s * (least(j, %(ended)s + 1) - 1) + greatest(j - %(ended)s, 1) AS first_event
FROM (
    SELECT j, at, lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') AS stamp,
           lpad(to_hex(%(before)s + j), 15, '0') AS serial,
           CASE WHEN j <= %(ended)s THEN 1 + (j - 1) %% %(sessions)s ELSE %(active_every)s * (j - %(ended)s) END AS n
    FROM (
        SELECT j, now() - interval '30 days' * (1 - j / (%(runs)s + 1.0)::float8) AS at
        FROM generate_series(1, %(runs)s) j
    ) AS timed
    OFFSET 0
) AS numbered
"""
_ENDED_RUNS = """
INSERT INTO runs (id, session_id, workspace_id, state, attempt, last_input, consumed_through, updated_at, first_input,
                  takes_over, api_key_id, model, inputs_consumed, steps, input_tokens, output_tokens, started_at,
                  finished_at)
SELECT id, session_id, %(workspace)s, 'succeeded', 1, first_event, first_event, at + interval '4 s', first_event,
       '{}', %(key)s, 'demo', 1, 1, 900, 120, at + interval '10 ms', at + interval '4 s'
FROM planned_runs WHERE NOT active
"""
_ENDED_EVENTS = """
INSERT INTO session_events (id, session_id, run_id, workspace_id, input_event_id, type, created_at, data)
SELECT first_event + entry.number, session_id, run.id, CASE entry.number WHEN 0 THEN %(workspace)s::uuid END,
       CASE entry.number WHEN 2 THEN first_event END, entry.type, at + entry.later, entry.data
FROM planned_runs run CROSS JOIN LATERAL (VALUES
    (0, 'input.accepted', interval '0', jsonb_build_object(
        'input_id', input_id, 'text', 'What is on deck? ' || j, 'actor', %(actor)s::jsonb)),
    (1, 'run.started', interval '10 ms', '{"attempt": 1, "model": "demo", "skills": [], "agent": null,
        "settings": {"temperature": null, "max_output_tokens": null, "reasoning_effort": null}}'),
    (2, 'input.consumed', interval '11 ms', jsonb_build_object('input_id', input_id, 'step', 1)),
    (3, 'message', interval '4 s', jsonb_build_object('role', 'assistant', 'text', 'Well. ' || (
        SELECT string_agg('word' || (j * 7919 + n * n * 104729) %% 20000, ' ') FROM generate_series(1, 30) n))),
    (4, 'run.succeeded', interval '4 s', '{}')
) AS entry (number, type, later, data)
WHERE NOT active
"""
# What the trigger does row by row, which is disabled meanwhile.
_WORDS = """
INSERT INTO conversation_words (session_id, event_id, words)
SELECT e.session_id, e.id, words_of(%(workspace)s, e.data->>'text')
FROM planned_runs run JOIN session_events e
  ON e.session_id = run.session_id
 AND (e.id = run.first_event OR NOT run.active AND e.id = run.first_event + 3)
"""
# As record_step() counts them.
_RUN_USAGE = """
INSERT INTO run_usage (workspace_id, day, run_id, session_id, api_key_id, model, input_tokens, cached_tokens,
                       output_tokens)
SELECT %(workspace)s, (at AT TIME ZONE 'UTC')::date, id, session_id, %(key)s, 'demo', 900, 0, 120
FROM planned_runs WHERE NOT active
"""
_DAILY_USAGE = """
INSERT INTO daily_usage AS u (workspace_id, day, shard, input_tokens, cached_tokens, output_tokens)
SELECT %(workspace)s, (at AT TIME ZONE 'UTC')::date, get_byte(uuid_send(id), 15) & 15, 900 * count(*), 0, 120 * count(*)
FROM planned_runs WHERE NOT active GROUP BY 2, 3
ON CONFLICT (workspace_id, day, shard) DO UPDATE SET
    input_tokens = u.input_tokens + excluded.input_tokens, output_tokens = u.output_tokens + excluded.output_tokens
"""
_AUDIT_EVENTS = """
INSERT INTO audit_events (id, workspace_id, action, object_type, object_id, user_id, api_key_id, detail)
SELECT ('01900000-0000-7001-8000-' || lpad(to_hex(n), 12, '0'))::uuid, %(workspace)s, 'create_session', 'session',
       ('01900000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, %(owner)s, %(key)s, '{}'
FROM generate_series(%(first)s, %(first)s + %(sessions)s - 1) n
"""
_ACTIVE_RUNS = """
INSERT INTO runs (id, session_id, workspace_id, state, last_input, consumed_through, updated_at, first_input,
                  takes_over, api_key_id, unconsumed_bytes)
SELECT id, session_id, %(workspace)s, 'queued', first_event, first_event - 1, at, first_event, '{}', %(key)s, 20
FROM planned_runs WHERE active
"""
_ACTIVE_EVENTS = """
INSERT INTO session_events (id, session_id, run_id, workspace_id, type, created_at, data)
SELECT first_event, session_id, id, %(workspace)s, 'input.accepted', at,
       jsonb_build_object('input_id', input_id, 'text', 'Still waiting. ' || j, 'actor', %(actor)s::jsonb)
FROM planned_runs WHERE active
"""
_ACTIVE_JOBS = "SELECT count(enqueue_run(session_id, id)) FROM planned_runs WHERE active"
# Most are of inputs; one in thirty is of an operation with a longer answer.
_RECEIPTS = """
INSERT INTO receipts (scope_id, operation, key, fingerprint, body, created_at)
SELECT %(scope)s, CASE WHEN n %% 30 = 0 THEN 'create_session' ELSE 'submit_input' END, gen_random_uuid()::text,
       sha256(n::text::bytea),
       convert_to(format('{"outcome":"steered","run_id":"%%s"}', gen_random_uuid())
                  || CASE WHEN n %% 30 = 0 THEN repeat('x', 500) ELSE '' END, 'UTF8'),
       now() - interval '7 days' * (1 - n / (%(receipts)s + 1.0)::float8)
FROM generate_series(1, %(receipts)s) n
"""
# Nobody knows their secrets. One in twenty is revoked; the newest is an hour old.
_KEYS = """
INSERT INTO api_keys
    (id, workspace_id, lineage_id, label, prefix, secret_hash, permissions, created_by, last_used_at, revoked_at)
SELECT id, %(workspace)s, id, 'Key ' || n, 'qd_live_' || substr(md5(id::text), 1, 8), sha256(id::text::bytea),
       ARRAY['workspace.read', 'session.manage'], %(owner)s, CASE WHEN n %% 2 = 0 THEN now() END,
       CASE WHEN n %% 20 = 0 THEN now() END
FROM (
    SELECT n, (lpad(to_hex(((extract(epoch FROM now()) - 3600) * 1000)::bigint - %(keys)s + n), 12, '0')
               || '7000' || '8' || substr(md5(%(workspace)s::uuid || '/' || n), 1, 15))::uuid AS id
    FROM generate_series(1, %(keys)s) n
    OFFSET 0
) AS numbered
"""

_INDEXES = """
SELECT i.indrelid::regclass::text, c.conname::text, i.indexrelid::regclass::text,
       coalesce(pg_get_constraintdef(c.oid), pg_get_indexdef(i.indexrelid))
FROM pg_index i LEFT JOIN pg_constraint c ON c.conindid = i.indexrelid AND c.contype IN ('p', 'u')
WHERE i.indrelid = ANY (%s::text[]::regclass[])
  AND NOT EXISTS (SELECT FROM pg_constraint f WHERE f.conindid = i.indexrelid AND f.contype = 'f')
ORDER BY 1, 3
"""
_FOREIGN_KEYS = """
SELECT conrelid::regclass::text, conname::text, pg_get_constraintdef(oid)
FROM pg_constraint WHERE contype = 'f' AND conrelid = ANY (%s::text[]::regclass[]) ORDER BY 1, 2
"""


def fill(
    url: str,
    *,
    workspace_id: UUID,
    sessions: int,
    events: int,
    receipts: int,
    first: int = 1,
    tell: Tell = lambda _: None,
) -> None:
    """By the owner of a migrated database whose workspace has a key. Session number n, from `first` on, has the id
    `session_id(n)`. `events` are rounded down to whole runs. The newest receipt is of now, the oldest a week old."""
    active = sessions // ACTIVE_EVERY
    ended = (events - active) // EVENTS_A_RUN
    with _connected(url) as connection:
        with connection.transaction():
            total = ended * EVENTS_A_RUN + active
            actor = _one(connection, _ACTOR, workspace_id)
            values = {
                "workspace": workspace_id,
                "owner": _one(connection, _OWNER, workspace_id),
                "scope": _one(connection, _SCOPE, workspace_id),
                "key": actor["id"],
                "actor": json.dumps(actor),
                "before": _one(connection, _RESERVE, total, total),
                "first": first,
                "sessions": sessions,
                "receipts": receipts,
                "runs": ended + active,
                "ended": ended,
                "events_a_run": EVENTS_A_RUN,
                "active_every": ACTIVE_EVERY,
            }
            connection.execute("ALTER TABLE session_events DISABLE TRIGGER session_events_words")
            tables = ["sessions", "runs", "session_events", "run_usage", "audit_events", "receipts"]
            with _bare(connection, tables, tell):
                for name, statement in (
                    ("sessions", _SESSIONS),
                    ("plan of the runs", _PLAN),
                    ("ended runs", _ENDED_RUNS),
                    ("events of ended runs", _ENDED_EVENTS),
                    ("usage of ended runs", _RUN_USAGE),
                    ("audit", _AUDIT_EVENTS),
                    ("active runs", _ACTIVE_RUNS),
                    ("events of active runs", _ACTIVE_EVENTS),
                    ("receipts", _RECEIPTS),
                ):
                    _insert(connection, name, statement, values, tell)
            _insert(connection, "usage of days", _DAILY_USAGE, values, tell)
            with _bare(connection, ["conversation_words"], tell):
                _insert(connection, "words of inputs and messages", _WORDS, values, tell)
            connection.execute("ALTER TABLE session_events ENABLE TRIGGER session_events_words")
            # With indexes again: the workspace of each run is looked up.
            _insert(connection, "jobs of active runs", _ACTIVE_JOBS, values, tell)
        _settle(connection, tell)


def fill_keys(url: str, *, workspace_id: UUID, keys: int, tell: Tell = lambda _: None) -> None:
    with _connected(url) as connection:
        with connection.transaction():
            values = {"workspace": workspace_id, "owner": _one(connection, _OWNER, workspace_id), "keys": keys}
            with _bare(connection, ["api_keys"], tell):
                _insert(connection, "keys", _KEYS, values, tell)
        _settle(connection, tell)


def session_id(number: int) -> UUID:
    """What generators of load can work out too."""
    return UUID(f"01900000-0000-7000-8000-{number:012x}")


@contextmanager
def _connected(url: str) -> Iterator[Connection]:
    options = "-c search_path=app -c synchronous_commit=off -c maintenance_work_mem=1GB -c jit=off"
    # Values become part of the statement, so that PostgreSQL takes them for what they look like.
    with psycopg.connect(url, autocommit=True, options=options, cursor_factory=psycopg.ClientCursor) as connection:
        yield connection


@contextmanager
def _bare(connection: Connection, tables: list[str], tell: Tell) -> Iterator[None]:
    """Without foreign keys, and without indexes that none points at. Made again, they hold for the new rows too."""
    indexes = connection.execute(_INDEXES, (tables,)).fetchall()
    foreign_keys = connection.execute(_FOREIGN_KEYS, (tables,)).fetchall()
    for table, constraint, _ in foreign_keys:
        _change(connection, "ALTER TABLE {} DROP CONSTRAINT {}", table, constraint)
    for table, constraint, index, _ in indexes:
        if constraint is None:
            _change(connection, "DROP INDEX {}", index)
        else:
            _change(connection, "ALTER TABLE {} DROP CONSTRAINT {}", table, constraint)
    yield
    tell("indexes and foreign keys")
    for table, constraint, _, definition in indexes:
        if constraint is None:
            connection.execute(definition)
        else:
            _change(connection, f"ALTER TABLE {{}} ADD CONSTRAINT {{}} {definition}", table, constraint)
    for table, constraint, definition in foreign_keys:
        _change(connection, f"ALTER TABLE {{}} ADD CONSTRAINT {{}} {definition}", table, constraint)


def _change(connection: Connection, statement: str, *names: str) -> None:
    connection.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))


def _insert(connection: Connection, name: str, statement: str, values: dict[str, Any], tell: Tell) -> None:
    tell(name)
    connection.execute(statement.encode(), values)


def _settle(connection: Connection, tell: Tell) -> None:
    """What PostgreSQL would do in the course of time: nobody is measured while it does."""
    tell("VACUUM and CHECKPOINT")
    connection.execute("VACUUM ANALYZE")
    connection.execute("CHECKPOINT")


def _one(connection: Connection, query: str, *values: object) -> Any:
    row = connection.execute(query.encode(), values).fetchone()
    assert row is not None, "the workspace is there, and has a key"
    return row[0]
