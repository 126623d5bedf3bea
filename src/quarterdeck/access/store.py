"""Looking credentials up by their hashes."""

from collections.abc import Collection

from quarterdeck.access.model import Credential, CredentialKind, Permission, Principal
from quarterdeck.db.arrays import bytea_array
from quarterdeck.db.database import Connection

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
_HOLD_API_KEYS = f"{_API_KEYS} FOR SHARE"
_HOLD_SESSION_TOKENS = f"{_SESSION_TOKENS} FOR SHARE OF t, k"


async def find_principals(
    connection: Connection, credentials: Collection[Credential], *, hold: bool = False
) -> dict[Credential, Principal]:
    """Those that are alive. One look-up for the caller of a request and for the readers of a thousand streams, so that
    what ends the one ends the others."""
    found: dict[Credential, Principal] = {}
    if keys := _hashes(credentials, CredentialKind.API_KEY):
        rows = await (await connection.execute(_HOLD_API_KEYS if hold else _API_KEYS, (bytea_array(keys),))).fetchall()
        for secret_hash, workspace_id, api_key_id, user_id, lineage_id, permissions, expires_at in rows:
            held = frozenset(map(Permission, permissions))
            principal = Principal(workspace_id, api_key_id, user_id, lineage_id, held, expires_at)
            found[Credential(CredentialKind.API_KEY, secret_hash)] = principal
    if tokens := _hashes(credentials, CredentialKind.SESSION_TOKEN):
        query = _HOLD_SESSION_TOKENS if hold else _SESSION_TOKENS
        rows = await (await connection.execute(query, (bytea_array(tokens),))).fetchall()
        for secret_hash, workspace_id, api_key_id, user_id, session_id, expires_at, token_id in rows:
            principal = Principal(
                workspace_id, api_key_id, user_id, session_id, frozenset(), expires_at, session_id, token_id
            )
            found[Credential(CredentialKind.SESSION_TOKEN, secret_hash)] = principal
    return found


def _hashes(credentials: Collection[Credential], kind: CredentialKind) -> list[bytes]:
    return [credential.secret_hash for credential in credentials if credential.kind is kind]
