"""How the service's role comes to be, and which roles are refused."""

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from uuid import uuid4

import psycopg
import pytest
from psycopg import AsyncConnection, sql
from psycopg import errors as pg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from quarterdeck.core.settings import AuditSettings, DatabaseSettings
from quarterdeck.db.database import connection_options
from quarterdeck.db.migrate import MigrationError, is_current, migrate
from quarterdeck.db.roles import AppRole, RoleError
from tests.pages import blocks_of
from tests.store.service_role import OPTIONS, ROLE, OwnConnection, connected, owner
from tests.world import app_url, drop_database

__all__ = ["owner"]

# What a role can store as its own defaults and what would change the effect or the results of our statements.
HOSTILE_DEFAULTS = {
    "search_path": "public",
    "synchronous_commit": "off",
    "default_transaction_read_only": "on",
    "default_transaction_isolation": "serializable",
    "default_transaction_deferrable": "on",
    "idle_session_timeout": "1h",
    "DateStyle": "German",
    "IntervalStyle": "sql_standard",
    "bytea_output": "escape",
    "array_nulls": "off",
    "standard_conforming_strings": "off",
}


@contextmanager
def fresh(postgres_url: str, *, owner: str | None = None) -> Iterator[str]:
    """The address of an empty database, as its owner."""
    name = f"qd_empty_{uuid4().hex}"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        statement = sql.SQL("CREATE DATABASE {} OWNER {}")
        connection.execute(statement.format(sql.Identifier(name), sql.Identifier(owner or connection.info.user)))
    url = make_conninfo(postgres_url, dbname=name)
    try:
        yield url if owner is None else make_conninfo(url, user=owner, password="x")
    finally:
        drop_database(postgres_url, url)


def database_of(url: str) -> str:
    return str(conninfo_to_dict(url)["dbname"])


@contextmanager
def roles(postgres_url: str, *attributes: str) -> Iterator[list[str]]:
    """Names of roles, made with these attributes where there are some, that are gone afterwards."""
    names = [f"qd_role_{uuid4().hex}" for _ in attributes]
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        for name, given in zip(names, attributes, strict=True):
            if given:
                connection.execute(f"CREATE ROLE {name} {given}".encode())
        yield names
        for name in names:
            connection.execute(f"DROP ROLE IF EXISTS {name}".encode())


@pytest.mark.long
def test_two_databases_create_the_role_concurrently(postgres_url: str) -> None:
    with (
        roles(postgres_url, "", "LOGIN CREATEROLE PASSWORD 'x'") as (role, owner),
        fresh(postgres_url, owner=owner) as one,
        fresh(postgres_url, owner=owner) as other,
        ThreadPoolExecutor(2) as pool,
    ):
        done = list(pool.map(lambda url: migrate(url, AppRole(role)), [one, other]))
        assert [bool(applied) for applied in done] == [True, True]
        for url in (one, other):
            with connected(url, connection_options(DatabaseSettings(role=role))) as connection:
                assert connection.execute("SELECT FROM audit_events").fetchall() == []


@pytest.mark.long
def test_owner_without_createrole_gets_instructions(postgres_url: str) -> None:
    with (
        roles(postgres_url, "", "LOGIN PASSWORD 'x'") as (role, owner),
        fresh(postgres_url, owner=owner) as url,
        psycopg.connect(postgres_url, autocommit=True) as superuser,
    ):
        with pytest.raises(RoleError) as told:
            migrate(url, AppRole(role))
        with connected(url, "") as connection:
            assert connection.execute("SELECT FROM pg_namespace WHERE nspname = 'app'").fetchall() == []
        _, _, told_after = str(told.value).partition("Run as a superuser: ")
        statements, _, _ = told_after.partition("; (")
        superuser.execute(statements.encode())
        assert "schema/01_workspaces" in migrate(url, AppRole(role))
        assert migrate(url, AppRole(role)) == []
        with connected(url, connection_options(DatabaseSettings(role=role))) as connection:
            assert connection.execute("SELECT current_user::text FROM (SELECT count(*) FROM users) u").fetchall() == [
                (role,)
            ]


@pytest.mark.long
def test_the_roles_are_made_by_hand_as_the_docs_say(postgres_url: str) -> None:
    made, closed = blocks_of("docs/run/database.md", "sql", "Database roles")
    with (
        roles(postgres_url, "", "LOGIN PASSWORD 'x'", "") as (role, owner, login),
        fresh(postgres_url, owner=owner) as url,
        psycopg.connect(make_conninfo(postgres_url, dbname=database_of(url)), autocommit=True) as superuser,
    ):
        names = {"quarterdeck_app": role, "quarterdeck_owner": owner, "quarterdeck": login}
        superuser.execute(re.sub(r"quarterdeck\w*", lambda name: names[name[0]], made.text).encode())
        migrate(url, AppRole(role))
        weak = make_conninfo(url, user=login, password="changed")
        with connected(weak, connection_options(DatabaseSettings(role=role))) as connection:
            assert connection.execute("SELECT FROM audit_events").fetchall() == []
            with pytest.raises(pg.InsufficientPrivilege):
                connection.execute(f"SET ROLE {owner}".encode())
            connection.execute("SET ROLE NONE")
            superuser.execute(closed.text.encode())
            for call in ("lo_creat(-1)", "lo_create(0)", "lo_from_bytea(0, '')", "pg_terminate_backend(1)"):
                with pytest.raises(pg.InsufficientPrivilege):
                    connection.execute(f"SELECT {call}".encode())
        assert migrate(url, AppRole(role)) == [], "the owner, who may not revoke these, is not in the way"


