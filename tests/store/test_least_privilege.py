"""What the service's role cannot do, and who acts as it."""

from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest
from psycopg import errors as pg
from psycopg.conninfo import conninfo_to_dict

from quarterdeck.core.ids import LOWEST_ID
from quarterdeck.core.settings import DatabaseSettings
from quarterdeck.db.database import Connection, Database
from quarterdeck.db.migrate import migrate
from tests.store.service_role import OPTIONS, ROLE, OwnConnection, connected, owner
from tests.workers import eventually, working
from tests.world import LOGIN, Server, World, app_url

__all__ = ["owner"]


# {owner} is who owns the tables, {database} where they are.
REFUSED = (
    "UPDATE app.audit_events SET detail = '{}'",
    "UPDATE app.audit_events SET action = action WHERE false",
    "DELETE FROM app.audit_events",
    "SELECT FROM app.audit_events FOR UPDATE",
    "TRUNCATE app.audit_events",
    "LOCK TABLE app.audit_events IN ACCESS EXCLUSIVE MODE",
    "ALTER TABLE app.audit_events DISABLE TRIGGER ALL",
    "CREATE TRIGGER t BEFORE INSERT ON app.audit_events EXECUTE FUNCTION app.notify_session_freed()",
    "CREATE RULE r AS ON INSERT TO app.audit_events DO INSTEAD NOTHING",
    "UPDATE app.audit_retention SET keep_days = 1",
    "INSERT INTO app.audit_retention (keep_days) VALUES (1)",
    "DELETE FROM app.audit_retention",
    "CREATE OR REPLACE FUNCTION app.session_lock(session_id uuid) RETURNS bigint LANGUAGE sql AS 'SELECT 1'",
    "ALTER FUNCTION app.expire_audit_entries(integer, uuid) RESET ALL",
    "ALTER FUNCTION app.expire_audit_entries(integer, uuid) SECURITY INVOKER",
    "DROP FUNCTION app.submit_inputs",
    "INSERT INTO app.migrations (name, sha256) VALUES ('x', 'x')",
    "UPDATE app.migrations SET sha256 = ''",
    "DELETE FROM app.migrations",
    "DELETE FROM app.users",
    "DELETE FROM app.workspaces",
    "DELETE FROM app.api_keys",
    "UPDATE app.api_keys SET permissions = '{}'",
    "UPDATE app.api_keys SET workspace_id = workspace_id",
    "UPDATE app.api_keys SET secret_hash = secret_hash",
    "UPDATE app.api_keys SET lineage_id = lineage_id",
    "UPDATE app.api_keys SET created_by = created_by",
    "INSERT INTO app.api_keys (revoked_at) VALUES (NULL)",
    "ALTER TABLE app.api_keys DISABLE TRIGGER api_keys_stay_ended",
    "DROP TRIGGER api_keys_stay_ended ON app.api_keys",
    "CREATE OR REPLACE FUNCTION app.refuse_change() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
    "DELETE FROM app.session_tokens",
    "UPDATE app.session_tokens SET secret_hash = secret_hash",
    "UPDATE app.session_tokens SET expires_at = expires_at",
    "UPDATE app.session_tokens SET session_id = session_id",
    "UPDATE app.session_tokens SET api_key_id = api_key_id",
    "UPDATE app.sessions SET workspace_id = workspace_id",
    "UPDATE app.runs SET workspace_id = workspace_id",
    "UPDATE app.session_events SET data = '{}'",
    "UPDATE app.skill_versions SET manifest = '{}'",
    "UPDATE app.receipts SET body = ''",
    "TRUNCATE app.receipts",
    "ALTER TABLE app.users ADD COLUMN x int",
    "ALTER TABLE app.users OWNER TO CURRENT_USER",
    "DROP TABLE app.receipts",
    "DROP SCHEMA app CASCADE",
    "CREATE INDEX ON app.users (email)",
    "CREATE TABLE app.x ()",
    "CREATE TABLE public.x ()",
    "CREATE TEMPORARY TABLE x ()",
    "CREATE SCHEMA x",
    "CREATE FUNCTION app.x() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "CREATE FUNCTION public.x() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "SELECT setval('app.session_event_ids', 1)",
    "ALTER SEQUENCE app.session_event_ids RESTART",
    "GRANT SELECT ON pg_authid TO CURRENT_USER",
    "ALTER DEFAULT PRIVILEGES FOR ROLE {owner} GRANT ALL ON TABLES TO PUBLIC",
    "SET ROLE {owner}",
    "SET SESSION AUTHORIZATION {owner}",
    "CREATE ROLE x",
    "ALTER ROLE CURRENT_USER SUPERUSER",
    "GRANT {owner} TO CURRENT_USER",
    "SELECT FROM pg_authid",
    "SELECT FROM pg_shadow",
    "COPY (SELECT 1) TO PROGRAM 'true'",
    "COPY (SELECT 1) TO '/tmp/x'",
    "SELECT pg_read_file('PG_VERSION')",
    "SELECT lo_creat(-1)",
    "SELECT lo_create(0)",
    "SELECT lo_from_bytea(0, 'x')",
    "SELECT lo_put(1, 0, 'x')",
    "SELECT lo_open(1, 131072)",
    "SELECT lowrite(0, 'x')",
    "SELECT lo_get(1)",
    "SELECT lo_unlink(1)",
    "SELECT lo_import('/etc/hostname')",
    "SELECT lo_export(1, '/tmp/x')",
    "INSERT INTO pg_largeobject (loid, pageno, data) VALUES (1, 0, 'x')",
    "SELECT pg_terminate_backend(pg_backend_pid())",
    "SELECT pg_cancel_backend(pg_backend_pid())",
    "SELECT pg_logical_emit_message(false, 'x', 'x')",
    "SELECT pg_reload_conf()",
    "SET session_replication_role = replica",
    "ALTER DATABASE {database} SET search_path = public",
)
# PostgreSQL looks at these outside a transaction only.
REFUSED_ALONE = ("ALTER SYSTEM SET work_mem = '1MB'", "CREATE DATABASE x", "DROP DATABASE template1")
_OWNED = """
SELECT 'table ' || relname FROM pg_class WHERE relowner = ANY (%(roles)s::regrole[])
UNION ALL SELECT 'schema ' || nspname FROM pg_namespace WHERE nspowner = ANY (%(roles)s::regrole[])
UNION ALL SELECT 'function ' || proname FROM pg_proc WHERE proowner = ANY (%(roles)s::regrole[])
UNION ALL SELECT 'type ' || typname FROM pg_type WHERE typowner = ANY (%(roles)s::regrole[])
UNION ALL SELECT 'database ' || datname FROM pg_database WHERE datdba = ANY (%(roles)s::regrole[])
"""


