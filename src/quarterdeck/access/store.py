"""Looking a credential up by its hash."""

from quarterdeck.access.model import Credential, CredentialKind, Permission, Principal
from quarterdeck.db.database import Connection

_API_KEY = """
SELECT workspace_id, id, created_by, lineage_id, permissions, expires_at
FROM api_keys
WHERE secret_hash = %s AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > clock_timestamp())
"""

_SESSION_TOKEN = """
SELECT s.workspace_id, k.id, k.created_by, s.id, t.expires_at
FROM session_tokens t
JOIN sessions s ON s.id = t.session_id
JOIN api_keys k ON k.id = t.api_key_id
WHERE t.secret_hash = %s AND t.revoked_at IS NULL AND t.expires_at > clock_timestamp() AND k.revoked_at IS NULL
"""
_HOLD_API_KEY = f"{_API_KEY} FOR SHARE"
_HOLD_SESSION_TOKEN = f"{_SESSION_TOKEN} FOR SHARE OF t, k"


async def find_principal(connection: Connection, credential: Credential, *, hold: bool) -> Principal | None:
    if credential.kind is CredentialKind.SESSION_TOKEN:
        query = _HOLD_SESSION_TOKEN if hold else _SESSION_TOKEN
        row = await (await connection.execute(query, (credential.secret_hash,))).fetchone()
        if row is None:
            return None
        workspace_id, api_key_id, user_id, session_id, expires_at = row
        return Principal(workspace_id, api_key_id, user_id, session_id, frozenset(), expires_at, session_id)
    query = _HOLD_API_KEY if hold else _API_KEY
    row = await (await connection.execute(query, (credential.secret_hash,))).fetchone()
    if row is None:
        return None
    workspace_id, api_key_id, user_id, lineage_id, permissions, expires_at = row
    held = frozenset(map(Permission, permissions))
    return Principal(workspace_id, api_key_id, user_id, lineage_id, held, expires_at)
