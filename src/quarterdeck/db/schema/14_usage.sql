-- What each run used of each model on each day (UTC). Written with every step.
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
    cache_write_tokens bigint NOT NULL DEFAULT 0,
    output_tokens bigint NOT NULL,
    cost_usd numeric,
    PRIMARY KEY (workspace_id, day, run_id, model)
);

-- The sum of run_usage for each workspace and day, for the daily limit, which is read before every step. In 16 rows by the
-- last digit of the run's id, so that workers seldom wait for each other.
CREATE TABLE daily_usage (
    workspace_id uuid NOT NULL,
    day date NOT NULL,
    shard smallint NOT NULL CHECK (shard BETWEEN 0 AND 15),
    input_tokens bigint NOT NULL,
    cached_tokens bigint NOT NULL,
    cache_write_tokens bigint NOT NULL DEFAULT 0,
    output_tokens bigint NOT NULL,
    cost_usd numeric,
    PRIMARY KEY (workspace_id, day, shard)
) WITH (fillfactor = 50);