def test_privileges_that_the_service_does_not_need_are_refused(owner: OwnConnection, database_url: str) -> None:
    """As the role, and as the login behind it, which is what is left when somebody takes the role off."""
    names = {"owner": owner.info.user, "database": owner.info.dbname}
    let_through = []
    for options in (OPTIONS, f"{OPTIONS} -c role=none"):
        with connected(app_url(database_url), options) as connection:
            for statement in (*REFUSED, *REFUSED_ALONE):
                written = statement.replace("{owner}", names["owner"]).replace("{database}", names["database"])
                alone = statement in REFUSED_ALONE
                try:
                    with nullcontext() if alone else connection.transaction(force_rollback=True):
                        connection.execute(written.encode())
                except pg.InsufficientPrivilege:
                    continue
                except psycopg.Error as fault:
                    let_through.append(f"{written}: {fault}")
                else:
                    let_through.append(written)
    assert let_through == []


def test_the_role_owns_nothing_and_is_nothing_special(owner: OwnConnection) -> None:
    assert owner.execute(_OWNED, {"roles": [ROLE, LOGIN]}).fetchall() == []
    special = "rolsuper OR rolcreaterole OR rolcreatedb OR rolbypassrls OR rolreplication"
    found = owner.execute(f"SELECT FROM pg_roles WHERE rolname = ANY (%s) AND ({special})", ([ROLE, LOGIN],))
    assert found.fetchall() == []


def test_functions_are_executable_by_the_service_role_only(owner: OwnConnection) -> None:
    ours = "FROM pg_proc WHERE pronamespace = 'app'::regnamespace"
    assert owner.execute(f"SELECT proname {ours} AND has_function_privilege('public', oid, 'EXECUTE')").fetchall() == []
    definers = owner.execute(f"SELECT proname, proconfig {ours} AND prosecdef").fetchall()
    assert {name for name, _ in definers} == {"expire_audit_entries", "add_conversation_words"}
    assert all("search_path=app, pg_temp" in str(config) for _, config in definers)