@pytest.mark.parametrize("attribute", ["CREATEROLE", "SUPERUSER", "BYPASSRLS", "IN ROLE pg_write_all_data"])
def test_role_with_too_many_privileges_is_refused(postgres_url: str, database_url: str, attribute: str) -> None:
    with roles(postgres_url, attribute) as (role,), pytest.raises(RoleError, match="right to change the tables"):
        migrate(database_url, AppRole(role))


@pytest.mark.parametrize("attribute", ["CREATEROLE", "CREATEDB", "IN ROLE pg_write_all_data"])
def test_role_with_powerful_memberships_is_refused(postgres_url: str, database_url: str, attribute: str) -> None:
    with (
        roles(postgres_url, attribute, "NOLOGIN", "NOLOGIN") as (mighty, group, role),
        psycopg.connect(postgres_url, autocommit=True) as superuser,
    ):
        superuser.execute(f"GRANT {mighty} TO {group}; GRANT {group} TO {role}".encode())
        with pytest.raises(RoleError, match="right to change the tables"):
            migrate(database_url, AppRole(role))


@pytest.mark.parametrize("owned", ["SCHEMA app", "TABLE app.audit_events", "FUNCTION app.expire_audit_entries"])
@pytest.mark.parametrize("through_a_group", [False, True], ids=["itself", "through_a_group"])
def test_a_role_that_owns_something_of_ours_is_refused(
    postgres_url: str, database_url: str, owned: str, through_a_group: bool
) -> None:
    with (
        roles(postgres_url, "NOLOGIN", "NOLOGIN") as (holder, member),
        psycopg.connect(database_url, autocommit=True) as superuser,
    ):
        superuser.execute(f"ALTER {owned} OWNER TO {holder}; GRANT {holder} TO {member}".encode())
        try:
            with pytest.raises(RoleError, match="right to change the tables"):
                migrate(database_url, AppRole(member if through_a_group else holder))
        finally:
            superuser.execute(f"REASSIGN OWNED BY {holder} TO CURRENT_USER; DROP OWNED BY {holder}".encode())


@pytest.mark.long
def test_role_defaults_set_by_the_login_have_no_effect(postgres_url: str, database_url: str) -> None:
    with (
        roles(postgres_url, "LOGIN PASSWORD 'x'") as (role,),
        psycopg.connect(database_url, autocommit=True) as superuser,
    ):
        migrate(database_url, AppRole(role))
        weak = make_conninfo(database_url, user=role, password="x")
        with connected(weak, "") as intruder:
            here = f"IN DATABASE {intruder.info.dbname}"
            for name, value in HOSTILE_DEFAULTS.items():
                where = "" if name == "synchronous_commit" else here
                intruder.execute(f"ALTER ROLE {role} {where} SET {name} = '{value}'".encode())
        stored = "SELECT name FROM pg_settings WHERE name = ANY (%s) AND source IN ('user', 'database user')"
        settings = DatabaseSettings(role=role)
        with connected(weak, "") as connection:
            found = connection.execute(stored, (list(HOSTILE_DEFAULTS),)).fetchall()
            assert {name for (name,) in found} == set(HOSTILE_DEFAULTS), "a test of the test"
        with connected(weak, connection_options(settings)) as connection:
            assert connection.execute(stored, (list(HOSTILE_DEFAULTS),)).fetchall() == []
            assert connection.execute("SHOW synchronous_commit").fetchall() == [("on",)]
            assert connection.execute("SHOW default_transaction_isolation").fetchall() == [("read committed",)]
        migrate(database_url, AppRole(role))
        left = superuser.execute("SELECT FROM pg_db_role_setting WHERE setrole = %s::regrole", (role,))
        assert left.fetchall() == []
        superuser.execute(f"DROP OWNED BY {role}".encode())


def test_the_owner_is_no_role_for_the_service(database_url: str) -> None:
    with pytest.raises(RoleError, match="right to change the tables"):
        migrate(database_url, AppRole(str(conninfo_to_dict(database_url)["user"])))


def test_login_without_ownership_only_checks_the_schema(owner: OwnConnection, database_url: str) -> None:
    for audit in (AuditSettings(keep_days=365), AuditSettings()):
        assert migrate(app_url(database_url), audit=audit) == []
    with pytest.raises(MigrationError, match="does not keep the audit log for 30 days"):
        migrate(app_url(database_url), audit=AuditSettings(keep_days=30))
    owner.execute("DELETE FROM migrations WHERE name = 'schema/01_workspaces'")
    with pytest.raises(MigrationError, match="QUARTERDECK_DATABASE_OWNER_URL"):
        migrate(app_url(database_url))


async def test_a_process_without_rights_in_the_database_is_not_ready(owner: OwnConnection, database_url: str) -> None:
    """As before the first migration, where another database of the server has made the role already."""
    url = app_url(database_url)
    async with await AsyncConnection.connect(url, autocommit=True, options=OPTIONS) as connection:
        assert await is_current(connection)
        owner.execute(f"REVOKE SELECT ON migrations FROM {ROLE}".encode())
        assert not await is_current(connection)
        owner.execute(f"REVOKE ALL ON SCHEMA app FROM {ROLE}".encode())
        assert not await is_current(connection)
