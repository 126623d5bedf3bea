"""The database role of API and workers. It owns nothing; its privileges are listed in `grants/`.

Roles belong to the whole PostgreSQL server: migrations of other databases may create the same role at the same time.
"""

from typing import Any

import psycopg
from msgspec import Struct
from psycopg import errors as pg
from psycopg import sql

from quarterdeck.core.settings import DatabaseSettings

# More than the number of databases that are migrated at the same time.
_ATTEMPTS = 20

# Whether the role, directly or through memberships, bypasses privileges or can act as an owner of our tables. Members
# of the role do not matter.
_FIND = """
SELECT EXISTS (
    SELECT FROM pg_roles g
    WHERE pg_has_role(r.oid, g.oid, 'MEMBER') AND (
        g.rolsuper OR g.rolcreaterole OR g.rolcreatedb OR g.rolreplication OR g.rolbypassrls
        OR g.rolname = current_user OR g.rolname LIKE 'pg\\_%%' OR g.oid IN (
            SELECT nspowner FROM pg_namespace WHERE nspname = 'app'
            UNION ALL SELECT c.relowner FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
            WHERE n.nspname = 'app'
            UNION ALL SELECT p.proowner FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
            WHERE n.nspname = 'app'
        )
    )
)
FROM pg_roles r WHERE r.rolname = %s
"""
_DEFAULTS = """
SELECT s.setdatabase = 0 FROM pg_db_role_setting s JOIN pg_roles r ON r.oid = s.setrole
WHERE r.rolname = %s AND (
    s.setdatabase = 0 OR s.setdatabase = (SELECT oid FROM pg_database WHERE datname = current_database())
)
"""
# Default privileges of PUBLIC in a new database. Only the owner of the database can revoke them.
_OPEN = """
SELECT has_database_privilege('public', d.oid, 'TEMPORARY')
       OR coalesce(has_schema_privilege('public', to_regnamespace('public')::oid, 'CREATE'), false),
       to_regnamespace('public') IS NOT NULL
FROM pg_database d WHERE d.datname = current_database() AND pg_has_role(current_user, d.datdba, 'USAGE')
"""
# Functions of PostgreSQL that everybody may call and the service does not need: large objects, which fill the disk
# outside our limits, ending other connections, and writing to the WAL. Each database has its own privileges on them,
# which only a superuser can revoke.
_NEEDLESS = """
SELECT p.oid::regprocedure::text FROM pg_proc p
WHERE p.pronamespace = 'pg_catalog'::regnamespace AND (
    starts_with(p.proname, 'lo_')
    OR p.proname IN ('loread', 'lowrite', 'pg_cancel_backend', 'pg_terminate_backend', 'pg_logical_emit_message')
) AND has_function_privilege('public', p.oid, 'EXECUTE') AND pg_has_role(current_user, p.proowner, 'USAGE')
"""

_PRIVILEGES = """
WITH objects AS (
    SELECT 'schema ' || nspname AS name, nspacl AS acl FROM pg_namespace WHERE nspname = 'app'
    UNION ALL
    SELECT c.oid::regclass::text, c.relacl FROM pg_class c WHERE c.relnamespace::regnamespace::text = 'app'
    UNION ALL
    SELECT c.oid::regclass || '.' || a.attname, a.attacl FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
    WHERE c.relnamespace::regnamespace::text = 'app'
    UNION ALL
    SELECT p.oid::regprocedure::text, p.proacl FROM pg_proc p
    WHERE p.pronamespace::regnamespace::text = 'app'
)
SELECT o.name || ' ' || a.privilege_type FROM objects o, aclexplode(o.acl) a JOIN pg_roles r ON r.oid = a.grantee
WHERE r.rolname = %s
"""

OwnConnection = psycopg.Connection[tuple[Any, ...]]


class RoleError(Exception):
    """One line that says what to do."""


class AppRole(Struct, frozen=True):
    name: str = DatabaseSettings().role
    # For the embedded server, where the role itself logs in. Elsewhere the operator decides which user does, and how.
    password: str | None = None


USUAL_ROLE = AppRole()