# The rows of `credentials`: a key and a token that were revoked, and ones that expire in an hour.
REVIVALS = (
    "UPDATE app.api_keys SET revoked_at = NULL WHERE label = 'revoked'",
    "UPDATE app.api_keys SET revoked_at = revoked_at + interval '1 day' WHERE label = 'revoked'",
    "UPDATE app.api_keys SET expires_at = NULL WHERE label = 'expires'",
    "UPDATE app.api_keys SET expires_at = expires_at + interval '1 second' WHERE label = 'expires'",
    "UPDATE app.api_keys SET replaced_by = NULL WHERE label = 'revoked'",
    "UPDATE app.api_keys SET replaced_by = id WHERE label = 'revoked'",
    "UPDATE app.api_keys SET last_used_at = now(), revoked_at = NULL WHERE label = 'revoked'",
    "INSERT INTO app.api_keys (id, workspace_id, lineage_id, label, prefix, secret_hash, permissions, created_by)"
    " SELECT id, workspace_id, lineage_id, label, prefix, secret_hash, permissions, created_by FROM app.api_keys"
    " ON CONFLICT (id) DO UPDATE SET revoked_at = NULL",
    "UPDATE app.session_tokens SET revoked_at = NULL WHERE prefix = 'revoked'",
    "UPDATE app.session_tokens SET revoked_at = now() + interval '1 day' WHERE prefix = 'revoked'",
)
ENDS = (
    "UPDATE app.api_keys SET revoked_at = now() WHERE label = 'expires'",
    "UPDATE app.api_keys SET expires_at = expires_at - interval '1 minute' WHERE label = 'expires'",
    "UPDATE app.api_keys SET expires_at = now() WHERE label = 'lasting'",
    "UPDATE app.api_keys SET last_used_at = now()",
    "UPDATE app.session_tokens SET revoked_at = now() WHERE prefix = 'valid'",
)


@pytest.fixture
def credentials(owner: OwnConnection) -> None:
    owner.execute("INSERT INTO users (id, email) VALUES (gen_random_uuid(), 'a@example.com')")
    owner.execute("INSERT INTO workspaces (id, name, owner_id) SELECT gen_random_uuid(), 'x', id FROM users")
    owner.execute("INSERT INTO sessions (id, workspace_id, created_by) SELECT id, id, owner_id FROM workspaces")
    add_key = (
        "INSERT INTO api_keys (id, workspace_id, lineage_id, label, prefix, secret_hash, permissions, created_by,"
        " expires_at, revoked_at)"
        " SELECT k, w.id, k, %(label)s::text, 'p', sha256(%(label)s::text::bytea), '{}', w.owner_id,"
        " %(expires)s::timestamptz, %(revoked)s::timestamptz FROM workspaces w, gen_random_uuid() k"
    )
    now = datetime.now(UTC)
    for label, expires, revoked in (
        ("lasting", None, None),
        ("expires", now + timedelta(hours=1), None),
        ("revoked", now + timedelta(hours=1), now),
    ):
        owner.execute(add_key, {"label": label, "expires": expires, "revoked": revoked})
    owner.execute(
        "UPDATE api_keys SET replaced_by = (SELECT id FROM api_keys WHERE label = 'expires') WHERE label = 'revoked'"
    )
    add_token = (
        "INSERT INTO session_tokens"
        " (id, session_id, api_key_id, created_by, prefix, secret_hash, expires_at, revoked_at)"
        " SELECT gen_random_uuid(), s.id, k.id, k.created_by, %(prefix)s::text, sha256(%(prefix)s::text::bytea),"
        " %(expires)s, %(revoked)s"
        " FROM sessions s, api_keys k WHERE k.label = 'lasting'"
    )
    for prefix, revoked in (("valid", None), ("revoked", now)):
        owner.execute(add_token, {"prefix": prefix, "expires": now + timedelta(hours=1), "revoked": revoked})


@pytest.mark.usefixtures("credentials")
def test_keys_and_tokens_that_ended_stay_ended(database_url: str) -> None:
    revived = []
    with connected(app_url(database_url), OPTIONS) as connection:
        for statement in REVIVALS:
            try:
                with connection.transaction(force_rollback=True):
                    connection.execute(statement.encode())
            except pg.InsufficientPrivilege:
                continue
            revived.append(statement)
        for statement in ENDS:
            with connection.transaction(force_rollback=True):
                assert connection.execute(statement.encode()).rowcount > 0
    assert revived == []


