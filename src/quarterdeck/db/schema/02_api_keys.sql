-- API keys. Session tokens are in 08_sessions.sql.

CREATE TABLE api_keys (
    id uuid PRIMARY KEY,
    workspace_id uuid NOT NULL REFERENCES workspaces,
    -- The first key of a chain of rotations. Idempotency-Keys are scoped by it, so a rotated key still finds its receipts.
    lineage_id uuid NOT NULL REFERENCES api_keys,
    label text NOT NULL,
    prefix text NOT NULL,
    secret_hash bytea NOT NULL CONSTRAINT api_keys_secret_hash UNIQUE CHECK (octet_length(secret_hash) = 32),
    permissions text[] NOT NULL CHECK (
        permissions <@ ARRAY[
            'workspace.read', 'key.manage', 'session.manage', 'action.resolve', 'skill.manage', 'agent.manage',
            'credential.manage', 'member.manage'
        ]
    ),
    created_by uuid NOT NULL REFERENCES users,
    expires_at timestamptz,
    last_used_at timestamptz,
    revoked_at timestamptz,
    -- A key is rotated into one other key, and no two keys into the same one.
    replaced_by uuid CONSTRAINT api_keys_replaced_by UNIQUE REFERENCES api_keys
) WITH (fillfactor = 80);
CREATE UNIQUE INDEX api_keys_page ON api_keys (workspace_id, id);

-- A key or token that has ended stays ended, also for a process that sends statements of its own: a revocation cannot be
-- removed or moved, an expiry cannot be removed or postponed, and a key is replaced once. The owner of the tables can
-- disable these triggers; the role of API and workers cannot.
CREATE FUNCTION refuse_change() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    RAISE EXCEPTION 'a row of % that has ended, or ends sooner, cannot be changed back', TG_TABLE_NAME
        USING ERRCODE = 'insufficient_privilege';
END;
$$;

CREATE TRIGGER api_keys_stay_ended BEFORE UPDATE OF revoked_at, expires_at, replaced_by ON api_keys
FOR EACH ROW WHEN (
    (OLD.revoked_at IS NOT NULL AND NEW.revoked_at IS DISTINCT FROM OLD.revoked_at)
    OR (OLD.expires_at IS NOT NULL AND (NEW.expires_at IS NULL OR NEW.expires_at > OLD.expires_at))
    OR (OLD.replaced_by IS NOT NULL AND NEW.replaced_by IS DISTINCT FROM OLD.replaced_by)
) EXECUTE FUNCTION refuse_change();
