-- What the operations around the first three need: rotation, archiving, preconditions, and who did what.

-- NULL: keys of this workspace may live for ever.
ALTER TABLE workspaces ADD COLUMN max_key_days integer CHECK (max_key_days > 0);

ALTER TABLE members ADD COLUMN joined_at timestamptz NOT NULL DEFAULT clock_timestamp();

-- A key is rotated into one other: a column holds one value, and no two keys become the same one.
ALTER TABLE api_keys ADD COLUMN replaced_by uuid CONSTRAINT api_keys_replaced_by UNIQUE REFERENCES api_keys;

-- revision counts the changes that people make; the ETag is made of it. Inputs and runs do not touch this row.
ALTER TABLE sessions
    ADD COLUMN archived_at timestamptz,
    ADD COLUMN revision integer NOT NULL DEFAULT 1;

ALTER TABLE skills
    ADD COLUMN archived_at timestamptz,
    ADD COLUMN revision integer NOT NULL DEFAULT 1,
    -- What sessions get that pin no version. NULL: the latest.
    ADD COLUMN default_version integer,
    ADD CONSTRAINT skills_default_version
        FOREIGN KEY (id, default_version) REFERENCES skill_versions (skill_id, version);

DROP INDEX session_tokens_session;
CREATE UNIQUE INDEX session_tokens_page ON session_tokens (session_id, id);

-- Written in the transaction of the change it tells of. No foreign key on the object: it may be deleted, this stays.
CREATE TABLE audit_events (
    id uuid PRIMARY KEY,
    workspace_id uuid NOT NULL REFERENCES workspaces,
    action text NOT NULL,
    object_type text NOT NULL,
    object_id uuid NOT NULL,
    -- NULL: the operator, who works on the database itself and needs no credential.
    user_id uuid REFERENCES users,
    api_key_id uuid REFERENCES api_keys,
    session_token_id uuid,
    address text,
    request_id text,
    detail jsonb NOT NULL
);
CREATE UNIQUE INDEX audit_events_page ON audit_events (workspace_id, id);
CREATE INDEX audit_events_object ON audit_events (workspace_id, object_id, id);
CREATE INDEX audit_events_user ON audit_events (workspace_id, user_id, id);
