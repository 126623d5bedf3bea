-- The writes of a worker that every run needs: begin an attempt, store a step, finish. Each is one call, so that the lock of
-- the session is held for no longer than the writes take, and a run costs few round trips.
--
-- Each function takes session_lock() first. As in submit_inputs(), the statements after it see what the previous holder
-- committed. Every write names its attempt: one that was replaced changes nothing.
--
-- Open streams are told by the worker, after the commit (events/log.py).

-- The last of the waiting inputs that started the run: its first one, those of a retry, or those that a failed run passed
-- on. 0: none of them waits.
CREATE OR REPLACE FUNCTION last_starting_input(run runs) RETURNS bigint
LANGUAGE sql STABLE
AS $$
    SELECT coalesce(max(e.id), 0) FROM session_events e
    WHERE e.session_id = run.session_id AND e.id > run.consumed_through AND e.id <= run.last_input
      AND e.type = 'input.accepted' AND (
          e.run_id = ANY (run.takes_over)
          OR e.run_id = run.id AND (e.id = run.first_input OR e.data ? 'retried_from')
      )
$$;

-- Begins an attempt. No row: there is nothing to do, or the workspace has too many running runs and this one is parked.
-- Otherwise `verdict` is:
--   'begun'     the run is this attempt's. If it has stored no step, it has also taken waiting inputs: all, or at a limit
--               only those that started it. Steered ones wait for the answer: a stopped run passes them on to the next.
--   'barren'    too many attempts in a row have ended without a step. Nothing was written.
--   'overdue'   the run has taken too long. Nothing was written.
--   'changed'   the setup no longer fits to the run or the session. Nothing was written.
CREATE OR REPLACE FUNCTION begin_attempt(
    of_run uuid,
    counted integer,             -- 0: the attempt continues another one in good order, and does not count as barren
    barren_limit integer,
    max_seconds double precision,
    active_per_workspace integer,    -- or NULL
    input_budget_bytes bigint,
    input_overhead_bytes integer,
    started jsonb,               -- what run.started says, but for the attempt
    -- NULL if the run has a setup already. Otherwise the session must still have this revision.
    new_setup jsonb,
    new_agent_id uuid,
    new_agent_version integer,
    session_revision integer
)
RETURNS TABLE (
    verdict text,
    state text,                  -- before
    attempt integer,
    barren_attempts integer,
    steps integer,
    tokens bigint,
    seconds double precision,    -- age of the run, without the time that it waited
    input_bytes bigint,          -- of the taken inputs, with `input_overhead_bytes` for each
    -- The limit of cost or tokens that it has reached: reached_limit().
    limit_scope text,
    limit_name text,
    limit_maximum numeric,
    limit_used numeric,
    limit_stopped text
)
LANGUAGE plpgsql VOLATILE
-- As in submit_inputs(): no plans from the time when the tables were nearly empty.
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    run runs;
    input record;
    input_ids text[] := '{}';
    input_events bigint[] := '{}';
    first_input text;
    text_bytes bigint := 0;
    taken_through bigint;
    last_started bigint := 9223372036854775807;
