-- The principals of valid credentials, found by the hashes of their secrets. The only place that decides whether a
-- credential is valid: auth/store.py and submit_inputs() both ask here.
--
-- An API key is valid until it is revoked or expires. A session token is valid until it is revoked or expires, its
-- session is deleted, or the key that made it is revoked.

CREATE OR REPLACE FUNCTION find_principals(secret_hashes bytea[])
RETURNS TABLE (
    secret_hash bytea,
    workspace_id uuid,
    api_key_id uuid,
    user_id uuid,
    scope_id uuid,           -- scope of Idempotency-Keys
    permissions text[],
    expires_at timestamptz,
    session_id uuid,         -- of a session token
    session_token_id uuid
)
LANGUAGE sql STABLE
AS $$
    SELECT k.secret_hash, k.workspace_id, k.id, k.created_by, k.lineage_id, k.permissions, k.expires_at,
           NULL::uuid, NULL::uuid
    FROM api_keys k
    WHERE k.secret_hash = ANY (secret_hashes) AND k.revoked_at IS NULL
      AND (k.expires_at IS NULL OR k.expires_at > clock_timestamp())
    UNION ALL
    SELECT t.secret_hash, s.workspace_id, k.id, k.created_by, s.id, '{}'::text[], t.expires_at, s.id, t.id
    FROM session_tokens t
    JOIN sessions s ON s.id = t.session_id
    JOIN api_keys k ON k.id = t.api_key_id
    WHERE t.secret_hash = ANY (secret_hashes) AND t.revoked_at IS NULL AND t.expires_at > clock_timestamp()
      AND k.revoked_at IS NULL
$$;
