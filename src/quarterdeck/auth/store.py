"""Finds credentials by the hashes of their secrets, and describes the calling one."""

from collections.abc import Collection
from uuid import UUID

import msgspec

from quarterdeck.auth.model import CallerBody, CallerKind
from quarterdeck.core.actors import Caller, Credential, CredentialKind, Permission, Principal
from quarterdeck.db.database import Connection
from quarterdeck.db.records import as_record, fetch_rows, fetch_value

_FIND = """
SELECT p.secret_hash, p.named_workspace_id, p.workspace_id, p.api_key_id, p.user_id, p.role, p.scope_id, p.permissions,
       p.expires_at, p.session_id, p.session_token_id, p.device_id, p.trusted_job_id, p.skill_id,
       coalesce((SELECT t.may_resolve FROM session_tokens t WHERE t.id = p.session_token_id), false) AS may_resolve
FROM find_principals(%b, %b) p
"""
# Not FOR UPDATE: creating a key takes a share lock on the workspace.
_LOCK_WORKSPACE = """
SELECT id FROM workspaces WHERE id = (SELECT workspace_id FROM find_principals(ARRAY[%s::bytea], ARRAY[%s::uuid]))
FOR NO KEY UPDATE
"""
_CALLER_OF = "SELECT caller FROM caller_of(%s, %s, %s, %s)"
# Advisory locks instead of row locks: shared row locks are granted to newcomers before a waiting exclusive lock, so a
# key in constant use could never be revoked.
_HOLD_API_KEY = "SELECT pg_advisory_xact_lock_shared(credential_lock(id)) FROM api_keys WHERE secret_hash = %s"
_HOLD_API_KEY_EXCLUSIVELY = "SELECT pg_advisory_xact_lock(credential_lock(id)) FROM api_keys WHERE secret_hash = %s"
_HOLD_SESSION_TOKEN = """
SELECT pg_advisory_xact_lock_shared(credential_lock(api_key_id)), pg_advisory_xact_lock_shared(credential_lock(id))
FROM session_tokens WHERE secret_hash = %s
"""
_HOLD_DEVICE = "SELECT pg_advisory_xact_lock_shared(credential_lock(id)) FROM devices WHERE secret_hash = %s"
_HOLD_DEVICE_EXCLUSIVELY = "SELECT pg_advisory_xact_lock(credential_lock(id)) FROM devices WHERE secret_hash = %s"
_HOLD_JOB_KEY = """
SELECT pg_advisory_xact_lock_shared(credential_lock(trusted_job_id)) FROM job_keys WHERE secret_hash = %s
"""
_BLOCK = """
SELECT pg_advisory_xact_lock(credential_lock(id)) FROM (SELECT id FROM unnest(%s::uuid[]) AS id ORDER BY id) AS sorted
"""
_KEY_CALLER = """
SELECT k.prefix, k.label, w.name AS workspace_name, actor(u) AS user
FROM api_keys k JOIN workspaces w ON w.id = k.workspace_id JOIN users u ON u.id = k.created_by
WHERE k.id = %s
"""
_TOKEN_CALLER = """
SELECT t.prefix, t.label, w.name AS workspace_name, actor(u) AS user
FROM session_tokens t
JOIN sessions s ON s.id = t.session_id
JOIN workspaces w ON w.id = s.workspace_id
JOIN users u ON u.id = t.created_by
WHERE t.id = %s
"""
_JOB_CALLER = """
SELECT j.prefix, t.name AS label, w.name AS workspace_name, actor(u) AS user
FROM trusted_jobs t
JOIN job_keys j ON j.trusted_job_id = t.id
JOIN workspaces w ON w.id = t.workspace_id
JOIN users u ON u.id = t.created_by
WHERE t.id = %s AND j.expires_at = %s
"""
_DEVICE_CALLER = """
SELECT d.prefix, d.name AS label, d.expires_at, w.name AS workspace_name, actor(u) AS user
FROM devices d JOIN users u ON u.id = d.user_id CROSS JOIN workspaces w
WHERE d.id = %s AND w.id = %s
"""


