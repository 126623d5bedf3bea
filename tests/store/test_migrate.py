"""Bringing a database to this release's schema: once, whoever else tries, and never on a guess."""

from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context

import psycopg
import pytest
from psycopg import AsyncConnection
from psycopg.conninfo import make_conninfo

from quarterdeck.core.settings import Settings, SettingsError
from quarterdeck.db.migrate import MigrationError, is_current, migrate, pending_changes
from quarterdeck.server.connections import check_connections, demand_of
from tests.world import drop_database


def execute(url: str, statement: str, *values: object) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement.encode(), values)


def tables(url: str) -> set[str]:
    with psycopg.connect(url, autocommit=True) as connection:
        rows = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'app'").fetchall()
    return {name for (name,) in rows}


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
def test_another_encoding_is_refused(postgres_url: str, encoding: str) -> None:
    """SQL_ASCII is what `initdb` chooses without a locale. It stores any bytes, and psycopg returns them as bytes."""
    name = f"qd_{encoding}".lower()
    create = f"CREATE DATABASE {name} ENCODING '{encoding}' LOCALE_PROVIDER libc LOCALE 'C' TEMPLATE template0"
    execute(postgres_url, create)
    url = make_conninfo(postgres_url, dbname=name)
    try:
        message = f"the encoding of the database is {encoding} and must be UTF8.*createdb --encoding=UTF8"
        for work in (migrate, pending_changes):
            with pytest.raises(MigrationError, match=message):
                work(url)
        with pytest.raises(SettingsError, match=message):
            check_connections(url, Settings(), demand_of(Settings(), api_processes=0, workers=1))
        assert tables(url) == set()
    finally:
        drop_database(postgres_url, url)


async def current(url: str) -> bool:
    async with await AsyncConnection.connect(url, autocommit=True) as connection:
        return await is_current(connection)


async def test_an_empty_database_becomes_current_and_stays_so(empty_url: str) -> None:
    assert not await current(empty_url)
    applied = migrate(empty_url)
    folders = ("schema/", "0")
    assert applied == [name for folder in folders for name in sorted(applied) if name.startswith(folder)]
    assert "schema/01_workspaces" in applied
    assert await current(empty_url)
    assert {"sessions", "runs", "receipts", "migrations"} <= tables(empty_url)
    assert migrate(empty_url) == []
    assert await current(empty_url)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["threads", "processes"])
async def test_four_at_once_migrate_once(empty_url: str, kind: str) -> None:
    pool: ThreadPoolExecutor | ProcessPoolExecutor
    # Spawned: a fork would inherit the connections of this test.
    pool = ThreadPoolExecutor(4) if kind == "threads" else ProcessPoolExecutor(4, mp_context=get_context("spawn"))
    with pool:
        results = list(pool.map(migrate, [empty_url] * 4))
    assert sorted(map(bool, results)) == [False, False, False, True]
    assert await current(empty_url)


async def test_a_changed_migration_is_refused(empty_url: str) -> None:
    migrate(empty_url)
    execute(empty_url, "UPDATE app.migrations SET sha256 = 'other' WHERE name = 'schema/09_runs'")
    assert not await current(empty_url)
    with pytest.raises(MigrationError, match="schema/09_runs was changed"):
        migrate(empty_url)


async def test_a_database_from_before_the_first_release_is_refused(empty_url: str) -> None:
    execute(empty_url, "CREATE SCHEMA app")
    execute(empty_url, "CREATE TABLE app.migrations (name text PRIMARY KEY, sha256 text NOT NULL)")
    execute(empty_url, "INSERT INTO app.migrations VALUES ('0001_foundation', 'x'), ('0034_later', 'x')")
    assert not await current(empty_url)
    for work in (migrate, pending_changes):
        with pytest.raises(MigrationError, match=r"from before the first release .*: use a new database"):
            work(empty_url)
    assert tables(empty_url) == {"migrations"}


@pytest.mark.long
async def test_a_newer_database_serves_but_is_not_migrated(empty_url: str) -> None:
    migrate(empty_url)
    execute(empty_url, "INSERT INTO app.migrations (name, sha256) VALUES ('9999_future', 'x')")
    execute(empty_url, "DROP FUNCTION app.submit_inputs")
    assert await current(empty_url), "processes of this release go on until they are replaced"
    with pytest.raises(MigrationError, match="newer release"):
        migrate(empty_url)
    with psycopg.connect(empty_url) as connection:
        (found,) = connection.execute("SELECT to_regproc('app.submit_inputs') IS NULL").fetchall()
    assert found == (True,), "not even the functions of an older release are put back"


async def test_functions_are_installed_anew_each_time(empty_url: str) -> None:
    migrate(empty_url)
    execute(empty_url, "DROP FUNCTION app.submit_inputs")
    assert migrate(empty_url) == []
    with psycopg.connect(empty_url) as connection:
        (found,) = connection.execute("SELECT to_regproc('app.submit_inputs') IS NOT NULL").fetchall()
    assert found == (True,)


@pytest.mark.long
async def test_a_migration_that_fails_leaves_nothing(empty_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from quarterdeck.db import migrate as module

    broken = module._Script("9999_broken", "CREATE TABLE half (id int); SELECT 1 / 0;")
    with_broken = [*module._migrations(), broken]
    monkeypatch.setattr(module, "_migrations", lambda: with_broken)
    with pytest.raises(psycopg.errors.DivisionByZero):
        migrate(empty_url)
    assert "half" not in tables(empty_url)
    assert not await current(empty_url)
    monkeypatch.undo()
    assert migrate(empty_url) == [], "what came before it stays"
    assert await current(empty_url)
