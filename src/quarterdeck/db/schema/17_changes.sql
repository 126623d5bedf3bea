-- Receipts of changes, and the audit log. Both are written in the transaction of the change.

-- The response to a request with an Idempotency-Key.
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

CREATE TABLE audit_events (
    id uuid PRIMARY KEY,
    workspace_id uuid NOT NULL REFERENCES workspaces,
    action text NOT NULL,
    object_type text NOT NULL,
    -- No foreign key: the object may be deleted, this stays.
    object_id uuid NOT NULL,
    -- NULL: an object without a name.
    object_name text,
    -- NULL: the operator, who works on the database itself and needs no credential.
    user_id uuid REFERENCES users,
    api_key_id uuid REFERENCES api_keys,
    session_token_id uuid,
    device_id uuid REFERENCES devices,
    -- No foreign key: it may be deleted.
    trusted_job_id uuid,
    address text,
    request_id text,
    detail jsonb NOT NULL
);
CREATE UNIQUE INDEX audit_events_page ON audit_events (workspace_id, id);
-- An index for each filter, newest or oldest first.
CREATE INDEX audit_events_object ON audit_events (workspace_id, object_id, id);
CREATE INDEX audit_events_user ON audit_events (workspace_id, user_id, id);
CREATE INDEX audit_events_action ON audit_events (workspace_id, action, id);
CREATE INDEX audit_events_object_type ON audit_events (workspace_id, object_type, id);

-- How long the audit log is kept. Only the owner of the tables can write this row, so a process that deletes expired
-- entries cannot shorten the time. Without the row nothing is deleted.
CREATE TABLE audit_retention (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    keep_days integer NOT NULL CHECK (keep_days > 0)
);
