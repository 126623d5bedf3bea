"""SQL for signing in at OpenID providers: identities, attempts, sessions, and the memberships that providers give."""

from datetime import datetime
from uuid import UUID

from msgspec import Struct
from msgspec.structs import astuple

from quarterdeck.core.actors import Role
from quarterdeck.db.database import Connection
from quarterdeck.db.records import fetch_bool, fetch_column, fetch_record, fetch_records, fetch_value
from quarterdeck.people.provider_model import ATTEMPT_SECONDS, EndedSession, SignInAttempt

# Attempts.

_ADD_ATTEMPT = """
INSERT INTO sign_in_attempts (state_hash, browser_hash, provider, redirect_uri, nonce, code_verifier, return_to,
                              device_name, device_id, expires_at)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, clock_timestamp() + make_interval(secs => %s))
"""
# Of two requests with one state, one gets the row.
_TAKE_ATTEMPT = """
DELETE FROM sign_in_attempts
WHERE state_hash = %s AND browser_hash = %s AND provider = %s AND expires_at > clock_timestamp()
RETURNING provider, redirect_uri, nonce, code_verifier, return_to, device_name, device_id
"""
_DELETE_ATTEMPTS = "DELETE FROM sign_in_attempts WHERE expires_at < clock_timestamp()"


async def add_attempt(connection: Connection, state_hash: bytes, browser_hash: bytes, attempt: SignInAttempt) -> None:
    await connection.execute(_ADD_ATTEMPT, (state_hash, browser_hash, *astuple(attempt), ATTEMPT_SECONDS))


async def take_attempt(
    connection: Connection, state_hash: bytes, browser_hash: bytes, provider: str
) -> SignInAttempt | None:
    """Once. None: unknown, expired, taken before, or of another browser or provider."""
    return await fetch_record(connection, SignInAttempt, _TAKE_ATTEMPT, (state_hash, browser_hash, provider))


# Identities.


class Identity(Struct, frozen=True):
    issuer: str
    subject: str
    user_id: UUID


_LOCK_IDENTITY = "SELECT issuer, subject, user_id FROM identities WHERE issuer = %s AND subject = %s FOR NO KEY UPDATE"
_LOCK_OVERDUE = """
SELECT issuer, subject, user_id FROM identities WHERE members_until <= clock_timestamp()
ORDER BY members_until LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED
"""
_ADD_IDENTITY = "INSERT INTO identities (issuer, subject, user_id) VALUES (%s, %s, %s)"
_HAS_IDENTITY = "SELECT EXISTS (SELECT FROM identities WHERE user_id = %s AND issuer = %s)"
_ADD_USER = "INSERT INTO users (id, email, display_name) VALUES (%s, %s, %s)"
_SET_MEMBERS_UNTIL = """
UPDATE identities SET members_until = clock_timestamp() + make_interval(secs => %s) WHERE issuer = %s AND subject = %s
"""
_LIMIT_MEMBERS = """
UPDATE identities SET members_until = least(members_until, clock_timestamp() + make_interval(secs => %s))
WHERE issuer = %s AND subject = %s
"""


async def lock_identity(connection: Connection, issuer: str, subject: str) -> Identity | None:
    return await fetch_record(connection, Identity, _LOCK_IDENTITY, (issuer, subject))


async def lock_overdue(connection: Connection) -> Identity | None:
    """One whose memberships have to end."""
    return await fetch_record(connection, Identity, _LOCK_OVERDUE)


async def add_identity(connection: Connection, identity: Identity) -> None:
    await connection.execute(_ADD_IDENTITY, astuple(identity))


async def has_identity(connection: Connection, user_id: UUID, issuer: str) -> bool:
    return await fetch_bool(connection, _HAS_IDENTITY, (user_id, issuer))


async def add_user(connection: Connection, user_id: UUID, email: str | None, display_name: str | None) -> None:
    """Without an account with this address."""
    await connection.execute(_ADD_USER, (user_id, email, display_name))


async def set_members_until(connection: Connection, identity: Identity, seconds: float | None) -> None:
    """None: there is nothing left to end."""
    await connection.execute(_SET_MEMBERS_UNTIL, (seconds, identity.issuer, identity.subject))


async def limit_members(connection: Connection, identity: Identity, seconds: float) -> None:
    await connection.execute(_LIMIT_MEMBERS, (seconds, identity.issuer, identity.subject))


# Memberships.


class GivenMembership(Struct, frozen=True):
    workspace_id: UUID
    role: Role
    # The issuer. None: people.
    given_by: str | None


_MEMBERSHIPS = "SELECT workspace_id, role, given_by FROM members WHERE user_id = %s AND ended_at IS NULL"
_MEMBERSHIP = f"{_MEMBERSHIPS} AND workspace_id = %s"
_HAS_OTHER_OWNER = """
SELECT EXISTS (
    SELECT FROM members WHERE workspace_id = %s AND user_id <> %s AND role = 'owner' AND ended_at IS NULL
)
"""


async def memberships(connection: Connection, user_id: UUID) -> list[GivenMembership]:
    return await fetch_records(connection, GivenMembership, _MEMBERSHIPS, (user_id,))


async def membership(connection: Connection, workspace_id: UUID, user_id: UUID) -> GivenMembership | None:
    return await fetch_record(connection, GivenMembership, _MEMBERSHIP, (user_id, workspace_id))