@pytest.mark.parametrize("function", ["pg_terminate_backend", "pg_cancel_backend"])
def test_other_connections_of_the_login_cannot_be_ended(owner: OwnConnection, database_url: str, function: str) -> None:
    """As the login behind the role: PostgreSQL compares the current role with the login of the other connection."""
    url = app_url(database_url)
    with connected(url, OPTIONS) as victim, connected(url, f"{OPTIONS} -c role=none") as intruder:
        with pytest.raises(pg.InsufficientPrivilege):
            intruder.execute(f"SELECT {function}({victim.info.backend_pid})".encode())
        assert victim.execute("SELECT 1").fetchall() == [(1,)]
    # The role that PostgreSQL has for this purpose keeps it.
    kept = owner.execute(
        "SELECT has_function_privilege('pg_signal_backend', oid, 'EXECUTE') FROM pg_proc WHERE proname = %s",
        (function,),
    )
    assert kept.fetchall() == [(True,)]


def test_recent_audit_events_cannot_be_deleted(owner: OwnConnection, database_url: str) -> None:
    owner.execute("INSERT INTO users (id, email) VALUES (gen_random_uuid(), 'a@example.com')")
    owner.execute("INSERT INTO workspaces (id, name, owner_id) SELECT gen_random_uuid(), 'x', id FROM users")
    add = (
        "INSERT INTO audit_events (id, workspace_id, action, object_type, object_id, detail)"
        " SELECT rpad(lpad(to_hex((extract(epoch FROM now() - %s * interval '1 day') * 1000)::bigint), 12, '0'), 32,"
        " '1')::uuid, id, 'x', 'skill', id, '{}' FROM workspaces"
    )
    for days in (1, 364, 366):
        owner.execute(add, (days,))
    with connected(app_url(database_url), OPTIONS) as connection:
        connection.execute("SET TimeZone = 'Pacific/Kiritimati'")
        connection.execute("SET search_path = pg_catalog")
        expire = "SELECT deleted FROM app.expire_audit_entries(1000, %s)"
        assert connection.execute(expire, (LOWEST_ID,)).fetchall() == [(1,)]
        assert connection.execute(expire, (LOWEST_ID,)).fetchall() == [(0,)]


def test_privileges_that_are_in_no_file_are_revoked(owner: OwnConnection, database_url: str) -> None:
    for grant in (
        "GRANT DELETE ON app.audit_events TO {}",
        "GRANT UPDATE (detail) ON app.audit_events TO {}",
        "GRANT EXECUTE ON FUNCTION app.notify_session_freed TO PUBLIC",
        "GRANT CREATE ON SCHEMA app TO {}",
    ):
        owner.execute(grant.replace("{}", ROLE).encode())
    migrate(database_url)
    rights = owner.execute(
        "SELECT has_table_privilege(%(r)s, 'app.audit_events', 'DELETE'),"
        " has_any_column_privilege(%(r)s, 'app.audit_events', 'UPDATE'), has_schema_privilege(%(r)s, 'app', 'CREATE'),"
        " has_function_privilege(%(r)s, 'app.notify_session_freed()', 'EXECUTE')",
        {"r": ROLE},
    )
    assert rights.fetchall() == [(False, False, False, False)]


@pytest.mark.long
async def test_api_and_workers_log_in_as_one_that_owns_nothing(world: World, server: Server, tmp_path: Path) -> None:
    """Every connection of theirs: the pools, the one that listens, those of the queue."""
    query = (
        "SELECT usename::text, count(*) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend' GROUP BY 1"
    )

    async def logged_in() -> int:
        # The test's own, as the owner, may take a moment to be gone; the service's would stay.
        there = dict(await world.fetch(query))
        return there[LOGIN] if set(there) == {LOGIN} else 0

    async def of_the_api() -> int:
        # Eight of the pool, four for inputs, and the one that listens. Pools open theirs after the start.
        there = await logged_in()
        return there if there >= 13 else 0

    alone = await eventually(of_the_api)
    with working(server.database_url, tmp_path):

        async def both() -> bool:
            # Eight of its own, and the queue's.
            return bool(await logged_in() > alone + 8)

        await eventually(both)


@pytest.mark.parametrize("login", [True, False], ids=["a_login_of_its_own", "the_owners"])
async def test_processes_use_the_role(database_url: str, login: bool) -> None:
    """With one address for all, the login behind the role is the owner: that guards against mistakes, not against who
    can send statements of their own. docs/run/database.md says so."""
    database = Database(app_url(database_url) if login else database_url, DatabaseSettings(pool_connections=1))

    async def ask(connection: Connection) -> tuple[object, ...] | None:
        return await (await connection.execute("SELECT current_user::text, session_user::text")).fetchone()

    await database.open()
    try:
        owner = conninfo_to_dict(database_url)["user"]
        assert await database.read(ask) == (ROLE, LOGIN if login else owner)
    finally:
        await database.close()
