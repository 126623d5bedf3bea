"""Looking credentials up by their hashes, and showing the one that asks."""

from collections.abc import Collection
from uuid import UUID

from quarterdeck.access.model import (
    PERMISSIONS,
    CallerBody,
    CallerKind,
    Credential,
    CredentialKind,
    Permission,
    Principal,
)
from quarterdeck.db.arrays import bytea_array, uuid_array
from quarterdeck.db.database import Connection
from quarterdeck.workspaces.model import ActorBody

_API_KEYS = """
SELECT secret_hash, workspace_id, id, created_by, lineage_id, permissions, expires_at
FROM api_keys
WHERE secret_hash = ANY (%s::bytea[]) AND revoked_at IS NULL
  AND (expires_at IS NULL OR expires_at > clock_timestamp())
"""

_SESSION_TOKENS = """
SELECT t.secret_hash, s.workspace_id, k.id, k.created_by, s.id, t.expires_at, t.id
FROM session_tokens t
JOIN sessions s ON s.id = t.session_id
JOIN api_keys k ON k.id = t.api_key_id
WHERE t.secret_hash = ANY (%s::bytea[]) AND t.revoked_at IS NULL AND t.expires_at > clock_timestamp()
  AND k.revoked_at IS NULL
"""
# Locks of their own, not of the rows: who waits to end a credential is next in line, whereas a row lock that is shared
# is given to newcomers first, so that a key in constant use could never be revoked.
_HOLD_API_KEYS = """
SELECT pg_advisory_xact_lock_shared(credential_lock(id)) FROM api_keys WHERE secret_hash = ANY (%s::bytea[])
"""
_HOLD_SESSION_TOKENS = """
SELECT pg_advisory_xact_lock_shared(credential_lock(api_key_id)), pg_advisory_xact_lock_shared(credential_lock(id))
FROM session_tokens WHERE secret_hash = ANY (%s::bytea[])
"""
_SEIZE_API_KEYS = """
SELECT pg_advisory_xact_lock(credential_lock(id)) FROM api_keys WHERE secret_hash = ANY (%s::bytea[])
"""
_SEIZE = """
SELECT pg_advisory_xact_lock(credential_lock(id)) FROM (SELECT id FROM unnest(%s::uuid[]) AS id ORDER BY id) AS sorted
"""
_KEY_CALLER = """
SELECT k.prefix, k.label, w.name, u.id, u.display_name, u.email
FROM api_keys k JOIN workspaces w ON w.id = k.workspace_id JOIN users u ON u.id = k.created_by
WHERE k.id = %s
"""
_TOKEN_CALLER = """
SELECT t.prefix, NULL, w.name, u.id, u.display_name, u.email
FROM session_tokens t
JOIN api_keys k ON k.id = t.api_key_id
JOIN workspaces w ON w.id = k.workspace_id
JOIN users u ON u.id = k.created_by
WHERE t.id = %s
"""


async def hold(connection: Connection, credential: Credential, *, alone: bool) -> None:
    """Until the transaction ends the credential does not. A statement of its own: what is looked up next must see what
    whoever ended it committed. `alone` is for those who may end the very key they come with: two who share it and both
    want it alone would wait for each other."""
    if credential.kind is CredentialKind.SESSION_TOKEN:
        query = _HOLD_SESSION_TOKENS
    else:
        query = _SEIZE_API_KEYS if alone else _HOLD_API_KEYS
    await connection.execute(query, (bytea_array([credential.secret_hash]),))


async def seize(connection: Connection, ids: Collection[UUID]) -> None:
    """Before keys or tokens are ended: nobody is at work with them from here on."""
    await connection.execute(_SEIZE, (uuid_array(ids),))


async def find_principals(connection: Connection, credentials: Collection[Credential]) -> dict[Credential, Principal]:
    """Those that are alive. One look-up for the caller of a request and for the readers of a thousand streams, so that
    what ends the one ends the others."""
    found: dict[Credential, Principal] = {}
    if keys := _hashes(credentials, CredentialKind.API_KEY):
        rows = await (await connection.execute(_API_KEYS, (bytea_array(keys),))).fetchall()
        for secret_hash, workspace_id, api_key_id, user_id, lineage_id, permissions, expires_at in rows:
            held = frozenset(map(PERMISSIONS.__getitem__, permissions))
            principal = Principal(workspace_id, api_key_id, user_id, lineage_id, held, expires_at)
            found[Credential(CredentialKind.API_KEY, secret_hash)] = principal
    if tokens := _hashes(credentials, CredentialKind.SESSION_TOKEN):
        rows = await (await connection.execute(_SESSION_TOKENS, (bytea_array(tokens),))).fetchall()
        for secret_hash, workspace_id, api_key_id, user_id, session_id, expires_at, token_id in rows:
            principal = Principal(
                workspace_id, api_key_id, user_id, session_id, frozenset(), expires_at, session_id, token_id
            )
            found[Credential(CredentialKind.SESSION_TOKEN, secret_hash)] = principal
    return found


async def caller(connection: Connection, principal: Principal) -> CallerBody | None:
    """None: the token went with its session just now."""
    token_id = principal.session_token_id
    query, identifier = (_KEY_CALLER, principal.api_key_id) if token_id is None else (_TOKEN_CALLER, token_id)
    row = await (await connection.execute(query, (identifier,))).fetchone()
    if row is None:
        return None
    prefix, label, workspace_name, *actor = row
    return CallerBody(
        kind=CallerKind.API_KEY if token_id is None else CallerKind.SESSION_TOKEN,
        id=identifier,
        prefix=prefix,
        label=label,
        permissions=[permission for permission in Permission if permission in principal.permissions],
        workspace_id=principal.workspace_id,
        workspace_name=workspace_name,
        session_id=principal.session_id,
        expires_at=principal.expires_at,
        user=ActorBody(*actor),
    )


def _hashes(credentials: Collection[Credential], kind: CredentialKind) -> list[bytes]:
    return [credential.secret_hash for credential in credentials if credential.kind is kind]
