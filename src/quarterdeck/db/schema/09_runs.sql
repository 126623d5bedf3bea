-- last_input and consumed_through are ids of input.accepted events of the session. Steering updates this row for every
-- input: the fillfactor, and having no index on the changed columns, allow heap-only updates.
CREATE TABLE runs (
    id uuid PRIMARY KEY,
    session_id uuid NOT NULL REFERENCES sessions ON DELETE CASCADE,
    workspace_id uuid NOT NULL REFERENCES workspaces,
    state text NOT NULL CHECK (
        state IN ('pending', 'queued', 'running', 'waiting', 'succeeded', 'failed', 'cancelled')
    ),
    -- Too many runs of the workspace are running: it has no job until another run ends.
    parked boolean NOT NULL DEFAULT false,
    -- The providers of these models refuse requests for the moment: the run has no job until one answers again.
    waits_for_models text[],
    -- Of the input that started it. `batch`: its model is asked by the batch interface of the provider.
    priority text NOT NULL DEFAULT 'normal' CHECK (priority IN ('normal', 'batch')),
    -- Its request is part of a batch, or will be: the run has no job until it is answered. See batch_requests.
    waits_for_batch_since timestamptz,
    attempt integer NOT NULL DEFAULT 0,
    -- Attempts since the last stored step. Too many in a row mean that the run itself brings its worker down.
    barren_attempts integer NOT NULL DEFAULT 0,

    -- No event of the run, and of the inputs that it took over, is older.
    first_input bigint NOT NULL,
    last_input bigint NOT NULL,
    consumed_through bigint NOT NULL,
    inputs_accepted integer NOT NULL DEFAULT 1,
    inputs_consumed integer NOT NULL DEFAULT 0,
    -- UTF-8 bytes of the texts that the run has not consumed.
    unconsumed_bytes bigint NOT NULL DEFAULT 0,
    -- Earlier runs whose inputs this one continues with. The ranges of inputs of a session's runs overlap, so an input
    -- belongs to a run only if its event names the run or one of these.
    takes_over uuid[] NOT NULL DEFAULT '{}',
    -- The run whose inputs this one repeats.
    retried_from uuid,
    -- The model no longer sees what the run consumed after its last stored answer: the provider refused the request, or
    -- the run was retried.
    unanswered_left_out boolean NOT NULL DEFAULT false,

    -- The key of the input that started the run, or the key that made its session token. No foreign key: it stays.
    api_key_id uuid,
    -- The span of the request that started the run, in the format of the W3C. NULL: it was not traced.
    traceparent text,

    -- Model, settings, instructions, skill versions and tools of the caller, from the first attempt until the run ends.
    setup jsonb,
    -- The model that is asked now: that of the setup, or one of its fallback models.
    model text,
    -- The models of the stored steps, in the order of their first answer.
    answered_by text[] NOT NULL DEFAULT '{}',
    -- The version that the run uses. NULL: none, or the run has not begun.
    agent_id uuid,
    agent_version integer,
    -- The tools of MCP servers that the run offers in all its attempts. NULL: not listed yet, or the run has ended.
    -- json keeps the order of the fields: each attempt sends the same bytes.
    mcp_tools json,

    steps integer NOT NULL DEFAULT 0,
    input_tokens bigint NOT NULL DEFAULT 0,
    -- Parts of input_tokens: read from the provider's cache, and written to it.
    cached_tokens bigint NOT NULL DEFAULT 0,
    cache_write_tokens bigint NOT NULL DEFAULT 0,
    output_tokens bigint NOT NULL DEFAULT 0,
    -- NULL: the price of its model is unknown, or no step is stored.
    cost_usd numeric,
    -- Limits of this run that a person has raised. NULL: those of the session apply.
    max_cost_usd numeric,
    max_tokens bigint,

    started_at timestamptz,
    -- Since when the run waits. NULL: it does not.
    waiting_since timestamptz,
    -- How long it has waited before, also for batches. Waiting does not count against its time limit.
    waited_seconds double precision NOT NULL DEFAULT 0,
    finished_at timestamptz,
    failure text,
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CHECK (consumed_through <= last_input),
    CONSTRAINT runs_waiting_check CHECK ((state = 'waiting') = (waiting_since IS NOT NULL)),
    CONSTRAINT runs_waits_for_models_check CHECK (waits_for_models IS NULL OR state = 'queued'),
    CONSTRAINT runs_waits_for_batch_check CHECK (waits_for_batch_since IS NULL OR state = 'queued')
) WITH (fillfactor = 80);
CREATE UNIQUE INDEX runs_one_active ON runs (session_id) WHERE state IN ('queued', 'running', 'waiting');
CREATE UNIQUE INDEX runs_page ON runs (session_id, id);
CREATE INDEX runs_pending ON runs (session_id) WHERE state = 'pending';
CREATE INDEX runs_running ON runs (workspace_id) WHERE state = 'running';
CREATE INDEX runs_waits_for_models ON runs (id) WHERE waits_for_models IS NOT NULL;
CREATE INDEX runs_parked ON runs (workspace_id, id) WHERE parked;
CREATE INDEX runs_of_agent ON runs (agent_id, id) WHERE agent_id IS NOT NULL;

-- To count the runs of a workspace. `attempt >= 0` holds for every run, so that only statements which say it too use
-- these indexes: one that looks for the active run of a session, or for the next parked one, could read a whole workspace
-- by them.
CREATE INDEX runs_created ON runs (workspace_id, id) WHERE attempt >= 0;
CREATE INDEX runs_active ON runs (workspace_id, id) WHERE attempt >= 0 AND state IN ('queued', 'running');
CREATE INDEX runs_pending_created ON runs (workspace_id, id) WHERE attempt >= 0 AND state = 'pending';
CREATE INDEX runs_waiting ON runs (workspace_id, id) WHERE attempt >= 0 AND state = 'waiting';
