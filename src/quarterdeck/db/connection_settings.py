"""What every connection sets: its role, its search path, its timeouts.

A connection to PostgreSQL gets them once, by the startup parameter `options`. Behind a pooler in transaction mode, such
as PgBouncer, each transaction may run in another session, and the pooler refuses `options`: there, the statement that
begins a transaction sets them for that transaction.
"""

from collections.abc import Mapping

from psycopg import sql

from quarterdeck.core.settings import DatabaseSettings

SCHEMA = "app"

# Applied when a transaction begins, so they are part of BEGIN instead. The last one is the pooler's decision.
_NOT_FOR_A_TRANSACTION = (
    "default_transaction_read_only",
    "default_transaction_isolation",
    "default_transaction_deferrable",
    "idle_session_timeout",
)
_BEGIN = sql.SQL("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE NOT DEFERRABLE; SELECT {}")
_SET = sql.SQL("pg_catalog.set_config({}, {}, true)")


def app_settings(settings: DatabaseSettings, lock_seconds: float | None = None) -> dict[str, str]:
    """`lock_seconds`: how long a statement waits for a lock, if not `lock_wait_seconds`."""
    if lock_seconds is None:
        lock_seconds = settings.lock_wait_seconds
    return role_settings(settings.role, SCHEMA) | {
        # 0 would mean for ever.
        "lock_timeout": f"{max(1, lock_seconds * 1000):.0f}",
        "statement_timeout": f"{settings.statement_seconds * 1000:.0f}",
        "idle_in_transaction_session_timeout": f"{settings.statement_seconds * 1000:.0f}",
        "TimeZone": "UTC",
    }


def role_settings(role: str, search_path: str) -> dict[str, str]:
    return {
        # Applies from the first statement on, whichever user logs in.
        "role": role,
        "search_path": search_path,
        # PostgreSQL lets every role change its own defaults for later connections. These settings override those that
        # would break what we rely on: durable commits, fresh reads after a lock, open connections, values as psycopg
        # reads them.
        "synchronous_commit": "on",
        "default_transaction_read_only": "off",
        "default_transaction_isolation": "read committed",
        "default_transaction_deferrable": "off",
        "idle_session_timeout": "0",
        "DateStyle": "ISO",
        "IntervalStyle": "postgres",
        "bytea_output": "hex",
        "array_nulls": "on",
        "standard_conforming_strings": "on",
    }


def as_options(values: Mapping[str, str]) -> str:
    """For the startup parameter `options`, where a backslash escapes a space."""
    return " ".join(f"-c {name}={value.replace(' ', chr(92) + ' ')}" for name, value in values.items())


def as_begin(values: Mapping[str, str]) -> str:
    """Begins a transaction that has these settings, in one round trip."""
    calls = [_SET.format(name, value) for name, value in values.items() if name not in _NOT_FOR_A_TRANSACTION]
    return _BEGIN.format(sql.SQL(", ").join(calls)).as_string()