async def lock_workspace(connection: Connection, credential: Credential) -> UUID | None:
    """Locks the workspace in which the credential acts. None: it is not valid."""
    return await fetch_value(connection, _LOCK_WORKSPACE, (credential.secret_hash, credential.workspace_id))


async def hold(connection: Connection, credential: Credential, *, exclusive: bool) -> None:
    """Keeps the credential from being revoked until the transaction ends. A statement of its own: the next one must see
    a revocation that was committed during the wait. `exclusive` is for operations that may revoke the calling key: two
    transactions that first shared the lock and then both wanted it exclusively would deadlock."""
    match credential.kind:
        case CredentialKind.SESSION_TOKEN:
            query = _HOLD_SESSION_TOKEN
        case CredentialKind.DEVICE:
            query = _HOLD_DEVICE_EXCLUSIVELY if exclusive else _HOLD_DEVICE
        case CredentialKind.JOB_KEY:
            query = _HOLD_JOB_KEY
        case CredentialKind.API_KEY:
            query = _HOLD_API_KEY_EXCLUSIVELY if exclusive else _HOLD_API_KEY
    await connection.execute(query, (credential.secret_hash,))


async def block(connection: Connection, ids: Collection[UUID]) -> None:
    """Before keys or tokens are revoked: waits for transactions that use them and keeps new ones from starting."""
    await connection.execute(_BLOCK, (list(ids),))


async def find_principals(connection: Connection, credentials: Collection[Credential]) -> dict[Credential, Principal]:
    """The principals of those credentials that are valid. Used for requests and for open streams, so that a revocation
    ends both."""
    asked = {(credential.secret_hash, credential.workspace_id): credential for credential in credentials}
    values = ([secret_hash for secret_hash, _ in asked], [workspace_id for _, workspace_id in asked])
    rows = await fetch_rows(connection, _FIND, values)
    return {asked[row["secret_hash"], row["named_workspace_id"]]: as_record(Principal, row) for row in rows}


async def caller_of(connection: Connection, principal: Principal) -> Caller | None:
    """None: the token was deleted with its session just now."""
    values = (principal.api_key_id, principal.session_token_id, principal.device_id, principal.user_id)
    return msgspec.convert(await fetch_value(connection, _CALLER_OF, values), Caller | None)


async def caller(connection: Connection, principal: Principal) -> CallerBody | None:
    """None: the token was deleted with its session just now."""
    values: tuple[object, ...] = (principal.credential_id,)
    if principal.session_token_id is not None:
        kind, query = CallerKind.SESSION_TOKEN, _TOKEN_CALLER
    elif principal.device_id is not None:
        kind, query, values = CallerKind.DEVICE, _DEVICE_CALLER, (*values, principal.workspace_id)
    elif principal.trusted_job_id is not None:
        kind, query, values = CallerKind.TRUSTED_JOB, _JOB_CALLER, (*values, principal.expires_at)
    else:
        kind, query = CallerKind.API_KEY, _KEY_CALLER
    rows = await fetch_rows(connection, query, values)
    if not rows:
        return None
    known = {
        "kind": kind,
        "id": principal.credential_id,
        "role": None if principal.session_id is not None else principal.role,
        "permissions": [permission for permission in Permission if permission in principal.permissions],
        "workspace_id": principal.workspace_id,
        "session_id": principal.session_id,
        "may_resolve": principal.may_resolve,
    }
    return as_record(CallerBody, {"expires_at": principal.expires_at} | rows[0] | known)


_WORKSPACE_OF = "SELECT workspace_id FROM sessions WHERE id = %s"


async def workspace_of(connection: Connection, session_id: UUID) -> UUID | None:
    return await fetch_value(connection, _WORKSPACE_OF, (session_id,))
