"""Logins of the embedded PostgreSQL: everybody needs a password."""

import stat
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from quarterdeck.core.settings import DatabaseSettings
from quarterdeck.db.migrate import migrate
from quarterdeck.db.roles import AppRole
from quarterdeck.server.data_directory import Cluster, EmbeddedError
from quarterdeck.server.embedded_postgres import app_password, app_url, running
from quarterdeck.server.postgres_passwords import make_password

ROLE = DatabaseSettings().role


@pytest.fixture
def folder() -> Iterator[Path]:
    # Short, so that the socket is inside.
    with tempfile.TemporaryDirectory(prefix="qd-", dir="/tmp") as private:
        yield Path(private).resolve() / "data"


def who(url: str) -> object:
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT session_user::text").fetchone()
        assert row is not None
        return row[0]


def refusal(url: str) -> str:
    with pytest.raises(psycopg.OperationalError) as caught:
        psycopg.connect(url)
    return str(caught.value)


@pytest.mark.long
def test_nobody_logs_in_without_the_password_of_the_role(folder: Path) -> None:
    with running(folder) as owner:
        migrate(owner, AppRole(password=app_password(folder)))
        app = app_url(folder, ROLE)
        assert (who(owner), who(app)) == ("postgres", ROLE)
        no_file = str(folder / "none")
        for user in ("postgres", ROLE):
            assert "no password supplied" in refusal(make_conninfo(owner, user=user, passfile=no_file))
        assert "password authentication failed" in refusal(make_conninfo(app, user="postgres"))
        assert "password authentication failed" in refusal(make_conninfo(owner, user=ROLE))
        assert "does not have CONNECT" in refusal(make_conninfo(app, dbname="template1"))
        for name in ("owner", "app"):
            assert stat.S_IMODE((folder / f"postgres-{name}.password").stat().st_mode) == 0o600
        for url in (owner, app):
            assert "password" not in conninfo_to_dict(url)


@pytest.mark.long
def test_a_password_that_the_role_gave_itself_ends_with_the_next_migration(folder: Path) -> None:
    with running(folder) as owner:
        role = AppRole(password=app_password(folder))
        migrate(owner, role)
        with psycopg.connect(app_url(folder, ROLE), autocommit=True) as intruder:
            intruder.execute(f"ALTER ROLE {ROLE} PASSWORD 'other'")
        refusal(app_url(folder, ROLE))
        migrate(owner, role)
        assert who(app_url(folder, ROLE)) == ROLE
        refusal(make_conninfo(app_url(folder, ROLE), password="other"))


@pytest.mark.long
@pytest.mark.parametrize("left", ["nothing", "owner.new", "owner"])
def test_a_cluster_that_trusted_everybody_is_closed(folder: Path, left: str) -> None:
    """As a first start leaves it that is killed on the way. A rule of the operator stays."""
    with running(folder) as owner, psycopg.connect(owner) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 42 AS answer")
    password = Cluster(folder).owner_password
    if left == "nothing":
        password.unlink()
    elif left == "owner.new":
        password.rename(password.with_suffix(".new"))
    rules = folder / "postgres" / "pg_hba.conf"
    rules.write_text(f"local all backup peer\n{rules.read_text().replace('scram-sha-256', 'trust')}")
    with running(folder) as owner:
        assert "no password supplied" in refusal(make_conninfo(owner, passfile=str(folder / "none")))
        with psycopg.connect(owner) as connection:
            assert connection.execute("SELECT answer FROM kept").fetchall() == [(42,)]
    assert rules.read_text().startswith("local all backup peer\n")
    assert sorted(path.name for path in folder.glob("postgres-*")) == ["postgres-owner.password"]


@pytest.mark.long
def test_a_lost_password_file_is_made_anew(folder: Path) -> None:
    with running(folder):
        pass
    Cluster(folder).owner_password.unlink()
    with running(folder) as owner:
        assert who(owner) == "postgres"


@pytest.mark.long
def test_a_damaged_password_file_is_reported(folder: Path) -> None:
    with running(folder):
        pass
    Cluster(folder).owner_password.write_text("torn")
    with pytest.raises(EmbeddedError, match="is not a valid password file"), running(folder):
        pass


def test_one_of_several_processes_makes_the_password(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        made = set(pool.map(lambda _: make_password(tmp_path / "app.password"), range(8)))
    assert len(made) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["app.password"]
