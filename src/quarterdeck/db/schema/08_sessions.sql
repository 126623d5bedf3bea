-- Sessions, and the tokens that give access to one of them.

CREATE TABLE sessions (
    id uuid PRIMARY KEY,
    workspace_id uuid NOT NULL REFERENCES workspaces,
    title text,
    -- The input that the title was made from. The title is removed when this event is deleted. NULL: there is no title,
    -- or a person has set it.
    title_event_id bigint,

    agent_id uuid REFERENCES agents,
    -- NULL: the default version of the agent when a run begins.
    agent_version integer,
    -- The fields that do not follow the agent. Only for sessions with an agent. The columns of the other fields hold
    -- the values of the agent as of the last change of the session or the last run that began.
    overrides text[] NOT NULL DEFAULT '{}',
    model text,
    instructions text,
    settings jsonb NOT NULL DEFAULT '{}',
    tool_policy jsonb NOT NULL DEFAULT '{}',
    client_tools jsonb NOT NULL DEFAULT '[]',
    -- No foreign key: a server can be deleted while sessions and agents name it.
    mcp_servers uuid[] NOT NULL DEFAULT '{}',
    output_schema jsonb,
    -- They answer while the model is not available, the first of them first.
    fallback_models text[] NOT NULL DEFAULT '{}',
    -- SandboxOptions in the package `sandbox`. NULL: the agent has no sandbox.
    sandbox jsonb CHECK (jsonb_typeof(sandbox) = 'object'),
    -- {"run": {"max_cost_usd", "max_tokens"}, "session": {…}}; a limit that is not set is missing.
    limits jsonb NOT NULL DEFAULT '{}',

    -- Number of changes of its files. A worker whose folder has another revision brings it up to date first.
    files_revision bigint NOT NULL DEFAULT 0,
    -- What the deleted runs of the session have used. It still counts against the limits of the session.
    expired_input_tokens bigint NOT NULL DEFAULT 0,
    expired_cached_tokens bigint NOT NULL DEFAULT 0,
    expired_cache_write_tokens bigint NOT NULL DEFAULT 0,
    expired_output_tokens bigint NOT NULL DEFAULT 0,
    expired_cost_usd numeric,
    -- No foreign key: the origin may be deleted, this stays.
    forked_from_session_id uuid,
    -- The first event of the origin that was not copied. NULL: the whole log was.
    forked_from_event_id bigint,
    created_by uuid NOT NULL REFERENCES users,
    archived_at timestamptz,
    -- Counts changes made by people; the ETag is made of it. Inputs and runs do not change it.
    revision integer NOT NULL DEFAULT 1
);
CREATE UNIQUE INDEX sessions_page ON sessions (workspace_id, id);
CREATE INDEX sessions_active ON sessions (workspace_id, id) WHERE archived_at IS NULL;
CREATE INDEX sessions_archived ON sessions (workspace_id, id) WHERE archived_at IS NOT NULL;
CREATE INDEX sessions_agent ON sessions (agent_id) WHERE agent_id IS NOT NULL;
-- Retention finds logs by their inputs (session_events_inputs). Inputs that a fork has copied are not in that index.
CREATE INDEX sessions_forked ON sessions (workspace_id, id) WHERE forked_from_session_id IS NOT NULL;

CREATE TABLE session_skills (
    session_id uuid NOT NULL REFERENCES sessions ON DELETE CASCADE,
    position integer NOT NULL,
    skill_id uuid NOT NULL REFERENCES skills,
    -- NULL: the default version of the skill.
    version integer,
    PRIMARY KEY (session_id, position),
    UNIQUE (session_id, skill_id),
    FOREIGN KEY (skill_id, version) REFERENCES skill_versions (skill_id, version)
);
-- Whether a session uses a skill is asked before the skill is deleted, and again by the foreign key.
CREATE INDEX session_skills_skill ON session_skills (skill_id);

CREATE TABLE session_tokens (
    id uuid PRIMARY KEY,
    session_id uuid NOT NULL REFERENCES sessions ON DELETE CASCADE,
    -- A token ends with the key that made it, and with the membership of the person.
    api_key_id uuid REFERENCES api_keys,
    created_by uuid NOT NULL REFERENCES users,
    secret_hash bytea NOT NULL CONSTRAINT session_tokens_secret_hash UNIQUE CHECK (octet_length(secret_hash) = 32),
    prefix text NOT NULL,
    label text,
    may_resolve boolean NOT NULL DEFAULT false,
    expires_at timestamptz NOT NULL,
    revoked_at timestamptz
);
CREATE UNIQUE INDEX session_tokens_page ON session_tokens (session_id, id);

-- As for API keys: 02_api_keys.sql.
CREATE TRIGGER session_tokens_stay_ended BEFORE UPDATE OF revoked_at, expires_at ON session_tokens
FOR EACH ROW WHEN (
    (OLD.revoked_at IS NOT NULL AND NEW.revoked_at IS DISTINCT FROM OLD.revoked_at) OR NEW.expires_at > OLD.expires_at
) EXECUTE FUNCTION refuse_change();

-- Deleted sessions whose events, actions, files and words are still to be deleted. They may have millions of rows, so
-- they are deleted in batches, and those tables have no foreign key to `sessions`.
CREATE TABLE deleted_sessions (
    session_id uuid PRIMARY KEY,
    deleted_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX deleted_sessions_oldest ON deleted_sessions (deleted_at);
