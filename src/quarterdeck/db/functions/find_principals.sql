-- The principals of valid credentials, found by the hashes of their secrets. The only place that decides whether a
-- credential is valid: auth/store.py and submit_inputs() both ask here.
--
-- An API key is valid until it is revoked or expires. A session token is valid until it is revoked or expires, its
-- session is deleted, or the key that made it is revoked. A device is valid until it is signed out or expires. All of
-- them act for a person, and are valid only while the person is a member of the workspace, with no more than the
-- permissions of the person's role. The key of a trusted job is valid until it expires or the job is no longer trusted.

-- The permissions of each role. The table for people is in docs/use/people.md.
CREATE OR REPLACE FUNCTION permissions_of(role text) RETURNS text[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE
    WHEN role IN ('owner', 'admin') THEN ARRAY[
        'workspace.read', 'key.manage', 'session.manage', 'action.resolve', 'skill.manage', 'agent.manage',
        'credential.manage', 'member.manage'
    ]
    WHEN role = 'member' THEN ARRAY['workspace.read', 'session.manage', 'action.resolve', 'skill.manage', 'agent.manage']
    ELSE ARRAY['workspace.read']
END;

CREATE OR REPLACE FUNCTION find_principals(
    secret_hashes bytea[],
    -- Of devices: the workspace that the request names, or NULL. A device that names none, or a workspace of which its
    -- person is no member, acts in the workspace that the person joined first.
    named_workspace_ids uuid[]
)
RETURNS TABLE (
    secret_hash bytea,
    named_workspace_id uuid, -- of a device
    workspace_id uuid,
    api_key_id uuid,         -- NULL: a device, or a session token that was made with one
    user_id uuid,
    role text,
    scope_id uuid,           -- scope of Idempotency-Keys: of a device, one for each workspace
    permissions text[],
    expires_at timestamptz,
    session_id uuid,         -- of a session token
    session_token_id uuid,
    device_id uuid,
    trusted_job_id uuid,
    skill_id uuid            -- of a trusted job: all that it can see
)
LANGUAGE sql STABLE
AS $$
    SELECT k.secret_hash, NULL::uuid, k.workspace_id, k.id, k.created_by, m.role, k.lineage_id,
           CASE
               WHEN m.role IN ('owner', 'admin') THEN k.permissions
               ELSE ARRAY(SELECT unnest(k.permissions) INTERSECT SELECT unnest(permissions_of(m.role)))
           END,
           k.expires_at, NULL::uuid, NULL::uuid, NULL::uuid, NULL::uuid, NULL::uuid
    FROM api_keys k
    JOIN members m ON m.workspace_id = k.workspace_id AND m.user_id = k.created_by AND m.ended_at IS NULL
    WHERE k.secret_hash = ANY (secret_hashes) AND k.revoked_at IS NULL
      AND (k.expires_at IS NULL OR k.expires_at > clock_timestamp())
    UNION ALL
    SELECT t.secret_hash, NULL::uuid, s.workspace_id, t.api_key_id, t.created_by, m.role, s.id, '{}'::text[],
           t.expires_at, s.id, t.id, NULL::uuid, NULL::uuid, NULL::uuid
    FROM session_tokens t
    JOIN sessions s ON s.id = t.session_id
    JOIN members m ON m.workspace_id = s.workspace_id AND m.user_id = t.created_by AND m.ended_at IS NULL
    LEFT JOIN api_keys k ON k.id = t.api_key_id
    -- A viewer cannot make tokens, so those of a person who has become one are not valid.
    WHERE t.secret_hash = ANY (secret_hashes) AND t.revoked_at IS NULL AND t.expires_at > clock_timestamp()
      AND k.revoked_at IS NULL AND m.role <> 'viewer'
    UNION ALL
    SELECT d.secret_hash, asked.workspace_id, m.workspace_id, NULL::uuid, d.user_id, m.role,
           md5(d.id::text || m.workspace_id::text)::uuid, permissions_of(m.role),
           -- A person may give keys a longer life than their device has left.
           NULL::timestamptz, NULL::uuid, NULL::uuid, d.id, NULL::uuid, NULL::uuid
    FROM unnest(secret_hashes, named_workspace_ids) AS asked (secret_hash, workspace_id)
    JOIN devices d ON d.secret_hash = asked.secret_hash
    CROSS JOIN LATERAL (
        SELECT own.workspace_id, own.role FROM members own
        WHERE own.user_id = d.user_id AND own.ended_at IS NULL
        ORDER BY own.workspace_id IS DISTINCT FROM asked.workspace_id, own.joined_at, own.workspace_id
        LIMIT 1
    ) m
    WHERE d.ended_at IS NULL AND d.expires_at > clock_timestamp()
    UNION ALL
    SELECT j.secret_hash, NULL::uuid, t.workspace_id, NULL::uuid, t.created_by, m.role, t.id,
           ARRAY(SELECT unnest(ARRAY['workspace.read', 'skill.manage']) INTERSECT SELECT unnest(permissions_of(m.role))),
           j.expires_at, NULL::uuid, NULL::uuid, NULL::uuid, t.id, t.skill_id
    FROM job_keys j
    JOIN trusted_jobs t ON t.id = j.trusted_job_id
    JOIN members m ON m.workspace_id = t.workspace_id AND m.user_id = t.created_by AND m.ended_at IS NULL
    WHERE j.secret_hash = ANY (secret_hashes) AND j.expires_at > clock_timestamp()
$$;