BEGIN
    SELECT * INTO run FROM runs WHERE id = of_run;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    PERFORM pg_advisory_xact_lock(session_lock(run.session_id));
    IF active_per_workspace IS NOT NULL THEN
        -- Serialises these decisions. Always taken after the session's lock: its holder never waits for a session.
        PERFORM pg_advisory_xact_lock(running_runs_lock(run.workspace_id));
    END IF;
    -- A run that waits for a batch may have a job that a lost worker has left.
    SELECT * INTO run FROM runs
    WHERE id = of_run AND state IN ('queued', 'running') AND waits_for_batch_since IS NULL;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    IF active_per_workspace IS NOT NULL AND run.state = 'queued' AND active_per_workspace <= (
        SELECT count(*) FROM runs WHERE workspace_id = run.workspace_id AND state = 'running'
    ) THEN
        UPDATE runs SET parked = true WHERE id = of_run;
        RETURN;
    END IF;

    state := run.state;
    attempt := run.attempt;
    barren_attempts := run.barren_attempts;
    steps := run.steps;
    tokens := run.input_tokens + run.output_tokens;
    -- By the clock of the database, since those of workers differ.
    seconds := coalesce(extract(epoch FROM clock_timestamp() - run.started_at) - run.waited_seconds, 0);
    verdict := CASE
        WHEN run.barren_attempts >= barren_limit THEN 'barren'
        WHEN seconds >= max_seconds THEN 'overdue'
        WHEN (run.setup IS NULL) <> (new_setup IS NOT NULL) THEN 'changed'
        WHEN new_setup IS NOT NULL AND session_revision <> (SELECT revision FROM sessions WHERE id = run.session_id)
            THEN 'changed'
        ELSE 'begun'
    END;
    IF verdict <> 'begun' THEN
        RETURN NEXT;
        RETURN;
    END IF;

    -- With stored steps it has consumed inputs, and calls of its last answer may be open: those that wait are taken
    -- after the results.
    -- And the answer of a batch was given to the inputs that are taken already.
    IF run.steps = 0 AND NOT (run.priority = 'batch' AND EXISTS (
        SELECT FROM batch_requests q WHERE q.run_id = of_run AND q.result IS NOT NULL
    )) THEN
        SELECT l.scope, l.limit_name, l.maximum, l.used, l.stopped
        INTO limit_scope, limit_name, limit_maximum, limit_used, limit_stopped FROM reached_limit(of_run) l;
        IF limit_scope IS NOT NULL THEN
            last_started := last_starting_input(run);
        END IF;
        FOR input IN SELECT * FROM waiting_inputs(of_run, input_budget_bytes, input_overhead_bytes) LOOP
            EXIT WHEN input.event_id > last_started;
            first_input := coalesce(first_input, input.content);
            input_ids := input_ids || input.input_id;
            input_events := input_events || input.event_id;
            text_bytes := text_bytes + octet_length(input.content);
        END LOOP;
        input_bytes := text_bytes + input_overhead_bytes * cardinality(input_ids);
        -- Others may wait behind these if the budget is used up, or at a limit.
        taken_through := CASE
            WHEN input_bytes >= input_budget_bytes THEN input_events[cardinality(input_events)]
            ELSE least(run.last_input, greatest(run.consumed_through, last_started))
        END;
    ELSE
        input_bytes := 0;
        taken_through := run.consumed_through;
    END IF;
    UPDATE runs
    SET state = 'running', parked = false, waits_for_models = NULL, attempt = run.attempt + 1, barren_attempts = run.barren_attempts + counted,
        started_at = coalesce(run.started_at, clock_timestamp()), updated_at = clock_timestamp(),
        setup = coalesce(run.setup, new_setup), model = coalesce(run.model, new_setup->>'model'),
        agent_id = coalesce(run.agent_id, new_agent_id), agent_version = coalesce(run.agent_version, new_agent_version),
        consumed_through = taken_through, inputs_consumed = run.inputs_consumed + cardinality(input_ids),
        unconsumed_bytes =
            CASE WHEN taken_through < run.last_input THEN greatest(run.unconsumed_bytes - text_bytes, 0) ELSE 0 END
    WHERE id = of_run;
    attempt := run.attempt + 1;
    IF new_setup IS NOT NULL THEN
        PERFORM give_title(run.session_id, of_run, input_events[1], first_input);
    END IF;

    IF run.state = 'running' AND counted > 0 THEN
        INSERT INTO session_events (session_id, run_id, type, data)
        VALUES (run.session_id, of_run, 'run.requeued', '{"reason": "Its worker was lost."}');
    END IF;
    INSERT INTO session_events (session_id, run_id, type, data)
    VALUES (run.session_id, of_run, 'run.started', started || jsonb_build_object('attempt', attempt));
    INSERT INTO session_events (session_id, run_id, type, data, input_event_id)
    SELECT run.session_id, of_run, 'input.consumed', jsonb_build_object('input_id', taken.input_id, 'step', 1), taken.event_id
    FROM unnest(input_ids, input_events) AS taken (input_id, event_id) ORDER BY taken.event_id;
    RETURN NEXT;
END;
$$;

-- Finishes a run whose inputs are all consumed, and deletes its job: no other worker has to find out that it is spent.
-- Part of a transaction that holds the lock of the session.
--   'finished'
--   'webhooks'   nothing was written: a webhook wants to know, and `with_webhooks` is false. With true, the caller adds
--                the deliveries in the same transaction.
--   NULL         nothing was written: an input was accepted at the last moment, or the attempt was replaced.
CREATE OR REPLACE FUNCTION finish_run(
    of_run uuid, of_session uuid, of_workspace uuid, by_attempt integer, with_webhooks boolean
) RETURNS text
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
BEGIN
    IF NOT with_webhooks AND EXISTS (
        SELECT FROM webhooks w WHERE w.workspace_id = of_workspace AND w.enabled AND 'run.succeeded' = ANY (w.events)
    ) THEN
        RETURN 'webhooks';
    END IF;
    -- A run that has ended needs no setup and no tools of servers, which may hold megabytes: a session with many runs is
    -- deleted in one statement.
    -- Besides the session's lock: an input that was accepted since the last take keeps the run active.
    UPDATE runs
    SET state = 'succeeded', setup = NULL, mcp_tools = NULL, finished_at = clock_timestamp(),
        updated_at = clock_timestamp()
    WHERE id = of_run AND attempt = by_attempt AND state = 'running' AND consumed_through = last_input;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    INSERT INTO session_events (session_id, run_id, type, data) VALUES (of_session, of_run, 'run.succeeded', '{}');
    DELETE FROM run_jobs j
    WHERE j.session_id = of_session AND j.taken AND j.run_id = of_run;
    IF EXISTS (SELECT FROM runs p WHERE p.session_id = of_session AND p.state = 'pending') THEN
        PERFORM start_pending_run(of_session);
    END IF;
    IF EXISTS (SELECT FROM runs p WHERE p.workspace_id = of_workspace AND p.parked) THEN
        PERFORM unpark_next_run(of_workspace);
    END IF;
    RETURN 'finished';
