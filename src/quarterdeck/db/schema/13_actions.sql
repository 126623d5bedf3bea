-- Something that a run waits for. A run with an open action is waiting; it continues when none is open.
CREATE TABLE actions (
    id uuid PRIMARY KEY,
    workspace_id uuid NOT NULL REFERENCES workspaces,
    -- No foreign keys: see deleted_sessions. Actions hold megabytes.
    session_id uuid NOT NULL,
    run_id uuid NOT NULL,
    kind text NOT NULL CHECK (kind IN ('approval', 'tool_result', 'unknown_outcome', 'budget')),
    state text NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'resolved', 'expired', 'cancelled')),
    -- The call that it is about, by the number of the answer that made it. NULL: a budget.
    step integer,
    call_id text,
    tool text,
    arguments jsonb,
    -- Of a tool of an MCP server: the hash of the definition that the model was given.
    tool_definition bytea,
    -- Of an unknown outcome: the attempt that started the call.
    attempt integer,
    -- Of a budget: the limit that was reached.
    reached jsonb,
    reason text NOT NULL,
    expires_at timestamptz NOT NULL,
    resolved_at timestamptz,
    -- The caller that answered. NULL: nobody did. With the state `resolved`: the limit of a budget no longer applied.
    resolved_by jsonb,
    resolution jsonb,
    CHECK ((state = 'open') = (resolved_at IS NULL)),
    CHECK ((state = 'resolved') = (resolution IS NOT NULL))
);
-- For lists with any filter: a page takes a few rows from each of the 16 combinations of state and kind.
CREATE INDEX actions_page ON actions (workspace_id, state, kind, id);
CREATE INDEX actions_of_session ON actions (session_id, state, kind, id);
CREATE INDEX actions_of_run ON actions (run_id, step);
CREATE INDEX actions_remembered ON actions (session_id, tool) WHERE resolution->>'remember' = 'session';
CREATE INDEX actions_due ON actions (expires_at) WHERE state = 'open';
-- To look for limits that were raised.
CREATE INDEX actions_budget ON actions (id) WHERE state = 'open' AND kind = 'budget';
