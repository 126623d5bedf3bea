"""Migrates a database to the schema of this release: `schema/`, the schema of the first release, and `migrations/`, its
changes since then, each file once; then all files of `functions/` and `grants/`, every time.

An applied file must not change: its SHA-256 is recorded and compared. A database that was migrated by a newer
release is refused. One process migrates at a time; the others wait and then find nothing to do.
"""

import hashlib
from collections.abc import Collection, Mapping
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable

import psycopg
from msgspec import Struct
from psycopg import sql

from quarterdeck.core.settings import AuditSettings
from quarterdeck.db.connection_limits import encoding_error
from quarterdeck.db.database import Connection
from quarterdeck.db.pool import SCHEMA
from quarterdeck.db.roles import USUAL_ROLE, AppRole, OwnConnection, close_database, granted, prepare_role

# The other locks have their names in functions/locks.sql. This one is taken before there are functions. The number does
# not collide with theirs, which are hashes of 64 bits.
_LOCK = 0x9A47E2DE
# The first migration of databases from before the first release.
_UNRELEASED = "0001_foundation"
# How often a migration is tried if PostgreSQL ends it because of a deadlock.
_TRIES = 5

_APPLIED = "SELECT name, sha256 FROM app.migrations ORDER BY name"
_RECORD = "INSERT INTO app.migrations (name, sha256) VALUES (%s, %s)"
# Reads the catalogue, because a statement that names a table in a forbidden schema fails.
_KNOWN = """
SELECT has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT')
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = 'app' AND c.relname = 'migrations'
"""
_CREATE = """
CREATE TABLE IF NOT EXISTS app.migrations (
    name text PRIMARY KEY,
    sha256 text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
)
"""
# No row: there is no schema yet.
_OURS = "SELECT pg_has_role(current_user, nspowner, 'USAGE') FROM pg_namespace WHERE nspname = 'app'"
_AUDIT_EVENTS_KEPT = "SELECT keep_days FROM app.audit_retention"
_KEEP_AUDIT_EVENTS = """
INSERT INTO app.audit_retention (keep_days) VALUES (%s)
ON CONFLICT (only_row) DO UPDATE SET keep_days = excluded.keep_days
"""
# Running `qd migrate` without the setting must not shorten the retention: deleted entries cannot be restored.
_KEEP_AUDIT_EVENTS_AT_FIRST = """
INSERT INTO app.audit_retention (keep_days) VALUES (365) ON CONFLICT (only_row) DO NOTHING
"""


# SHA-256 of `functions/` and `grants/` as they were applied. A comment, because only the owner can change it and
# because a row in `migrations` would be unknown to other releases.
_NOTE_SCRIPTS = "COMMENT ON SCHEMA app IS {}"
_HAS_SCRIPTS = """
SELECT obj_description(n.oid, 'pg_namespace') = %s AND has_schema_privilege(r.oid, n.oid, 'USAGE')
FROM pg_namespace n, pg_roles r WHERE n.nspname = 'app' AND r.rolname = %s
"""


class MigrationError(Exception):
    """One line that says what to do."""


class _Script(Struct, frozen=True):
    name: str
    text: str

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()


def migrate(url: str, role: AppRole = USUAL_ROLE, audit: AuditSettings | None = None) -> list[str]:
    """Applies pending migrations and returns their names. Without `audit` the retention of the audit log is kept.
    A login that does not own the schema only checks that nothing is pending."""
    with psycopg.connect(url, autocommit=True, options=f"-c search_path={SCHEMA}") as connection:
        if not may_migrate(connection):
            _check_current(connection, role, audit)
            return []
        lock_migrations(connection)
        prepare_role(connection, role)
        done = apply_migrations(connection)
        # In one transaction: running processes keep their privileges at every moment.
        with connection.transaction():
            apply_functions_and_grants(connection, role, audit)
    return done


def pending_changes(url: str, role: AppRole = USUAL_ROLE, audit: AuditSettings | None = None) -> list[str]:
    """What `migrate` would change, for people; empty if nothing. Only reads. An error for a newer schema."""
    with psycopg.connect(url, autocommit=True, options=f"-c search_path={SCHEMA}") as connection:
        connection.read_only = True
        with connection.transaction():
            if not may_migrate(connection):
                connection.execute(sql.SQL("SET LOCAL ROLE {}").format(sql.Identifier(role.name)))
            if pending := _pending(applied_migrations(connection)):
                return [script.name for script in pending]
            changes = []
            if connection.execute(_HAS_SCRIPTS, (_scripts_note(role), role.name)).fetchone() != (True,):
                changes.append("functions and privileges")
            if not _keeps_audit_events(connection, audit):
                changes.append("retention of the audit log")
            return changes


def may_migrate(connection: OwnConnection) -> bool:
    """Whether this login owns the schema, or there is none yet. Raises an error if the database cannot have one."""
    if message := encoding_error(connection):
        raise MigrationError(message)
    return connection.execute(_OURS).fetchone() != (False,)


