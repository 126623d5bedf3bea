-- Every record's creation time is inside its UUIDv7, so no table repeats it and pages order by id.

CREATE TABLE users (
    id uuid PRIMARY KEY,
    email text NOT NULL,
    display_name text
);
CREATE UNIQUE INDEX users_email ON users (lower(email));

CREATE TABLE workspaces (
    id uuid PRIMARY KEY,
    name text NOT NULL,
    owner_id uuid NOT NULL REFERENCES users
);

-- A membership ends and may begin again; the user's row stays, so that "created by" always renders.
CREATE TABLE members (
    workspace_id uuid NOT NULL REFERENCES workspaces,
    user_id uuid NOT NULL REFERENCES users,
    ended_at timestamptz,
    PRIMARY KEY (workspace_id, user_id)
);

CREATE TABLE api_keys (
    id uuid PRIMARY KEY,
    workspace_id uuid NOT NULL REFERENCES workspaces,
    -- The first key of a chain of rotations. Idempotency-Keys are scoped by it, so a rotated key still finds its receipts.
    lineage_id uuid NOT NULL REFERENCES api_keys,
    label text NOT NULL,
    prefix text NOT NULL,
    secret_hash bytea NOT NULL CONSTRAINT api_keys_secret_hash UNIQUE CHECK (octet_length(secret_hash) = 32),
    permissions text[] NOT NULL CHECK (
        permissions <@ ARRAY['workspace.read', 'key.manage', 'session.manage', 'skill.manage']
    ),
    created_by uuid NOT NULL REFERENCES users,
    expires_at timestamptz,
    last_used_at timestamptz,
    revoked_at timestamptz
) WITH (fillfactor = 80);
CREATE UNIQUE INDEX api_keys_page ON api_keys (workspace_id, id);

CREATE TABLE sessions (
    id uuid PRIMARY KEY,
    workspace_id uuid NOT NULL REFERENCES workspaces,
    title text,
    created_by uuid NOT NULL REFERENCES users
);
CREATE UNIQUE INDEX sessions_page ON sessions (workspace_id, id);

CREATE TABLE session_tokens (
    id uuid PRIMARY KEY,
    session_id uuid NOT NULL REFERENCES sessions ON DELETE CASCADE,
    -- A token ends with the key that made it.
    api_key_id uuid NOT NULL REFERENCES api_keys,
    secret_hash bytea NOT NULL CONSTRAINT session_tokens_secret_hash UNIQUE CHECK (octet_length(secret_hash) = 32),
    prefix text NOT NULL,
    expires_at timestamptz NOT NULL,
    revoked_at timestamptz
);
CREATE INDEX session_tokens_session ON session_tokens (session_id);

-- last_input and consumed_through are ids of the session's input events. Steering updates this row for every
-- input: the spare room and the absence of an index on what changes keep that a heap-only update.
CREATE TABLE runs (
    id uuid PRIMARY KEY,
    session_id uuid NOT NULL REFERENCES sessions ON DELETE CASCADE,
    state text NOT NULL CHECK (state IN ('queued', 'running', 'succeeded', 'failed', 'cancelled')),
    attempt integer NOT NULL DEFAULT 0,
    last_input bigint NOT NULL,
    consumed_through bigint NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CHECK (consumed_through <= last_input)
) WITH (fillfactor = 80);
CREATE UNIQUE INDEX runs_one_active_a_session ON runs (session_id) WHERE state IN ('queued', 'running');
CREATE UNIQUE INDEX runs_page ON runs (session_id, id);

-- The log of a session. Ids are drawn one at a time while the session's lock is held, so within a session they are
-- in commit order and a reader resumes by `id > last`.
CREATE SEQUENCE session_event_ids AS bigint CACHE 1;
CREATE TABLE session_events (
    id bigint NOT NULL DEFAULT nextval('session_event_ids'),
    session_id uuid NOT NULL REFERENCES sessions ON DELETE CASCADE,
    run_id uuid,
    type text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    data jsonb NOT NULL,
    PRIMARY KEY (session_id, id)
);
ALTER SEQUENCE session_event_ids OWNED BY session_events.id;

CREATE TABLE skills (
    id uuid PRIMARY KEY,
    workspace_id uuid NOT NULL REFERENCES workspaces,
    name text NOT NULL,
    created_by uuid NOT NULL REFERENCES users,
    latest_version integer NOT NULL DEFAULT 0
) WITH (fillfactor = 80);
CREATE UNIQUE INDEX skills_page ON skills (workspace_id, id);

-- A row per stored archive. Touched before the archive is written and referenced by its versions: the sweep of
-- orphans locks it, and so cannot take an archive that a push has just found. The generation is part of the archive's
-- name in the store: what the sweep is about to delete there is never what a later push of the same content writes.
CREATE TABLE bundles (
    sha256 bytea PRIMARY KEY CHECK (octet_length(sha256) = 32),
    generation uuid NOT NULL,
    bytes bigint NOT NULL,
    touched_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX bundles_touched ON bundles (touched_at);

-- Archives that have lost their row and are still to be deleted from the store.
CREATE TABLE condemned_bundles (
    sha256 bytea NOT NULL,
    generation uuid NOT NULL,
    PRIMARY KEY (sha256, generation)
);

-- json, not jsonb: the answer of a later read has the same text as the answer of the push.
CREATE TABLE skill_versions (
    id uuid PRIMARY KEY,
    skill_id uuid NOT NULL REFERENCES skills,
    version integer NOT NULL CHECK (version > 0),
    bundle_sha256 bytea NOT NULL REFERENCES bundles,
    bundle_bytes bigint NOT NULL,
    frontmatter json NOT NULL,
    manifest json NOT NULL,
    created_by uuid NOT NULL REFERENCES users,
    CONSTRAINT skill_versions_number UNIQUE (skill_id, version)
);
CREATE INDEX skill_versions_bundle ON skill_versions (bundle_sha256);

-- The saved answer of a request with an Idempotency-Key, written in the transaction of its effect.
CREATE TABLE receipts (
    scope_id uuid NOT NULL,
    operation text NOT NULL,
    key text NOT NULL,
    fingerprint bytea NOT NULL,
    body bytea NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT receipts_once PRIMARY KEY (scope_id, operation, key)
);
CREATE INDEX receipts_created ON receipts (created_at);
