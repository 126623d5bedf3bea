"""The sum of the connections: what the processes really open, and what the start says if they are too many."""

import re
from pathlib import Path

import psycopg
import pytest
from msgspec.structs import replace
from psycopg import sql
from psycopg.conninfo import make_conninfo

from quarterdeck.core.settings import (
    DatabaseSettings,
    MetricsSettings,
    ServerSettings,
    Settings,
    SettingsError,
)
from quarterdeck.server import embedded_postgres
from quarterdeck.server.connections import check_connections, demand_of_everything, embedded_max_connections
from tests.cli.command import qd, qd_here
from tests.workers import eventually, working
from tests.world import LOGIN, app_url, serving


def settings_of(url: str, *, processes: int = 1, **values: int) -> Settings:
    return Settings(
        server=ServerSettings(processes=processes),
        database=DatabaseSettings(url=url, **values),  # type: ignore[arg-type]
    )


@pytest.mark.long
async def test_processes_open_what_is_added_up(database_url: str, tmp_path: Path) -> None:
    settings = settings_of(app_url(database_url), processes=2, pool_connections=2, submit_connections=4)
    expected = demand_of_everything(settings).total
    assert expected == 2 * (2 + 4 + 1) + (2 + 1)
    assert demand_of_everything(replace(settings, metrics=MetricsSettings(port=9464))).total == expected + 1
    given = {"DATABASE_POOL_CONNECTIONS": 2, "DATABASE_SUBMIT_CONNECTIONS": 4}
    steady = 0
    with psycopg.connect(database_url, autocommit=True) as connection:

        async def number_stays() -> bool:
            """Ten times in a row. A connection that was closed can be counted for a moment."""
            nonlocal steady
            query = "SELECT count(*) FROM pg_stat_activity WHERE usename = %s AND datname = current_database()"
            row = connection.execute(query, (LOGIN,)).fetchone()
            assert row is not None
            steady = steady + 1 if row[0] == expected else 0
            return steady == 10

        with (
            serving(database_url, tmp_path, SERVER_PROCESSES=2, **given),
            working(database_url, tmp_path, **given),
        ):
            await eventually(number_stays)


@pytest.mark.long
def test_too_many_connections_are_refused_with_both_sums(database_url: str, tmp_path: Path) -> None:
    with psycopg.connect(database_url) as connection:
        row = connection.execute("SELECT current_setting('max_connections')::int").fetchone()
    assert row is not None
    sums = f"need 2600 (200 API processes x 13), and PostgreSQL allows {row[0] - 3} (max_connections {row[0]} less 3 "
    given = {"DATABASE_URL": app_url(database_url), "SERVER_PROCESSES": "200", "WORKER_PROCESSES": "50"}
    for refused, told in (
        (qd_here("api", "--data", str(tmp_path), **given), sums),
        (qd("serve", "--data", str(tmp_path), "--port", "0", **given), "need 3050 (200 API processes x 13 + 50 wo"),
    ):
        assert refused.returncode == 2
        assert told in refused.stderr
        assert refused.stderr.count("\n") == 1


def test_limits_of_the_login_and_connections_of_others_count(
    database_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    name = f"{LOGIN}_limited"
    url = make_conninfo(app_url(database_url), user=name, password="x")
    login = sql.Identifier(name)
    with psycopg.connect(database_url, autocommit=True) as owner:
        owner.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'x' CONNECTION LIMIT 20").format(login))
        try:
            settings = settings_of(url)
            with pytest.raises(SettingsError, match=r"need 22 .* allows 20 \(the limit of the login\)"):
                check_connections(url, settings, demand_of_everything(settings))
            fewer = settings_of(url, pool_connections=5, submit_connections=2)
            check_connections(url, fewer, demand_of_everything(fewer))
            assert capsys.readouterr().err == ""
            # Connections of other logins, such as that of the owner, do not count against this limit.
            owner.execute(sql.SQL("ALTER ROLE {} CONNECTION LIMIT 16").format(login))
            with psycopg.connect(url), psycopg.connect(url), psycopg.connect(url):
                check_connections(url, fewer, demand_of_everything(fewer))
            told = capsys.readouterr().err
            assert re.search(r"need 14 .*, other programs have \d, .* allows 16 \(the limit of the login\)", told)
        finally:
            owner.execute(sql.SQL("DROP ROLE {}").format(login))
    check_connections(url, settings, demand_of_everything(settings))
    assert "the database cannot be reached yet" in capsys.readouterr().err


@pytest.mark.long
def test_the_embedded_server_has_room_for_its_processes(tmp_path: Path) -> None:
    wanted = embedded_max_connections(Settings(server=ServerSettings(processes=10)))
    assert wanted == 10 * 13 + 9 + 30
    assert embedded_max_connections(Settings()) == 100

    def shown(max_connections: int | None = None) -> object:
        with embedded_postgres.running(tmp_path, max_connections) as url, psycopg.connect(url) as connection:
            return connection.execute("SHOW max_connections").fetchone()

    assert shown(wanted) == ("169",)
    with (tmp_path / "postgres" / "postgresql.conf").open("a") as file:
        file.write("max_connections = 180\n")
    assert shown(wanted) == ("180",), "as the operator wants it"
    assert shown() == ("180",)
