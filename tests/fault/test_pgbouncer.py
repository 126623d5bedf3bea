"""The service behind a real PgBouncer in transaction mode, and what it sets in sessions that it shares with others."""

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import psycopg
import pytest
from psycopg import AsyncConnection

from quarterdeck.core.errors import ErrorKind, ServiceError
from quarterdeck.core.settings import DatabaseSettings, Settings
from quarterdeck.db.database import Connection, Database, make_pool
from quarterdeck.db.pool import app_settings
from quarterdeck.server.metrics_scrape import DatabaseFigures
from tests.cli.command import qd_here
from tests.fault.postgres import own_postgres
from tests.pages import blocks_of
from tests.pgbouncer import PgBouncer, pgbouncer_running
from tests.sse import reading
from tests.workers import eventually, working
from tests.world import LOGIN, World, app_url, bundle, serving

pytestmark = pytest.mark.long

(EXAMPLE,) = blocks_of("docs/run/database.md", "ini", "PgBouncer")

# What another program, or a mistake, could leave behind in a session that PgBouncer gives to us next.
LEFT_BEHIND = {
    "role": "none",
    "search_path": "public",
    "lock_timeout": "0",
    "statement_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "synchronous_commit": "off",
    "default_transaction_read_only": "on",
    "default_transaction_isolation": "serializable",
    "DateStyle": "German",
    "IntervalStyle": "sql_standard",
    "bytea_output": "escape",
    "array_nulls": "off",
    "TimeZone": "Asia/Tokyo",
}


@pytest.fixture
def bouncer(database_url: str) -> Iterator[PgBouncer]:
    """With one session for all clients."""
    with pgbouncer_running(database_url, EXAMPLE.text, pool_size=1) as bouncer:
        yield bouncer


def through(bouncer: PgBouncer, database_url: str, **values: float) -> DatabaseSettings:
    return DatabaseSettings(url=bouncer.url(), direct_url=app_url(database_url), **values)  # type: ignore[arg-type]


@asynccontextmanager
async def opened(settings: DatabaseSettings) -> AsyncIterator[Database]:
    database = Database(str(settings.url), settings)
    await database.open()
    try:
        yield database
    finally:
        await database.close()


async def in_effect(connection: Connection) -> dict[str, str]:
    names = [*app_settings(DatabaseSettings()), "transaction_isolation", "transaction_read_only"]
    query = "SELECT name, setting FROM pg_settings WHERE name = ANY (%s) UNION SELECT 'role', current_user::text"
    return dict(await (await connection.execute(query, (names,))).fetchall())


async def test_settings_are_those_of_a_direct_connection(database_url: str, bouncer: PgBouncer) -> None:
    direct = make_pool(app_url(database_url), DatabaseSettings(), 1)
    await direct.open()
    async with direct.lease() as connection:
        expected = await in_effect(connection)
    await direct.close(5)
    async with await AsyncConnection.connect(bouncer.url(), autocommit=True, prepare_threshold=None) as other:
        for name, value in LEFT_BEHIND.items():
            await other.execute("SELECT set_config(%s, %s, false)", (name, value))
    settings = through(bouncer, database_url)
    async with opened(settings) as database:
        # What only applies to a transaction that says nothing about it.
        unused = {name for name in expected if name.startswith("default_")} | {"idle_session_timeout"}
        for attempt in (database.read(in_effect), database.transaction(in_effect, repeatable=True)):
            found = await attempt
            assert {name: found[name] for name in found.keys() - unused} == {
                name: expected[name] for name in expected.keys() - unused
            }
    async with await AsyncConnection.connect(bouncer.url(), autocommit=True, prepare_threshold=None) as other:
        left = await (await other.execute("SHOW search_path")).fetchone()
        assert left == ("public",), "a test of the test: the session is the same, and ours left nothing behind"


def test_the_metrics_port_reads_its_figures(database_url: str, bouncer: PgBouncer) -> None:
    with psycopg.connect(bouncer.url(), autocommit=True, prepare_threshold=None) as other:
        for name, value in LEFT_BEHIND.items():
            other.execute("SELECT set_config(%s, %s, false)", (name, value))
    figures = DatabaseFigures(Settings(database=through(bouncer, database_url)), bouncer.url())
    found = {family.name: family.samples[0].value for family in figures.collect()}
    assert found["quarterdeck_database_up"] == 1
    assert found["quarterdeck_queue_jobs"] == 0
    with psycopg.connect(bouncer.url(), autocommit=True, prepare_threshold=None) as other:
        left = other.execute("SELECT current_setting('role'), current_setting('statement_timeout')").fetchone()
    assert left == ("none", "0"), "changed for those who get the session next"