def lock_migrations(connection: OwnConnection) -> None:
    """Until the connection is closed. Others that migrate wait."""
    connection.execute("SELECT pg_advisory_lock(%s)", (_LOCK,))


def applied_migrations(connection: OwnConnection) -> dict[str, str]:
    """Names and SHA-256; empty before the first migration."""
    if connection.execute(_KNOWN).fetchone() is None:
        return {}
    return dict(connection.execute(_APPLIED).fetchall())


def check_known(applied: Mapping[str, str], source: str) -> None:
    """Raises an error unless this release has all these migrations. `source` is what they were applied to."""
    _pending(applied, source)


def apply_migrations(connection: OwnConnection, only: Collection[str] | None = None) -> list[str]:
    """Applies pending migrations, or those of them in `only`, and returns their names."""
    connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(SCHEMA)))
    connection.execute(_CREATE)
    done = []
    for script in _pending(dict(connection.execute(_APPLIED).fetchall())):
        if only is not None and script.name not in only:
            continue
        _apply(connection, script)
        done.append(script.name)
    return done


def _apply(connection: OwnConnection, script: _Script) -> None:
    """Processes of the release before go on working: if one of their transactions and the migration wait for each
    other, PostgreSQL ends one of the two."""
    for tries_left in reversed(range(_TRIES)):
        try:
            with connection.transaction():
                connection.execute(script.text.encode())
                connection.execute(_RECORD, (script.name, script.sha256))
            return
        except psycopg.errors.DeadlockDetected:
            if not tries_left:
                raise


def apply_functions_and_grants(connection: OwnConnection, role: AppRole, audit: AuditSettings | None) -> None:
    for function in _scripts("functions"):
        connection.execute(function.text.encode())
    for grants in _scripts("grants"):
        connection.execute(granted(grants.text, role))
    connection.execute(sql.SQL(_NOTE_SCRIPTS).format(_scripts_note(role)))
    close_database(connection)
    if audit is not None and audit.keep_days is not None:
        connection.execute(_KEEP_AUDIT_EVENTS, (audit.keep_days,))
    elif audit is not None:
        connection.execute(_KEEP_AUDIT_EVENTS_AT_FIRST)


async def is_current(connection: Connection) -> bool:
    known = await (await connection.execute(_KNOWN)).fetchone()
    if known is None or not known[0]:
        return False
    rows = await (await connection.execute(_APPLIED)).fetchall()
    # There may be more: during a rolling upgrade, processes of this release run beside those of the next.
    return {(script.name, script.sha256) for script in _migrations()} <= set(rows)


def _check_current(connection: OwnConnection, role: AppRole, audit: AuditSettings | None) -> None:
    connection.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(role.name)))
    if _pending(dict(connection.execute(_APPLIED).fetchall())):
        raise MigrationError(
            "the database schema is outdated, and this login does not own the tables: run `qd migrate` with "
            "QUARTERDECK_DATABASE_OWNER_URL"
        )
    if audit is not None and not _keeps_audit_events(connection, audit):
        raise MigrationError(
            f"the database does not keep the audit log for {audit.keep_days} days (QUARTERDECK_AUDIT_KEEP_DAYS), "
            "and this login may not change that: run `qd migrate` with QUARTERDECK_DATABASE_OWNER_URL"
        )


def _keeps_audit_events(connection: OwnConnection, audit: AuditSettings | None) -> bool:
    """Whether the stored retention is the one of the settings, if they have one."""
    if audit is None or audit.keep_days is None:
        return True
    return connection.execute(_AUDIT_EVENTS_KEPT).fetchone() == (audit.keep_days,)


def _scripts_note(role: AppRole) -> str:
    digest = hashlib.sha256()
    for script in _scripts("functions"):
        digest.update(script.text.encode())
    for script in _scripts("grants"):
        digest.update(granted(script.text, role))
    return f"functions and privileges {digest.hexdigest()}"


def _pending(applied: Mapping[str, str], source: str = "the database") -> list[_Script]:
    if _UNRELEASED in applied:
        raise MigrationError(
            f"{source} is from before the first release and cannot be upgraded: use a new database, or the commit that "
            "made this one"
        )
    scripts = {script.name: script for script in _migrations()}
    if unknown := sorted(applied.keys() - scripts.keys()):
        raise MigrationError(f"{source} was migrated by a newer release ({unknown[-1]}); upgrade this one")
    for name, sha256 in applied.items():
        if scripts[name].sha256 != sha256:
            raise MigrationError(f"migration {name} was changed after it was applied; restore the released file")
    return [script for name, script in scripts.items() if name not in applied]


@cache
def _migrations() -> list[_Script]:
    schema = [_Script(f"schema/{script.name}", script.text) for script in _scripts("schema")]
    return schema + _scripts("migrations")


@cache
def _scripts(folder: str) -> list[_Script]:
    found: list[Traversable] = [
        file for file in (resources.files(__package__) / folder).iterdir() if file.name.endswith(".sql")
    ]
    return [
        _Script(file.name.removesuffix(".sql"), file.read_text("utf-8")) for file in sorted(found, key=lambda f: f.name)
    ]
