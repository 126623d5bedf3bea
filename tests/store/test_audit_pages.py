"""A page of the audit log reads its own rows and not the whole log."""

import re
from collections.abc import AsyncIterator
from itertools import product
from uuid import UUID, uuid4

import psycopg
import pytest

from quarterdeck.changes import store
from quarterdeck.changes.model import AuditQuery, ObjectType
from quarterdeck.core.ids import HIGHEST_ID, LOWEST_ID
from quarterdeck.core.retention import RetentionDays
from quarterdeck.db.database import Connection
from quarterdeck.people import members
from quarterdeck.workspaces import service as workspaces
from tests.store.test_sql_prepares import as_prepared
from tests.world import AS_OWNER

FILL = """
INSERT INTO audit_events (id, workspace_id, action, object_type, object_id, user_id, detail)
SELECT lpad(to_hex(n), 32, '0')::uuid, %s, CASE WHEN n %% 5000 = 2 THEN 'rare' ELSE 'x' END,
       CASE WHEN n %% 5000 = 3 THEN 'webhook' ELSE 'session' END,
       CASE WHEN n %% 5000 = 0 THEN %s ELSE gen_random_uuid() END,
       CASE WHEN n %% 5000 = 1 THEN %s::uuid ELSE %s END, '{}'
FROM generate_series(1, 20000) n
"""
# With other ids than those above.
SOME = """
INSERT INTO audit_events (id, workspace_id, action, object_type, object_id, user_id, detail)
SELECT lpad(to_hex(n), 32, '0')::uuid, %s, 'y', 'run', gen_random_uuid(), %s, '{}' FROM generate_series(50001, 50030) n
"""
FETCHED = "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relname = 'audit_events'"
LIMIT = 50


async def fetched(connection: Connection) -> int:
    """Rows of the table that this transaction has read."""
    row = await (await connection.execute(FETCHED)).fetchone()
    assert row is not None
    count: int = row[0]
    return count


async def pages(
    connection: Connection, workspace_id: UUID, wanted: AuditQuery, *, newest_first: bool
) -> AsyncIterator[tuple[int, int]]:
    """The length of the first page, and how many rows were read for it. Repeated until the plan is generic."""
    start = HIGHEST_ID if newest_first else LOWEST_ID
    for _ in range(12):
        async with connection.transaction():
            before = await fetched(connection)
            page = await store.page_of_audit_events(
                connection, workspace_id, start, LIMIT, filters=wanted, newest_first=newest_first
            )
            yield len(page), await fetched(connection) - before


@pytest.mark.long
@pytest.mark.parametrize("first_planned", ["full", "empty", "analysed_empty", "small"])
async def test_a_page_does_not_read_the_whole_log(database_url: str, first_planned: str) -> None:
    """Also if the plan was first made while the table had few rows or none. The ANALYZE stands for autovacuum, which
    runs within a minute and replaces such plans."""
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True, options=AS_OWNER) as connection:
        workspace_id = await workspaces.create_workspace(connection, "x", "a@example.com")
        rare = await members.add_by_operator(connection, workspace_id, "b@example.com")
        often = (await workspaces.show_workspace(connection, workspace_id, RetentionDays())).owner.user_id
        thing = uuid4()
        cases = (
            (AuditQuery(), LIMIT),
            (AuditQuery(object_id=thing), 4),
            (AuditQuery(object_id=uuid4()), 0),
            (AuditQuery(object_id=thing, user_id=rare), 0),
            (AuditQuery(user_id=rare), 4),
            (AuditQuery(user_id=often), LIMIT),
            (AuditQuery(user_id=uuid4()), 0),
            (AuditQuery(action="rare"), 4),
            (AuditQuery(action="x"), LIMIT),
            (AuditQuery(action="nothing"), 0),
            (AuditQuery(object_type=ObjectType.WEBHOOK), 4),
            (AuditQuery(object_type=ObjectType.SESSION), LIMIT),
            (AuditQuery(object_type=ObjectType.SKILL), 0),
            (AuditQuery(action="rare", object_type=ObjectType.WEBHOOK), 0),
            (AuditQuery(action="rare", user_id=often), 4),
            (AuditQuery(user_id=rare, object_type=ObjectType.WEBHOOK), 0),
        )
        if first_planned == "small":
            await connection.execute(SOME, (workspace_id, often))
        if first_planned in ("analysed_empty", "small"):
            await connection.execute("ANALYZE audit_events")
        if first_planned != "full":
            for (wanted, _), newest_first in product(cases, (True, False)):
                async for _ in pages(connection, workspace_id, wanted, newest_first=newest_first):
                    pass
        await connection.execute(FILL, (workspace_id, thing, rare, often))
        await connection.execute("ANALYZE audit_events")
        for (wanted, expected), newest_first in product(cases, (True, False)):
            async for length, read in pages(connection, workspace_id, wanted, newest_first=newest_first):
                assert length == expected
                assert read < 2 * LIMIT, (wanted, read)


INDEXES = {
    None: "audit_events_page",
    "object_id": "audit_events_object",
    "action": "audit_events_action",
    "user_id": "audit_events_user",
    "object_type": "audit_events_object_type",
}


@pytest.mark.parametrize("newest_first", [True, False])
@pytest.mark.parametrize("lead", INDEXES, ids=str)
async def test_each_filter_has_its_index(database_url: str, lead: str | None, newest_first: bool) -> None:
    """In the generic plan: one index scan that starts at the cursor, and no sort."""
    statement = as_prepared(store._PAGES[lead, newest_first])
    nothing = ", ".join(["NULL"] * statement.count("$"))
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True, options=AS_OWNER) as connection:
        await connection.execute("SET plan_cache_mode = force_generic_plan")
        await connection.execute(f"PREPARE page AS {statement}".encode())
        found = await connection.execute(f"EXPLAIN (COSTS OFF) EXECUTE page ({nothing})".encode())
        plan = [line for (line,) in await found.fetchall()]
    text = "\n".join(plan)
    direction = "Backward " if newest_first else ""
    assert f"Index Scan {direction}using {INDEXES[lead]} on audit_events a\n" in text, text
    (condition,) = [line for number, line in enumerate(plan) if "on audit_events a" in plan[number - 1]]
    column = lead or "workspace_id"
    assert re.match(rf" *Index Cond: \((\(workspace_id = \$1\) AND )?\(ROW\({column}, id\) >= ", condition), text
    assert condition.count(column) == 2, "the search begins at the cursor"
    assert "Sort" not in text
    assert "Seq Scan on audit_events" not in text