def test_the_start_recognises_a_pooler(database_url: str, bouncer: PgBouncer) -> None:
    direct = app_url(database_url)
    for urls, told in (
        ({"DATABASE_URL": bouncer.url()}, "set QUARTERDECK_DATABASE_DIRECT_URL"),
        ({"DATABASE_URL": direct, "DATABASE_DIRECT_URL": bouncer.url()}, "must be that of PostgreSQL itself"),
    ):
        for command in ("api", "worker"):
            refused = qd_here(command, **urls)
            assert refused.returncode == 2
            assert told in refused.stderr
            assert refused.stderr.count("\n") == 1


async def test_locks_errors_and_commits_are_those_of_a_direct_connection(database_url: str, bouncer: PgBouncer) -> None:
    settings = through(bouncer, database_url, lock_wait_seconds=0.3, pool_connections=1)
    async with opened(settings) as database:

        async def add(connection: Connection) -> None:
            await connection.execute("INSERT INTO users (id, email) VALUES (gen_random_uuid(), 'a@example.com')")

        async def add_and_fail(connection: Connection) -> None:
            await add(connection)
            raise ZeroDivisionError

        async def count(connection: Connection) -> int:
            row = await (await connection.execute("SELECT count(*) FROM users")).fetchone()
            assert row is not None
            return int(row[0])

        with pytest.raises(ZeroDivisionError):
            await database.statement(add_and_fail, repeatable=False)
        assert await database.read(count) == 0
        async with await AsyncConnection.connect(database_url) as holder:
            await holder.execute("LOCK TABLE app.users IN EXCLUSIVE MODE")
            with pytest.raises(ServiceError) as refused:
                await database.statement(add, repeatable=False)
            assert refused.value.kind is ErrorKind.CONTENDED
        await database.statement(add, repeatable=False)
        assert await database.read(count) == 1
        # More often than psycopg waits before it prepares a statement, and each time in a new session.
        for _ in range(8):
            with psycopg.connect(database_url, autocommit=True) as owner:
                owner.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE usename = %s AND datname = current_database() AND state = 'idle'",
                    (LOGIN,),
                )
            assert await database.read(count) == 1


async def test_everything_works_with_two_sessions_and_after_restarts(tmp_path: Path) -> None:
    with (
        own_postgres("bounced") as postgres,
        pgbouncer_running(postgres.url, EXAMPLE.text, pool_size=2) as bouncer,
    ):
        urls = {"DATABASE_URL": bouncer.url(), "DATABASE_DIRECT_URL": app_url(postgres.url)}
        # Without patience: with the database away, requests must be answered.
        with (
            serving(postgres.url, tmp_path, **urls) as server,
            working(postgres.url, tmp_path, **urls),
        ):
            async with httpx.AsyncClient(base_url=server.url, timeout=60) as http:
                world = await World.create(postgres.url, http)
                await eventually(lambda: _converse(world, server.url))
                assert (await world.push(await world.new_skill(), bundle())).status_code == 201
                # Two that listen, two of PgBouncer.
                sessions = await world.fetch(
                    "SELECT count(*) FROM pg_stat_activity WHERE usename = %s AND datname = current_database()", LOGIN
                )
                assert sessions[0][0] <= 4
                bouncer.stop()
                bouncer.start()
                await eventually(lambda: _converse(world, server.url))
                postgres.stop(signal.SIGQUIT)
                answers = await asyncio.gather(*(world.get("/v1/sessions") for _ in range(20)))
                assert {answer.status_code for answer in answers} == {503}
                postgres.start()
                await eventually(lambda: _converse(world, server.url))


async def _converse(world: World, url: str) -> bool:
    """A run, its log, and a repeated Idempotency-Key. After an outage each may take some attempts. Returns whether text
    was streamed: until the process listens again, it is not."""

    async def new_session() -> str | None:
        answer = await world.post("/v1/sessions", {})
        return answer.json()["id"] if answer.status_code == 201 else None

    async def submit() -> httpx.Response | None:
        answer = await world.submit(session_id, "demo: slow 1", idempotency_key=session_id)
        return answer if answer.status_code == 200 else None

    session_id: str = await eventually(new_session)
    async with reading(url, session_id, world.key) as reader:
        first = await eventually(submit)
        assert (await eventually(submit)).content == first.content
        seen = set()
        while "run.succeeded" not in seen:
            message = await reader.next()
            assert message is not None
            seen.add(message.event)
    return "message.delta" in seen
