-- The queue of runs that want a worker. Workers take turns between workspaces: functions/turns.sql.

-- Worker processes. One that has sent no heartbeat for the time of a lease counts as lost.
CREATE TABLE workers (
    id uuid PRIMARY KEY,
    last_heartbeat timestamptz NOT NULL DEFAULT now()
);

-- A run that waits for a worker, or that a worker has taken. Deleted when the worker is done with it.
CREATE TABLE run_jobs (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run_id uuid NOT NULL,
    session_id uuid NOT NULL,
    workspace_id uuid NOT NULL,
    taken boolean NOT NULL DEFAULT false,
    -- NULL if the job is taken: the worker is lost.
    worker_id uuid REFERENCES workers ON DELETE SET NULL,
    -- The run was cancelled, and its worker shall stop.
    cancelled boolean NOT NULL DEFAULT false,
    -- Another workspace needs the slot of this job.
    leaving boolean NOT NULL DEFAULT false,
    -- For a run that has left its slot to another workspace.
    paused_until timestamptz,
    -- While the job waits: when another may be asked to leave its slot to it. At first it may be about to get a free one.
    ask_at timestamptz NOT NULL DEFAULT now() + interval '0.5 seconds',
    -- For metrics: how long runs wait for a worker.
    queued_at timestamptz NOT NULL DEFAULT now()
);

-- At most one waiting job for a run, and one taken job for a session.
CREATE UNIQUE INDEX run_jobs_one_waiting ON run_jobs (run_id) WHERE NOT taken;
CREATE UNIQUE INDEX run_jobs_one_taken ON run_jobs (session_id) WHERE taken;
-- In the order of ids of runs, which is the order of their creation.
CREATE INDEX run_jobs_waiting ON run_jobs (workspace_id, run_id) WHERE NOT taken;
CREATE INDEX run_jobs_paused ON run_jobs (workspace_id, paused_until) WHERE NOT taken AND paused_until IS NOT NULL;
CREATE INDEX run_jobs_taken ON run_jobs (workspace_id, worker_id) WHERE taken;
CREATE INDEX run_jobs_of_worker ON run_jobs (worker_id) WHERE taken;
CREATE INDEX run_jobs_of_run ON run_jobs (run_id);

-- When a workspace had its last turn while others waited.
CREATE TABLE workspace_turns (
    workspace_id uuid PRIMARY KEY,
    last_turn_at timestamptz NOT NULL
);

-- Models that are not available for the moment. All workers leave them alone until the pause is over; then one run tries
-- whether requests are answered again: functions/model_pauses.sql.
CREATE TABLE model_pauses (
    model text PRIMARY KEY,
    until timestamptz NOT NULL,
    -- How often in a row a request was refused when the pause was over.
    refusals integer NOT NULL DEFAULT 1,
    reason text NOT NULL,
    -- The provider takes no more requests. Otherwise it failed in another way, and only runs with other models leave it
    -- alone.
    refused boolean NOT NULL,
    -- The run that tries it. NULL: none does.
    probe_run_id uuid
);

-- Requests to models with a limit of the operator: those under way, and those whose runs wait for room:
-- functions/model_limits.sql.
CREATE TABLE model_requests (
    run_id uuid PRIMARY KEY REFERENCES runs ON DELETE CASCADE,
    workspace_id uuid NOT NULL,
    provider text NOT NULL,
    model text NOT NULL,
    -- Estimated.
    tokens bigint NOT NULL,
    -- NULL: it waits.
    begun_at timestamptz,
    -- The attempt that makes it. NULL: it waits, or its run was let go and has not begun yet.
    attempt integer
);
CREATE INDEX model_requests_waiting ON model_requests (provider, workspace_id, run_id) WHERE begun_at IS NULL;
CREATE INDEX model_requests_begun ON model_requests (provider) WHERE begun_at IS NOT NULL;

-- The tokens that requests to a provider or model with a limit have used. They decrease by the limit in a minute.
CREATE TABLE model_limits (
    name text PRIMARY KEY,
    used_tokens double precision NOT NULL,
    counted_at timestamptz NOT NULL
);

-- When a run of a workspace that waited for a limit of the provider was last let go.
CREATE TABLE model_turns (
    provider text NOT NULL,
    workspace_id uuid NOT NULL,
    last_turn_at timestamptz NOT NULL,
    PRIMARY KEY (provider, workspace_id)
);

-- Batches of requests at a provider: functions/model_batches.sql.
CREATE TABLE model_batches (
    id uuid PRIMARY KEY,
    model text NOT NULL,
    -- What the provider calls it. NULL: it is being created.
    handle jsonb,
    -- The provider was told that nobody needs its answers any longer.
    cancelled boolean NOT NULL DEFAULT false,
    created_at timestamptz NOT NULL DEFAULT now(),
    -- When a worker looks after it next. Until then it is left to the worker that set this time.
    look_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX model_batches_due ON model_batches (look_at);

-- The last request of a run that was asked by a batch. It is open while it has neither a result nor a failure.
CREATE TABLE batch_requests (
    run_id uuid PRIMARY KEY REFERENCES runs ON DELETE CASCADE,
    -- The number of the step that the answer will be. A request for an earlier step is spent.
    step integer NOT NULL,
    model text NOT NULL,
    -- Requests of different groups, for example with different keys, cannot be in one batch.
    batch_group text NOT NULL,
    -- As the provider takes it. NULL: it was sent.
    body text,
    -- NULL: it is still collected.
    batch_id uuid REFERENCES model_batches ON DELETE SET NULL,
    -- As the provider sent it.
    result text,
    failure text,
    created_at timestamptz NOT NULL DEFAULT now(),
    CHECK (result IS NULL OR failure IS NULL)
);
CREATE INDEX batch_requests_collected ON batch_requests (model, batch_group, created_at)
    WHERE batch_id IS NULL AND body IS NOT NULL;
CREATE INDEX batch_requests_of_batch ON batch_requests (batch_id) WHERE batch_id IS NOT NULL;
