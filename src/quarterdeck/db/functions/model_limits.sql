-- Limits of the operator for a provider or a model: concurrent requests, and tokens a minute. They hold for all workers together.
-- A run over a limit waits as for a paused model (model_pauses.sql): without a job and without a slot. Its request is a
-- row without `begun_at`. When there is room, it is let go: workspaces take turns, and each sends its oldest run.
--
-- Nothing has to be given back after a crash: a request counts only while its attempt drives the run, and the tokens of
-- model_limits decrease with time.
--
-- `limits`: {"openai": {"concurrent": 20, "tokens_a_minute": 400000}, "openai:gpt-5": {…}}.
-- All functions but the first two are called under model_limits_lock() of the provider, taken in an earlier statement.

-- The names of the limits that apply to a model.
CREATE OR REPLACE FUNCTION limits_of_model(of_model text, limits jsonb) RETURNS SETOF text
LANGUAGE sql IMMUTABLE
AS $$
    SELECT DISTINCT l.name FROM unnest(ARRAY[split_part(of_model, ':', 1), of_model]) AS l (name) WHERE limits ? l.name
$$;

-- What is left of the used tokens after the time that has passed.
CREATE OR REPLACE FUNCTION tokens_in_use(used_tokens double precision, counted_at timestamptz, tokens_a_minute double precision)
RETURNS double precision
LANGUAGE sql STABLE
RETURN greatest(used_tokens - extract(epoch FROM clock_timestamp() - counted_at) * tokens_a_minute / 60, 0);

-- A request with more tokens than the limit begins when none are in use.
CREATE OR REPLACE FUNCTION model_has_room(of_model text, more_tokens bigint, limits jsonb) RETURNS boolean
LANGUAGE sql STABLE
AS $$
    SELECT NOT EXISTS (
        SELECT FROM limits_of_model(of_model, limits) AS l (name)
        CROSS JOIN LATERAL (
            SELECT (limits->l.name->>'concurrent')::integer AS concurrent,
                   (limits->l.name->>'tokens_a_minute')::double precision AS tokens_a_minute
        ) AS v
        LEFT JOIN model_limits m ON m.name = l.name
        WHERE v.concurrent <= (
            SELECT count(*) FROM model_requests q
            WHERE q.provider = split_part(of_model, ':', 1) AND l.name IN (q.provider, q.model) AND q.begun_at IS NOT NULL
        ) OR (
            tokens_in_use(m.used_tokens, m.counted_at, v.tokens_a_minute) > 0
            AND tokens_in_use(m.used_tokens, m.counted_at, v.tokens_a_minute) + more_tokens > v.tokens_a_minute
        )
    )
$$;

CREATE OR REPLACE FUNCTION count_model_tokens(of_model text, more_tokens bigint, limits jsonb) RETURNS void
LANGUAGE sql VOLATILE
AS $$
    INSERT INTO model_limits AS m (name, used_tokens, counted_at)
    SELECT l.name, greatest(more_tokens, 0), clock_timestamp()
    FROM limits_of_model(of_model, limits) AS l (name) WHERE limits->l.name ? 'tokens_a_minute'
    ON CONFLICT (name) DO UPDATE SET
        used_tokens = greatest(
            tokens_in_use(m.used_tokens, m.counted_at, (limits->m.name->>'tokens_a_minute')::double precision) + more_tokens, 0
        ),
        counted_at = excluded.counted_at
$$;

-- Gives jobs to the runs for whose requests there is room.
CREATE OR REPLACE FUNCTION let_requests_go(of_provider text, limits jsonb) RETURNS void
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off
SET enable_bitmapscan = off
SET jit = off
AS $$
DECLARE
    next record;
    -- Models whose runs are not let go.
    closed_models text[];
