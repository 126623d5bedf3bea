-- Functions that only processes of the previous release call, so that they keep working during a rolling upgrade. This
-- release does not use them; the next one deletes them (docs/decisions/0082).

-- 0.1.0: stores a version of a skill, with its audit entry and receipt, after its archive was stored. Each statement has
-- its own snapshot (VOLATILE, READ COMMITTED), so those after a lock see what the previous holder committed.
CREATE OR REPLACE FUNCTION push_skill_version(
    secret_hash bytea,
    skill_id uuid,
    if_match text[],             -- tags of If-Match, or NULL
    idempotency_key text,        -- or NULL
    fingerprint bytea,
    version_id uuid,
    bundle_sha256 bytea,
    bundle_bytes bigint,
    frontmatter text,            -- JSON
    manifest text,
    audit_event_id uuid,
    address text,
    request_id text,
    OUT verdict text,
    OUT version integer,
    OUT body bytea               -- of the receipt
)
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    caller record;
    receipt record;
    skill record;
BEGIN
    PERFORM pg_advisory_xact_lock_shared(credential_lock(k.id))
    FROM api_keys k WHERE k.secret_hash = push_skill_version.secret_hash;
    SELECT k.id, k.workspace_id, k.created_by, k.lineage_id, 'skill.manage' = ANY (k.permissions) AS may INTO caller
    FROM api_keys k
    WHERE k.secret_hash = push_skill_version.secret_hash AND k.revoked_at IS NULL
      AND (k.expires_at IS NULL OR k.expires_at > clock_timestamp());
    IF NOT FOUND THEN
        verdict := 'unauthorized';
        RETURN;
    END IF;
    IF NOT caller.may THEN
        verdict := 'forbidden';
        RETURN;
    END IF;

    IF idempotency_key IS NOT NULL THEN
        PERFORM pg_advisory_xact_lock(
            hashtextextended(caller.lineage_id || ' push_skill_version ' || idempotency_key, 2));
        SELECT r.fingerprint, r.body INTO receipt
        FROM receipts r
        WHERE r.scope_id = caller.lineage_id AND r.operation = 'push_skill_version' AND r.key = idempotency_key;
        IF FOUND THEN
            verdict := CASE WHEN receipt.fingerprint = fingerprint THEN 'replayed' ELSE 'conflict' END;
            body := CASE verdict WHEN 'replayed' THEN receipt.body END;
            RETURN;
        END IF;
    END IF;

    -- Pushes to one skill wait for each other at this row, so versions have no gaps.
    SELECT s.latest_version, s.revision, s.archived_at INTO skill
    FROM skills s WHERE s.workspace_id = caller.workspace_id AND s.id = skill_id
    FOR NO KEY UPDATE;
    verdict := CASE
        WHEN NOT FOUND THEN 'not_found'
        WHEN NOT ('"' || skill.revision || '"' = ANY (if_match) OR '*' = ANY (if_match)) THEN 'changed'
        WHEN skill.archived_at IS NOT NULL THEN 'archived'
        ELSE 'pushed'
    END;
    IF verdict <> 'pushed' THEN
        RETURN;
    END IF;

    version := skill.latest_version + 1;
    UPDATE skills s SET latest_version = version, revision = s.revision + 1 WHERE s.id = skill_id;
    INSERT INTO skill_versions
        (id, skill_id, version, bundle_sha256, bundle_bytes, frontmatter, manifest, created_by)
    VALUES (version_id, skill_id, version, bundle_sha256, bundle_bytes, frontmatter::json, manifest::json,
            caller.created_by);
    INSERT INTO audit_events
        (id, workspace_id, action, object_type, object_id, user_id, api_key_id, address, request_id, detail)
    VALUES (audit_event_id, caller.workspace_id, 'push_skill_version', 'skill_version', version_id, caller.created_by,
            caller.id, address, request_id, jsonb_build_object('skill_id', skill_id, 'version', version));
    IF idempotency_key IS NOT NULL THEN
        -- The response of release 0.1.0.
        INSERT INTO receipts (scope_id, operation, key, fingerprint, body)
        VALUES (caller.lineage_id, 'push_skill_version', idempotency_key, fingerprint, convert_to(
            '{"id":"' || version_id || '","skill_id":"' || skill_id || '","version":' || version
            || ',"bundle_bytes":' || bundle_bytes || ',"frontmatter":' || frontmatter || ',"manifest":' || manifest
            || '}', 'UTF8'));
    END IF;
END;
$$;
