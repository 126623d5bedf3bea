"""A history that bench/filling.py wrote is one that the service reads, and goes on with."""

from pathlib import Path

import httpx
import pytest
from bench.filling import ACTIVE_EVERY, fill, fill_keys, session_id
from bench.server import Server as BenchServer
from bench.waiting import add_waiting_runs, check_waiting

from tests.workers import ended, log_of, working
from tests.world import World, serving

SESSIONS = 2 * ACTIVE_EVERY
SCHEMA = """
SELECT i.indexrelid::regclass::text, pg_get_indexdef(i.indexrelid)
FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid WHERE c.relnamespace = 'app'::regnamespace
UNION ALL
SELECT conrelid::regclass || '.' || conname, pg_get_constraintdef(oid)
FROM pg_constraint WHERE connamespace = 'app'::regnamespace AND convalidated
ORDER BY 1, 2
"""
ENDED_RUN = ["input.accepted", "run.started", "input.consumed", "message", "run.succeeded"]


# Which columns and which fields of `data` a row has.
SHAPES = {
    "runs": "SELECT DISTINCT key FROM runs r, jsonb_each(jsonb_strip_nulls(to_jsonb(r)))"
    " WHERE session_id = %s AND state = 'succeeded'",
    "events": "SELECT DISTINCT e.type || '.' || key"
    " FROM session_events e, jsonb_each(jsonb_strip_nulls(to_jsonb(e) - 'data') || e.data)"
    " WHERE session_id = %s AND e.type = ANY ('{input.accepted,run.started,input.consumed,message,run.succeeded}')",
    "usage": "SELECT DISTINCT key FROM run_usage u, jsonb_each(jsonb_strip_nulls(to_jsonb(u))) WHERE session_id = %s",
    "sessions": "SELECT DISTINCT key FROM sessions s, jsonb_each(jsonb_strip_nulls(to_jsonb(s))) WHERE id = %s",
    "limits": "SELECT limits FROM sessions WHERE id = %s",
    "words": "SELECT DISTINCT e.type FROM conversation_words w JOIN session_events e ON e.id = w.event_id"
    " WHERE w.session_id = %s",
    "audit": "SELECT DISTINCT key FROM audit_events a, jsonb_each(jsonb_strip_nulls(to_jsonb(a)))"
    " WHERE key NOT IN ('address', 'request_id') AND object_id = %s AND action = 'create_session'",
}


async def filled_tables(world: World) -> set[str]:
    tables = await world.fetch(
        "SELECT relname FROM pg_class WHERE relnamespace = 'app'::regnamespace AND relkind = 'r'"
    )
    return {name for (name,) in tables if await world.fetch(f"SELECT FROM {name} LIMIT 1")}


async def check_against_lived_run(world: World, database_url: str, folder: Path) -> None:
    """A real run leaves nothing that generated ones do not leave: no other tables, no other columns or fields."""
    before = await filled_tables(world)
    lived = await world.new_session()
    with working(database_url, folder):
        await ended(world, (await world.submit(lived)).json()["run_id"])
    assert await filled_tables(world) <= before
    for table, query in SHAPES.items():
        of_lived, of_filled = [set(map(str, await world.fetch(query, one))) for one in (lived, str(session_id(1)))]
        assert of_lived, table
        assert of_lived <= of_filled, table


@pytest.mark.long
async def test_service_reads_generated_data(database_url: str, tmp_path: Path) -> None:
    with serving(database_url, tmp_path) as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=30) as http:
            world = await World.create(database_url, http)
            before = await world.fetch(SCHEMA)
            steps: list[str] = []
            fill(
                database_url,
                workspace_id=world.workspace_id,
                sessions=SESSIONS,
                events=10 * SESSIONS + 2,
                receipts=100,
                tell=steps.append,
            )
            fill_keys(database_url, workspace_id=world.workspace_id, keys=300)
            assert "sessions" in steps
            assert await world.fetch(SCHEMA) == before

            page = (await world.get("/v1/sessions?limit=200&order=asc")).json()
            assert [one["id"] for one in page["items"]] == [str(session_id(n + 1)) for n in range(SESSIONS)]
            waiting = [number + 1 for number, one in enumerate(page["items"]) if one["active_run"] is not None]
            assert waiting == [ACTIVE_EVERY, 2 * ACTIVE_EVERY]

            log = (await world.get(f"/v1/sessions/{session_id(ACTIVE_EVERY)}/events")).json()["items"]
            assert [one["type"] for one in log] == [*ENDED_RUN, *ENDED_RUN, "input.accepted"]
            runs = (await world.get(f"/v1/sessions/{session_id(1)}/runs")).json()["items"]
            assert [run["state"] for run in runs] == ["succeeded", "succeeded"]
            assert runs[0]["created_at"] > runs[1]["created_at"]

            keys = (await world.list_keys("?limit=200&order=asc")).json()
            rest = (await world.list_keys(f"?limit=200&order=asc&after={keys['next_cursor']}")).json()
            assert len(keys["items"]) + len(rest["items"]) == 300 + 1
            ((receipts, oldest),) = await world.fetch("SELECT count(*), (now() - min(created_at))::text FROM receipts")
            assert (receipts, oldest[:6]) == (100, "6 days")

            steered = await world.submit(str(session_id(ACTIVE_EVERY)))
            assert steered.json()["outcome"] == "steered"
            grown = (await world.get(f"/v1/sessions/{session_id(ACTIVE_EVERY)}/events")).json()["items"]
            assert [one["id"] for one in grown] == sorted({one["id"] for one in grown})
            assert grown[:-1] == log
            (jobs,) = await world.fetch("SELECT count(*) FROM run_jobs WHERE NOT taken")
            assert jobs == (2,)
            await check_against_lived_run(world, database_url, tmp_path)


@pytest.mark.long
async def test_generated_waiting_run_continues_with_an_answer(database_url: str, tmp_path: Path) -> None:
    with serving(database_url, tmp_path) as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=30) as http:
            world = await World.create(database_url, http)
            (session, _) = [await world.new_session() for _ in range(2)]
            filled = BenchServer(tmp_path, database_url, server.port, server.pid, world.workspace_id, world.key)
            await add_waiting_runs(filled)
            with working(database_url, tmp_path):
                actions = (await world.get(f"/v1/actions?session_id={session}&state=open")).json()["items"]
                assert [action["tool"] for action in actions] == ["add_note"]
                answer = await world.post(f"/v1/actions/{actions[0]['id']}/resolve", {"decision": "allow"})
                assert answer.status_code == 200, answer.text
                assert (await ended(world, actions[0]["run_id"]))["state"] == "succeeded"
            notes = [one["data"]["text"] for one in await log_of(world, session) if one["type"] == "note"]
            assert notes == [f"Deck {session}"]
            await check_waiting(filled, 1)
