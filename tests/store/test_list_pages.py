"""What a page of any list costs, and a batch of what is thrown away: its own rows, found where they begin. Not the rows
before it, nor those of others."""

import json
import re
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime
from typing import Any, cast
from uuid import UUID

import psycopg
import pytest
from msgspec import Struct
from psycopg import AsyncConnection

from quarterdeck.api_keys import store as api_keys
from quarterdeck.changes import store as changes
from quarterdeck.changes.model import AuditQuery, ObjectType
from quarterdeck.connections.credentials import store as credentials
from quarterdeck.connections.servers import store as mcp_servers
from quarterdeck.core.ids import HIGHEST_ID, LOWEST_ID
from quarterdeck.db.database import Connection
from quarterdeck.runs import action_store as actions
from quarterdeck.runs import store as runs
from quarterdeck.runs.action_model import ActionKind, ActionQuery, ActionState
from quarterdeck.sessions import expiry_store as expiry
from quarterdeck.sessions import store as sessions
from quarterdeck.skills import store as skills
from quarterdeck.webhooks import store as webhooks
from quarterdeck.webhooks.model import DeliveryState
from tests.store.test_sql_prepares import as_prepared
from tests.world import AS_OWNER, clone_database, drop_database

pytestmark = pytest.mark.long

BIG, SMALL = UUID(int=1), UUID(int=2)
# Rows of each list. One in `ROWS / FEW` is the small owner's, all over the list.
ROWS = 6_000
FEW = 20
LIMIT = 50
# Blocks that are read for a page whose rows lie side by side. Half of the entries of any index are more.
BLOCKS = 12
LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
MIDDLE = UUID(int=(100 + ROWS // 2) << 64)
FILL = """
INSERT INTO users (id, email) VALUES ('{one}', 'a@example.com');
INSERT INTO workspaces (id, name, owner_id) VALUES ('{big}', 'w', '{one}'), ('{small}', 'w', '{one}');
CREATE TEMPORARY TABLE rows AS
SELECT n, (lpad(to_hex(n + 100), 16, '0') || repeat('0', 16))::uuid AS id, few,
       CASE WHEN few THEN '{small}' ELSE '{big}' END::uuid AS owner
FROM generate_series(1, {rows}) n, LATERAL (SELECT n %% ({rows} / {few}) = 0 AS few) AS f;
INSERT INTO api_keys (id, workspace_id, lineage_id, label, prefix, secret_hash, permissions, created_by)
SELECT id, owner, id, 'l', 'p', sha256(id::text::bytea), '{{}}', '{one}' FROM rows;
INSERT INTO sessions (id, workspace_id, created_by) VALUES ('{big}', '{big}', '{one}'), ('{small}', '{big}', '{one}');
INSERT INTO sessions (id, workspace_id, created_by, archived_at)
SELECT id, owner, '{one}', CASE WHEN n %% 50 = 7 THEN now() END FROM rows;
INSERT INTO skills (id, workspace_id, name, created_by, archived_at)
SELECT id, owner, 's' || n, '{one}', CASE WHEN n %% 50 = 7 THEN now() END FROM rows;
INSERT INTO webhooks (id, workspace_id, url, host, events, secret, created_by)
SELECT id, owner, 'u', 'h', '{{}}', '', '{one}' FROM rows;
INSERT INTO credentials (id, workspace_id, name, kind, secret, created_by)
SELECT id, owner, 'c' || n, 'bearer', '', '{one}' FROM rows;
INSERT INTO webhook_deliveries (id, webhook_id, event, payload, state)
SELECT id, owner, 'e', '', CASE WHEN n %% 50 = 7 THEN 'failed' ELSE 'delivered' END FROM rows;
INSERT INTO mcp_servers (id, workspace_id, name, url, created_by) SELECT id, owner, 'm' || n, 'u', '{one}' FROM rows;
INSERT INTO session_tokens (id, session_id, api_key_id, created_by, secret_hash, prefix, expires_at)
SELECT id, owner, id, '{one}', sha256(id::text::bytea), 'p', now() FROM rows;
INSERT INTO audit_events (id, workspace_id, action, object_type, object_id, user_id, detail)
SELECT id, owner, 'a', 'run', '{one}', '{one}', '{{}}' FROM rows;
INSERT INTO receipts (scope_id, operation, key, fingerprint, body, created_at)
SELECT owner, 'o', md5(n::text), '', '', now() - interval '8 days' - n * interval '1 minute' FROM rows;
INSERT INTO runs (id, session_id, workspace_id, state, first_input, last_input, consumed_through)
SELECT id, owner, '{big}', 'succeeded', 1, 1, 1 FROM rows;
INSERT INTO session_events (session_id, workspace_id, type, data) SELECT owner, '{big}', 't', '{{}}' FROM rows;
INSERT INTO actions (id, workspace_id, session_id, run_id, kind, state, reason, expires_at, resolved_at, resolution)
SELECT id, owner, owner, id, 'approval', CASE WHEN strewn THEN 'open' ELSE 'resolved' END, 'r', now(),
       CASE WHEN NOT strewn THEN now() END, CASE WHEN NOT strewn THEN '{{}}'::jsonb END
FROM rows, LATERAL (SELECT n %% 50 = 7 AS strewn) AS s;
VACUUM ANALYZE
""".format(one=UUID(int=3), big=BIG, small=SMALL, rows=ROWS, few=FEW)

Page = Callable[[Connection, UUID, UUID, bool], Awaitable[object]]
Fetch = Callable[..., Awaitable[object]]


def plain(fetch: Fetch, **more: object) -> Page:
    return lambda connection, owner, start, first: fetch(connection, owner, start, LIMIT, newest_first=first, **more)


def deliveries(state: DeliveryState | None) -> Page:
    return lambda connection, owner, start, first: webhooks.page_of_deliveries(
        connection, owner, start, LIMIT, state=state, newest_first=first
    )


def entries(wanted: AuditQuery) -> Page:
    return lambda connection, owner, start, first: changes.page_of_audit_events(
        connection, owner, start, LIMIT, filters=wanted, newest_first=first
    )


def listed_actions(state: ActionState, kind: ActionKind | None = None) -> Page:
    filters = ActionQuery(state=state, kind=kind)
    return lambda connection, owner, start, first: actions.page(
        connection, owner, start, LIMIT, filters=filters, newest_first=first
    )


def actions_of_session(state: ActionState) -> Page:
    return lambda connection, owner, start, first: actions.page(
        connection, BIG, start, LIMIT, filters=ActionQuery(state=state, session_id=owner), newest_first=first
    )


# One in fifty is archived, or failed, and each of those lies in a block of its own.
STREWN = {"open actions", "open actions of a session", "archived sessions", "archived skills", "failed"}
# The table, and how a page of it is had.
LISTS: dict[str, tuple[str, Page]] = {
    "keys": ("api_keys", plain(api_keys.page)),
    "sessions": ("sessions", plain(sessions.page, default_model="demo", archived=False, search=None)),
    "archived sessions": ("sessions", plain(sessions.page, default_model="demo", archived=True, search=None)),
    "skills": ("skills", plain(skills.page, filter_key=False)),
    "MCP servers": ("mcp_servers", plain(mcp_servers.page)),
    "archived skills": ("skills", plain(skills.page, filter_key=True)),
    "webhooks": ("webhooks", plain(webhooks.page)),
    "credentials": ("credentials", plain(credentials.page)),
    "deliveries": ("webhook_deliveries", deliveries(None)),
    "delivered": ("webhook_deliveries", deliveries(DeliveryState.DELIVERED)),
    "failed": ("webhook_deliveries", deliveries(DeliveryState.FAILED)),
    "resolved actions": ("actions", listed_actions(ActionState.RESOLVED, ActionKind.APPROVAL)),
    "open actions": ("actions", listed_actions(ActionState.OPEN)),
    "open actions of a session": ("actions", actions_of_session(ActionState.OPEN)),
    "runs": ("runs", plain(runs.page)),
    "tokens": ("session_tokens", plain(sessions.page_of_tokens)),
    "audit": ("audit_events", entries(AuditQuery())),
    "audit by action": ("audit_events", entries(AuditQuery(action="a"))),
    "audit by person": ("audit_events", entries(AuditQuery(user_id=UUID(int=3)))),
    "audit by type": ("audit_events", entries(AuditQuery(object_type=ObjectType.RUN))),
    "audit by object": ("audit_events", entries(AuditQuery(object_id=UUID(int=3)))),
}


class Listening:
    """Takes the statement that a page or a batch begins with, instead of carrying it out."""

    def __init__(self) -> None:
        self.statement = ""
        self.values: tuple[object, ...] = ()

    def cursor(self, **_: object) -> "Listening":
        return self

    async def execute(self, statement: str, values: tuple[object, ...] | dict[str, object]) -> "Listening":
        if not self.statement:
            self.statement = statement
            names = re.findall(r"%\((\w+)\)s", statement)
            self.values = tuple(values[name] for name in names) if isinstance(values, dict) else values
        return self

    async def fetchall(self) -> list[tuple[Any, ...]]:
        return []

    async def fetchone(self) -> tuple[Any, ...]:
        return 0, 0, None

    rowcount = 0


class Cost(Struct):
    rows: int = 0
    blocks: int = 0


def cost(plan: dict[str, Any], table: str) -> Cost:
    """What was looked at in the table and its indexes."""
    if plan.get("Relation Name") == table and plan["Node Type"] != "ModifyTable":
        seen = plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0)
        # The blocks of a node contain those of its subqueries.
        blocks = _blocks(plan) - sum(map(_blocks, plan.get("Plans", ())))
        return Cost(round(seen * plan["Actual Loops"]), blocks)
    costs = [cost(inner, table) for inner in plan.get("Plans", ())]
    return Cost(sum(one.rows for one in costs), sum(one.blocks for one in costs))


def _blocks(plan: dict[str, Any]) -> int:
    blocks: int = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
    return blocks


@pytest.fixture(scope="module")
def filled(postgres_url: str, template: str) -> Iterator[str]:
    url = clone_database(postgres_url, template)
    with psycopg.connect(url, autocommit=True, options=AS_OWNER) as connection:
        for statement in FILL.replace("%%", "%").split(";\n"):
            connection.execute(statement.encode())
    yield url
    drop_database(postgres_url, url)


async def explained(connection: Connection, page: Listening, mode: str) -> dict[str, Any]:
    """`mode` is how PostgreSQL plans: for these values, or, as it does from the sixth time on, for all."""
    await connection.execute(f"SET plan_cache_mode = {mode}".encode())
    await connection.execute(f"PREPARE page AS {as_prepared(page.statement)}".encode())
    given = ", ".join(["%s"] * len(page.values))
    explain = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE page ({given})"
    async with connection.transaction(force_rollback=True), psycopg.AsyncClientCursor(connection) as cursor:
        row = await (await cursor.execute(explain.encode(), page.values)).fetchone()
    await connection.execute("DEALLOCATE page")
    assert row is not None
    plan: dict[str, Any] = (json.loads(row[0]) if isinstance(row[0], str) else row[0])[0]["Plan"]
    return plan


@pytest.mark.parametrize("name", LISTS)
async def test_a_page_costs_its_own_rows(filled: str, name: str) -> None:
    table, page = LISTS[name]
    async with await AsyncConnection.connect(filled, autocommit=True, options=AS_OWNER) as connection:
        for mode in ("force_custom_plan", "force_generic_plan"):
            for newest_first in (True, False):
                for start in (HIGHEST_ID if newest_first else LOWEST_ID, MIDDLE):
                    for owner in (BIG, SMALL):
                        listening = Listening()
                        await page(cast("Connection", listening), owner, start, newest_first)
                        found = cost(await explained(connection, listening, mode), table)
                        told = (mode, newest_first, start, owner, found)
                        assert found.rows <= (LIMIT + 1 if owner == BIG else FEW + 1), told
                        strewn = owner == SMALL or name in STREWN
                        assert found.blocks <= BLOCKS + (found.rows if strewn else 0), told


BATCHES: dict[str, tuple[str, Callable[[Connection], Awaitable[object]]]] = {
    "receipts": ("receipts", lambda connection: changes.delete_old_receipts(connection, LONG_AGO, 7, 7, LIMIT)),
    "deliveries": (
        "webhook_deliveries",
        lambda connection: webhooks.delete_old(connection, LOWEST_ID, 30, 30, LIMIT),
    ),
    "logs with old inputs": (
        "session_events",
        lambda connection: expiry.with_old_inputs(connection, BIG, (LONG_AGO, 0), 0, LIMIT),
    ),
    "sessions with old runs": ("runs", lambda connection: expiry.with_old_runs(connection, BIG, LOWEST_ID, 0, LIMIT)),
    "logs of deleted sessions": ("session_events", lambda connection: sessions.purge(connection, SMALL, LIMIT)),
    "actions of deleted sessions": ("actions", lambda connection: actions.purge(connection, SMALL, LIMIT)),
}


@pytest.mark.parametrize("name", BATCHES)
async def test_a_batch_of_a_sweep_costs_its_own_rows(filled: str, name: str) -> None:
    table, sweep = BATCHES[name]
    async with await AsyncConnection.connect(filled, autocommit=True, options=AS_OWNER) as connection:
        for mode in ("force_custom_plan", "force_generic_plan"):
            listening = Listening()
            await sweep(cast("Connection", listening))
            found = cost(await explained(connection, listening, mode), table)
            # Each is looked for, locked and deleted once.
            assert 0 < found.rows <= 3 * LIMIT, (mode, found)