async def has_other_owner(connection: Connection, workspace_id: UUID, user_id: UUID) -> bool:
    return await fetch_bool(connection, _HAS_OTHER_OWNER, (workspace_id, user_id))


# Sessions. Those whose device was signed out or has expired are not looked after any more.


class ProviderSession(Struct, frozen=True):
    """Taken by a process that asks the provider."""

    device_id: UUID
    provider: str
    identity: Identity
    tokens: bytes
    was_unsure: bool
    # Changes when another process takes it.
    refresh_at: datetime


_ADD_SESSION = """
INSERT INTO provider_sessions (device_id, provider, issuer, subject, origin, tokens, has_refresh_token, refresh_at)
VALUES (%s, %s, %s, %s, %s, %s, %s, clock_timestamp() + make_interval(secs => %s))
"""
_DUE_PROVIDERS = "SELECT DISTINCT provider FROM provider_sessions WHERE refresh_at <= now()"
_TAKE_SESSIONS = """
WITH due AS (
    SELECT s.device_id, s.is_unsure, d.user_id
    FROM provider_sessions s JOIN devices d ON d.id = s.device_id
    WHERE s.provider = %s AND s.refresh_at <= now() AND d.ended_at IS NULL AND d.expires_at > now()
    ORDER BY s.refresh_at LIMIT %s FOR NO KEY UPDATE OF s SKIP LOCKED
)
UPDATE provider_sessions s
SET refresh_at = now() + make_interval(secs => %s), is_unsure = s.has_refresh_token FROM due
WHERE s.device_id = due.device_id
RETURNING s.device_id, s.provider, s.tokens, due.is_unsure AS was_unsure, s.refresh_at,
          json_build_object('issuer', s.issuer, 'subject', s.subject, 'user_id', due.user_id) AS identity
"""
_RENEW = """
UPDATE provider_sessions SET tokens = coalesce(%s, tokens), is_unsure = %s,
    confirmed_at = CASE WHEN %s THEN clock_timestamp() ELSE confirmed_at END,
    refresh_at = clock_timestamp() + make_interval(secs => %s)
WHERE device_id = %s AND refresh_at = %s
RETURNING confirmed_at > clock_timestamp() - make_interval(secs => %s)
"""
_DELETE_SESSION = (
    "DELETE FROM provider_sessions WHERE device_id = %s RETURNING device_id, provider, issuer, origin, tokens"
)
_DROP = "DELETE FROM provider_sessions WHERE device_id = %s AND refresh_at = %s"
_HAS_SESSION = """
SELECT EXISTS (
    SELECT FROM identities i
    JOIN provider_sessions s ON s.issuer = i.issuer AND s.subject = i.subject AND s.has_refresh_token
    JOIN devices d ON d.id = s.device_id AND d.ended_at IS NULL AND d.expires_at > clock_timestamp()
    WHERE i.user_id = %s AND i.issuer = coalesce(%s, i.issuer)
)
"""
_DELETE_ENDED = """
DELETE FROM provider_sessions s USING devices d
WHERE d.id = s.device_id AND (d.ended_at IS NOT NULL OR d.expires_at < now())
"""


async def add_session(
    connection: Connection,
    device_id: UUID,
    provider: str,
    identity: Identity,
    origin: str,
    tokens: bytes,
    seconds: float,
    *,
    has_refresh_token: bool,
) -> None:
    """`seconds`: until the provider is asked."""
    values = (device_id, provider, identity.issuer, identity.subject, origin, tokens, has_refresh_token, seconds)
    await connection.execute(_ADD_SESSION, values)


async def due_providers(connection: Connection) -> list[str]:
    return await fetch_column(connection, _DUE_PROVIDERS)


async def take_sessions(
    connection: Connection, provider: str, count: int, lease_seconds: float
) -> list[ProviderSession]:
    """Those that are due, for a while: then another process takes them."""
    return await fetch_records(connection, ProviderSession, _TAKE_SESSIONS, (provider, count, lease_seconds))


async def renew_session(
    connection: Connection,
    session: ProviderSession,
    tokens: bytes | None,
    refresh_seconds: float,
    grace_seconds: float,
    *,
    is_confirmed: bool,
    is_unsure: bool,
) -> bool:
    """False: the provider has not confirmed it within the grace. Also True if it is not ours any more."""
    values = (tokens, is_unsure, is_confirmed, refresh_seconds, session.device_id, session.refresh_at, grace_seconds)
    return await fetch_value(connection, _RENEW, values) is not False


async def delete_session(connection: Connection, device_id: UUID) -> EndedSession | None:
    """None: the device was not signed in at a provider."""
    return await fetch_record(connection, EndedSession, _DELETE_SESSION, (device_id,))


async def drop_session(connection: Connection, session: ProviderSession) -> bool:
    """False: it is not ours any more, or was signed out."""
    return (await connection.execute(_DROP, (session.device_id, session.refresh_at))).rowcount == 1


async def has_session(connection: Connection, user_id: UUID, issuer: str | None) -> bool:
    """Whether a provider is asked about the person, because of another device. `issuer` None: any provider."""
    return await fetch_bool(connection, _HAS_SESSION, (user_id, issuer))


async def delete_expired(connection: Connection) -> int:
    attempts = (await connection.execute(_DELETE_ATTEMPTS)).rowcount
    return attempts + (await connection.execute(_DELETE_ENDED)).rowcount