BEGIN
    -- Those of attempts that have ended without saying so. A run that was let go and found no worker waits again.
    DELETE FROM model_requests q USING runs r
    WHERE q.provider = of_provider AND q.begun_at IS NOT NULL AND r.id = q.run_id AND (
        r.state NOT IN ('queued', 'running')
        OR (q.attempt IS NOT NULL AND (r.state <> 'running' OR r.attempt <> q.attempt))
        OR (q.attempt IS NULL AND q.begun_at < clock_timestamp() - interval '10 seconds')
    );
    SELECT coalesce(array_agg(p.model), '{}') INTO closed_models FROM model_pauses p;
    LOOP
        WITH RECURSIVE waiting (workspace_id) AS (
            (SELECT q.workspace_id FROM model_requests q WHERE q.provider = of_provider AND q.begun_at IS NULL
             ORDER BY q.workspace_id LIMIT 1)
            UNION ALL
            SELECT (SELECT q.workspace_id FROM model_requests q
                    WHERE q.provider = of_provider AND q.begun_at IS NULL AND q.workspace_id > w.workspace_id
                    ORDER BY q.workspace_id LIMIT 1)
            FROM waiting w WHERE w.workspace_id IS NOT NULL
        )
        SELECT oldest.* INTO next
        FROM waiting w
        CROSS JOIN LATERAL (
            SELECT q.run_id, q.workspace_id, q.model, q.tokens, r.session_id FROM model_requests q JOIN runs r ON r.id = q.run_id
            WHERE q.provider = of_provider AND q.workspace_id = w.workspace_id AND q.begun_at IS NULL
              AND r.waits_for_models IS NOT NULL AND q.model <> ALL (closed_models)
            ORDER BY q.run_id LIMIT 1
        ) AS oldest
        LEFT JOIN model_turns t ON t.provider = of_provider AND t.workspace_id = w.workspace_id
        ORDER BY t.last_turn_at NULLS FIRST, oldest.run_id LIMIT 1;
        EXIT WHEN NOT FOUND;
        IF NOT model_has_room(next.model, next.tokens, limits) THEN
            closed_models := closed_models || next.model;
            CONTINUE;
        END IF;
        PERFORM count_model_tokens(next.model, next.tokens, limits);
        UPDATE model_requests q SET begun_at = clock_timestamp() WHERE q.run_id = next.run_id;
        INSERT INTO model_turns AS t (provider, workspace_id, last_turn_at)
        VALUES (of_provider, next.workspace_id, clock_timestamp())
        ON CONFLICT (provider, workspace_id) DO UPDATE SET last_turn_at = excluded.last_turn_at;
        -- Not if it was cancelled in this moment. Then its request is deleted by the next call.
        UPDATE runs r SET waits_for_models = NULL WHERE r.id = next.run_id AND r.waits_for_models IS NOT NULL;
        IF FOUND THEN
            PERFORM enqueue_run(next.session_id, next.run_id);
        END IF;
    END LOOP;
END;
$$;

-- Whether the run may make a request now. Otherwise the caller lets it wait for this model.
CREATE OR REPLACE FUNCTION begin_model_request(
    of_run uuid, of_workspace uuid, by_attempt integer, of_model text, estimated_tokens bigint, limits jsonb
) RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    of_provider text := split_part(of_model, ':', 1);
    was_let_go boolean;
    may_begin boolean;
BEGIN
    PERFORM pg_advisory_xact_lock(model_limits_lock(of_provider));
    -- Before others are let go: room goes to those who wait, and only the rest to this run.
    PERFORM let_requests_go(of_provider, limits);
    SELECT q.begun_at IS NOT NULL AND q.model = of_model INTO was_let_go FROM model_requests q WHERE q.run_id = of_run;
    was_let_go := coalesce(was_let_go, false);
    DELETE FROM model_requests q WHERE q.run_id = of_run;
    may_begin := was_let_go OR (
        model_has_room(of_model, estimated_tokens, limits)
        AND (
            NOT EXISTS (
                SELECT FROM model_requests q JOIN runs r ON r.id = q.run_id
                WHERE q.provider = of_provider AND q.model = of_model AND q.begun_at IS NULL AND r.state IN ('queued', 'running')
            )
            -- The others are not let go, and this run tries whether the model answers again.
            OR EXISTS (SELECT FROM model_pauses p WHERE p.model = of_model)
        )
    );
    INSERT INTO model_requests (run_id, workspace_id, provider, model, tokens, begun_at, attempt)
    VALUES (of_run, of_workspace, of_provider, of_model, estimated_tokens,
            CASE WHEN may_begin THEN clock_timestamp() END, CASE WHEN may_begin THEN by_attempt END);
    IF may_begin AND NOT was_let_go THEN
        PERFORM count_model_tokens(of_model, estimated_tokens, limits);
    ELSIF NOT may_begin THEN
        -- Another run tries as soon as there is room.
        UPDATE model_pauses p SET until = now(), probe_run_id = NULL WHERE p.model = of_model AND p.probe_run_id = of_run;
    END IF;
    RETURN may_begin;
END;
$$;

-- The request was answered, or has failed. The room goes to the runs that wait.
CREATE OR REPLACE FUNCTION end_model_request(of_run uuid, by_attempt integer, of_model text, used_tokens bigint, limits jsonb)
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    of_provider text := split_part(of_model, ':', 1);
    estimated bigint;
BEGIN
    PERFORM pg_advisory_xact_lock(model_limits_lock(of_provider));
    DELETE FROM model_requests q WHERE q.run_id = of_run AND q.attempt = by_attempt RETURNING q.tokens INTO estimated;
    IF FOUND THEN
        PERFORM count_model_tokens(of_model, used_tokens - estimated, limits);
    END IF;
    PERFORM let_requests_go(of_provider, limits);
END;
$$;
