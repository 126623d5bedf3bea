CREATE TABLE webhooks (
    id uuid PRIMARY KEY,
    workspace_id uuid NOT NULL REFERENCES workspaces,
    url text NOT NULL,
    -- Of the URL, in lower case: simultaneous deliveries to one receiver are counted by it.
    host text NOT NULL,
    events text[] NOT NULL,
    description text,
    enabled boolean NOT NULL DEFAULT true,
    -- Why the service turned it off. NULL: it is on, or a person did.
    disabled_reason text,
    -- The first attempt that failed since the last that did not.
    failing_since timestamptz,
    -- Both are encrypted; the keys are not in the database.
    secret bytea NOT NULL,
    previous_secret bytea,
    previous_secret_expires_at timestamptz,
    created_by uuid NOT NULL REFERENCES users,
    revision integer NOT NULL DEFAULT 1,
    CHECK ((previous_secret IS NULL) = (previous_secret_expires_at IS NULL))
);
CREATE UNIQUE INDEX webhooks_page ON webhooks (workspace_id, id);

-- No foreign keys: a delivery stays when its run is deleted, and a webhook is deleted without waiting for its deliveries,
-- which the sweep deletes later.
CREATE TABLE webhook_deliveries (
    id uuid PRIMARY KEY,
    webhook_id uuid NOT NULL,
    event text NOT NULL,
    run_id uuid,
    -- The bytes that are signed: every attempt sends the same.
    payload bytea NOT NULL,
    state text NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'delivered', 'failed')),
    -- The fence: the result of an attempt is stored only while no later one has begun.
    attempts integer NOT NULL DEFAULT 0,
    -- Attempts before a person asked for it again: the schedule begins again from there.
    attempts_before integer NOT NULL DEFAULT 0,
    -- Whether an attempt is under way. Then its worker is taken for dead at next_attempt_at.
    sending boolean NOT NULL DEFAULT false,
    next_attempt_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    last_status integer,
    last_error text,
    duration_ms integer,
    delivered_at timestamptz
);
CREATE UNIQUE INDEX webhook_deliveries_page ON webhook_deliveries (webhook_id, id);
CREATE INDEX webhook_deliveries_state ON webhook_deliveries (webhook_id, state, id);
CREATE INDEX webhook_deliveries_due ON webhook_deliveries (webhook_id, next_attempt_at) WHERE state = 'pending';
