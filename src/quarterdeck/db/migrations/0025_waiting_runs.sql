-- Runs that wait for an answer: actions, tool policy, tools of the caller, and what runs use and may use.

-- Not validated: every row satisfies the old constraint, which was stricter. Validating would read the whole table.
ALTER TABLE runs DROP CONSTRAINT runs_state_check;
ALTER TABLE runs ADD CONSTRAINT runs_state_check
    CHECK (state IN ('pending', 'queued', 'running', 'waiting', 'succeeded', 'failed', 'cancelled')) NOT VALID;

ALTER TABLE runs
    -- Since when the run waits. NULL: it does not.
    ADD COLUMN waiting_since timestamptz,
    -- How long it has waited before. Waiting does not count against its time limit.
    ADD COLUMN waited_seconds double precision NOT NULL DEFAULT 0,
    -- Model, settings, instructions, skill versions and tools of the caller, from the first attempt until the run ends.
    -- NULL: no attempt has begun, or it began with an earlier release, or the run has ended.
    ADD COLUMN setup jsonb,
    -- The model of the setup, for lists: the setup may be large.
    ADD COLUMN model text,
    -- Part of input_tokens.
    ADD COLUMN cached_tokens bigint NOT NULL DEFAULT 0,
    -- NULL: the price of its model is unknown, or no step is stored.
    ADD COLUMN cost_usd numeric,
    -- Limits of this run that a person has raised. NULL: those of the session apply.
    ADD COLUMN max_cost_usd numeric,
    ADD COLUMN max_tokens bigint,
    -- The key of the input that started the run, or the key that made its session token. NULL: an earlier release.
    ADD COLUMN api_key_id uuid,
    ADD CONSTRAINT runs_waiting_check CHECK ((state = 'waiting') = (waiting_since IS NOT NULL)) NOT VALID;

-- A waiting run is active.
CREATE UNIQUE INDEX runs_one_active ON runs (session_id) WHERE state IN ('queued', 'running', 'waiting');
DROP INDEX runs_one_active_a_session;
-- To count those of a workspace. See 0008_activity.sql for `attempt >= 0`.
CREATE INDEX runs_waiting ON runs (workspace_id, id) WHERE attempt >= 0 AND state = 'waiting';

-- Something that a run waits for. A run with an open action is waiting; it continues when none is open.
CREATE TABLE actions (
    id uuid PRIMARY KEY,
    workspace_id uuid NOT NULL REFERENCES workspaces,
    -- No foreign keys: as the log, the actions of a deleted session are deleted in batches. They hold megabytes.
    session_id uuid NOT NULL,
    run_id uuid NOT NULL,
    kind text NOT NULL CHECK (kind IN ('approval', 'tool_result', 'unknown_outcome', 'budget')),
    state text NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'resolved', 'expired', 'cancelled')),
    -- The call that it is about, by the number of the answer that made it. NULL: a budget.
    step integer,
    call_id text,
    tool text,
    arguments jsonb,
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

ALTER TABLE sessions
    ADD COLUMN tool_policy jsonb NOT NULL DEFAULT '{}',
    ADD COLUMN client_tools jsonb NOT NULL DEFAULT '[]',
    -- {"run": {"max_cost_usd", "max_tokens"}, "session": {…}}; a limit that is not set is missing.
    ADD COLUMN limits jsonb NOT NULL DEFAULT '{}';

ALTER TABLE session_tokens
    ADD COLUMN label text,
    ADD COLUMN may_resolve boolean NOT NULL DEFAULT false;

-- For all runs of a workspace together, from midnight to midnight UTC. NULL: no limit.
ALTER TABLE workspaces
    ADD COLUMN daily_max_cost_usd numeric,
    ADD COLUMN daily_max_tokens bigint,
    ADD COLUMN revision integer NOT NULL DEFAULT 1;

-- What each run used on each day (UTC). Written with every step.
CREATE TABLE run_usage (
    workspace_id uuid NOT NULL,
    day date NOT NULL,
    run_id uuid NOT NULL,
    -- No foreign keys: the figures stay when a session is deleted.
    session_id uuid NOT NULL,
    api_key_id uuid,
    model text NOT NULL,
    input_tokens bigint NOT NULL,
    cached_tokens bigint NOT NULL,
    output_tokens bigint NOT NULL,
    cost_usd numeric,
    PRIMARY KEY (workspace_id, day, run_id)
);

-- The sum of run_usage for each workspace and day, for the daily limit, which is read before every step. In 16 rows by the
-- last digit of the run's id, so that workers seldom wait for each other.
CREATE TABLE daily_usage (
    workspace_id uuid NOT NULL,
    day date NOT NULL,
    shard smallint NOT NULL CHECK (shard BETWEEN 0 AND 15),
    input_tokens bigint NOT NULL,
    cached_tokens bigint NOT NULL,
    output_tokens bigint NOT NULL,
    cost_usd numeric,
    PRIMARY KEY (workspace_id, day, shard)
) WITH (fillfactor = 50);
