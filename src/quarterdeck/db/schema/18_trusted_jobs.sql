-- Jobs of other systems, such as CI, that may push versions of a skill without holding a secret: what their issuer says
-- of them has to fit. They act for the person who trusts them.

CREATE TABLE trusted_jobs (
    id uuid PRIMARY KEY,
    workspace_id uuid NOT NULL REFERENCES workspaces,
    skill_id uuid NOT NULL REFERENCES skills ON DELETE CASCADE,
    name text NOT NULL,
    issuer text NOT NULL,
    -- Each claim and what its value has to be.
    claims jsonb NOT NULL,
    created_by uuid NOT NULL REFERENCES users,
    last_used_at timestamptz
) WITH (fillfactor = 80);
CREATE UNIQUE INDEX trusted_jobs_page ON trusted_jobs (workspace_id, id);
CREATE INDEX trusted_jobs_of_skill ON trusted_jobs (skill_id);

-- For some minutes each.
CREATE TABLE job_keys (
    secret_hash bytea PRIMARY KEY CHECK (octet_length(secret_hash) = 32),
    prefix text NOT NULL,
    trusted_job_id uuid NOT NULL REFERENCES trusted_jobs ON DELETE CASCADE,
    expires_at timestamptz NOT NULL
);
CREATE INDEX job_keys_of_job ON job_keys (trusted_job_id, expires_at);
