"""`qd migrate --check`: for deploy scripts, by exit code. It changes nothing."""

from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from quarterdeck.db import migrate as migrations
from tests.cli.command import qd_here
from tests.world import app_url, free_port, migrate_for_tests

UP_TO_DATE = (0, "The schema is up to date.\n", "")


def check(url: str, **settings: str) -> tuple[int, str, str]:
    done = qd_here("migrate", "--check", DATABASE_URL=url, **settings)
    return done.returncode, done.stdout, done.stderr


def execute(url: str, statement: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement.encode())


@pytest.mark.long
def test_an_empty_database_has_migrations_pending(empty_url: str) -> None:
    code, out, err = check(empty_url)
    assert (code, err) == (1, "")
    assert out.startswith("Pending: schema/01_workspaces, schema/02_api_keys, ")
    with psycopg.connect(empty_url) as connection:
        found = connection.execute("SELECT FROM pg_namespace WHERE nspname = 'app'").fetchall()
    assert found == []
    migrate_for_tests(empty_url)
    assert check(empty_url) == UP_TO_DATE


@pytest.mark.parametrize("login", ["owner", "service"])
def test_what_migrate_would_change_is_pending(database_url: str, login: str, monkeypatch: pytest.MonkeyPatch) -> None:
    url = database_url if login == "owner" else app_url(database_url)
    assert check(url) == UP_TO_DATE
    assert check(url, AUDIT_KEEP_DAYS="30") == (1, "Pending: retention of the audit log\n", "")
    changed = [migrations._Script("one", "SELECT 1;")]
    before = migrations._scripts
    with monkeypatch.context() as patched:
        patched.setattr(migrations, "_scripts", lambda name: changed if name == "functions" else before(name))
        assert check(url) == (1, "Pending: functions and privileges\n", "")
    # As a dump that was restored without privileges.
    execute(database_url, "REVOKE USAGE ON SCHEMA app FROM quarterdeck_app")
    if login == "owner":
        assert check(url) == (1, "Pending: functions and privileges\n", "")
        assert qd_here("migrate", DATABASE_URL=url).returncode == 0
        assert check(url) == UP_TO_DATE


def test_a_newer_schema_is_2(database_url: str) -> None:
    execute(database_url, "INSERT INTO app.migrations (name, sha256) VALUES ('9999_future', 'x')")
    expected = "qd: the database was migrated by a newer release (9999_future); upgrade this one\n"
    assert check(database_url) == (2, "", expected)


def test_no_database_is_2(postgres_url: str, tmp_path: Path) -> None:
    nowhere = f"postgresql://nobody@127.0.0.1:{free_port()}/none"
    for url in (nowhere, make_conninfo(postgres_url, dbname="qd_does_not_exist")):
        code, out, err = check(url)
        assert (code, out, len(err.splitlines())) == (2, "", 1)
    folder = tmp_path / "data"
    done = qd_here("migrate", "--check", "--data", str(folder))
    assert (done.returncode, done.stdout, folder.exists()) == (2, "", False)