END;
$$;

-- Adds what a request used to the usage of the day.
CREATE OR REPLACE FUNCTION add_usage(
    of_run uuid,
    of_session uuid,
    of_workspace uuid,
    of_api_key uuid,
    used_model text,
    used_input_tokens bigint,
    used_cached_tokens bigint,
    used_cache_write_tokens bigint,
    used_output_tokens bigint,
    used_cost_usd numeric
)
RETURNS void
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    today date := (clock_timestamp() AT TIME ZONE 'UTC')::date;
BEGIN
    INSERT INTO run_usage AS u (workspace_id, day, run_id, session_id, api_key_id, model, input_tokens, cached_tokens,
                                cache_write_tokens, output_tokens, cost_usd)
    VALUES (of_workspace, today, of_run, of_session, of_api_key, used_model, used_input_tokens, used_cached_tokens,
            used_cache_write_tokens, used_output_tokens, used_cost_usd)
    ON CONFLICT (workspace_id, day, run_id, model) DO UPDATE SET
        input_tokens = u.input_tokens + excluded.input_tokens,
        cached_tokens = u.cached_tokens + excluded.cached_tokens,
        cache_write_tokens = u.cache_write_tokens + excluded.cache_write_tokens,
        output_tokens = u.output_tokens + excluded.output_tokens,
        cost_usd = coalesce(u.cost_usd + excluded.cost_usd, u.cost_usd, excluded.cost_usd);
    -- The row is locked until the commit. A transaction locks one of them, so there is no deadlock.
    INSERT INTO daily_usage AS u (workspace_id, day, shard, input_tokens, cached_tokens, cache_write_tokens,
                                  output_tokens, cost_usd)
    VALUES (of_workspace, today, get_byte(uuid_send(of_run), 15) & 15, used_input_tokens, used_cached_tokens,
            used_cache_write_tokens, used_output_tokens, used_cost_usd)
    ON CONFLICT (workspace_id, day, shard) DO UPDATE SET
        input_tokens = u.input_tokens + excluded.input_tokens,
        cached_tokens = u.cached_tokens + excluded.cached_tokens,
        cache_write_tokens = u.cache_write_tokens + excluded.cache_write_tokens,
        output_tokens = u.output_tokens + excluded.output_tokens,
        cost_usd = coalesce(u.cost_usd + excluded.cost_usd, u.cost_usd, excluded.cost_usd);
END;
$$;

-- Stores a step: the events of an answer of the model, and what it used, in the run and in the usage of the day. With
-- `finish` the run ends in the same transaction if it can.
--   NULL         the attempt was replaced, and nothing was written.
--   'recorded'   the run goes on.
--   'finished'
CREATE OR REPLACE FUNCTION record_step(
    of_run uuid,
    of_session uuid,
    of_workspace uuid,
    by_attempt integer,
    used_model text,
    used_input_tokens bigint,
    used_cached_tokens bigint,
    used_cache_write_tokens bigint,
    used_output_tokens bigint,
    used_cost_usd numeric,       -- NULL: the price is unknown. Sums leave out these steps.
    events jsonb,                -- [{"type", "data", "record"}]; without `record` it is NULL
    finish boolean
)
RETURNS text
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    run record;
BEGIN
    PERFORM pg_advisory_xact_lock(session_lock(of_session));
    UPDATE runs r
    SET barren_attempts = 0, steps = r.steps + 1,
        answered_by = CASE WHEN used_model = ANY (r.answered_by) THEN r.answered_by ELSE r.answered_by || used_model END,
        input_tokens = r.input_tokens + used_input_tokens,
        cached_tokens = r.cached_tokens + used_cached_tokens,
        cache_write_tokens = r.cache_write_tokens + used_cache_write_tokens, output_tokens = r.output_tokens + used_output_tokens,
        cost_usd = coalesce(r.cost_usd + used_cost_usd, r.cost_usd, used_cost_usd), updated_at = clock_timestamp()
    WHERE r.id = of_run AND r.attempt = by_attempt AND r.state = 'running'
    RETURNING r.api_key_id, r.priority INTO run;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    IF run.priority = 'batch' THEN
        -- Its answer is the step that is being stored.
        DELETE FROM batch_requests q WHERE q.run_id = of_run;
    END IF;
    PERFORM add_usage(of_run, of_session, of_workspace, run.api_key_id, used_model, used_input_tokens, used_cached_tokens,
                      used_cache_write_tokens, used_output_tokens, used_cost_usd);
    INSERT INTO session_events (session_id, run_id, type, data, record)
    SELECT of_session, of_run, e.event->>'type', e.event->'data', e.event->'record'
    FROM jsonb_array_elements(events) WITH ORDINALITY AS e (event, number) ORDER BY e.number;
    IF finish AND finish_run(of_run, of_session, of_workspace, by_attempt, false) = 'finished' THEN
        RETURN 'finished';
    END IF;
    RETURN 'recorded';
END;
$$;