def prepare_role(connection: OwnConnection, role: AppRole) -> None:
    """Runs before anything is changed, so that the previous release keeps working if this fails."""
    for _ in range(_ATTEMPTS):
        try:
            return _prepare(connection, role)
        except (pg.DuplicateObject, pg.UniqueViolation, pg.InternalError_):
            # Another migration did the same at this moment. The error depends on the timing.
            continue
    raise RoleError(f"the role {role.name} is being changed by others; try again")


def close_database(connection: OwnConnection) -> None:
    """Revokes privileges that every role has in a new database, as far as this login can."""
    row = connection.execute(_OPEN).fetchone()
    if row is not None and row[0]:
        # Only the owner may create tables, also temporary ones, which would be found before ours.
        database = sql.Identifier(connection.info.dbname)
        connection.execute(sql.SQL("REVOKE TEMPORARY ON DATABASE {} FROM PUBLIC").format(database))
        if row[1]:
            connection.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    for (function,) in connection.execute(_NEEDLESS).fetchall():
        connection.execute(sql.SQL("REVOKE EXECUTE ON FUNCTION {} FROM PUBLIC").format(sql.SQL(function)))
        if function.startswith(("pg_cancel_backend", "pg_terminate_backend")):
            # The role that PostgreSQL has for this purpose keeps it.
            connection.execute(sql.SQL("GRANT EXECUTE ON FUNCTION {} TO pg_signal_backend").format(sql.SQL(function)))


def privileges(url: str, role: AppRole) -> set[str]:
    """What the role was granted in our schemas."""
    with psycopg.connect(url, autocommit=True) as connection:
        return {found for (found,) in connection.execute(_PRIVILEGES, (role.name,)).fetchall()}


def granted(text: str, role: AppRole) -> bytes:
    """The text of a file of `grants/` for this role."""
    return text.replace("{role}", sql.Identifier(role.name).as_string()).encode()


def _prepare(connection: OwnConnection, role: AppRole) -> None:
    name = sql.Identifier(role.name)
    try:
        if connection.execute(_FIND, (role.name,)).fetchone() is None:
            connection.execute(sql.SQL("CREATE ROLE {} NOLOGIN").format(name))
        row = connection.execute(_FIND, (role.name,)).fetchone()
        assert row is not None
        if row[0]:
            raise RoleError(
                f"the role {role.name} has, or could get, the right to change the tables: set "
                "QUARTERDECK_DATABASE_ROLE to another name, and let `qd migrate` create it"
            )
        _reset_defaults(connection, role)
        if role.password is not None:
            # Every time, since the role can change its own password. Encrypted, since PostgreSQL may log a statement.
            encrypted = connection.pgconn.encrypt_password(role.password.encode(), role.name.encode(), b"scram-sha-256")
            connection.execute(sql.SQL("ALTER ROLE {} LOGIN PASSWORD {}").format(name, encrypted.decode()))
        if not _can_act_as(connection, name):
            connection.execute(sql.SQL("GRANT {} TO CURRENT_USER").format(name))
    except pg.InsufficientPrivilege as fault:
        owner = sql.Identifier(connection.info.user).as_string()
        shown = name.as_string()
        raise RoleError(
            "nothing was changed: this login may not create the role of the service. Run as a superuser: CREATE ROLE "
            f"{shown} NOLOGIN; GRANT {shown} TO {owner}; (omit the first if the role exists)"
        ) from fault


def _reset_defaults(connection: OwnConnection, role: AppRole) -> None:
    """Resets settings that are stored with the role. The role may set them itself, so an intruder could, too."""
    name, database = sql.Identifier(role.name), sql.Identifier(connection.info.dbname)
    everywhere, here = sql.SQL(""), sql.SQL("IN DATABASE {}").format(database)
    try:
        for (is_everywhere,) in connection.execute(_DEFAULTS, (role.name,)).fetchall():
            where = everywhere if is_everywhere else here
            connection.execute(sql.SQL("ALTER ROLE {} {} RESET ALL").format(name, where))
    except pg.InsufficientPrivilege:
        # This login did not create the role. Every connection overrides the important settings anyway.
        return


def _can_act_as(connection: OwnConnection, name: sql.Identifier) -> bool:
    """Tries it: which membership is needed depends on the version of PostgreSQL."""
    try:
        with connection.transaction(force_rollback=True):
            connection.execute(sql.SQL("SET LOCAL ROLE {}").format(name))
    except pg.InsufficientPrivilege:
        return False
    return True
