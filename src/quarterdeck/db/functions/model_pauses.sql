-- A provider that refuses requests (too many, overloaded) is left alone by all workers together. Runs that need it wait without
-- a job and without a slot. When the pause is over, one of them tries. If it is refused, the next pause is twice as long;
-- if it is answered, the others go on in the order of the queue, where workspaces take turns.
--
-- A model that fails in another way is left alone by the runs that have other models. Nobody waits for it.
--
-- Nothing has to be kept in step: every worker calls release_waiting_runs() again and again.

-- A request of the run has failed. `is_refusal`: runs without another model wait. Returns the seconds of the pause.
CREATE OR REPLACE FUNCTION pause_model(
    of_model text, of_run uuid, why text, is_refusal boolean, retry_after_seconds double precision,
    base_seconds double precision, max_seconds double precision
) RETURNS double precision
LANGUAGE sql VOLATILE
AS $$
    INSERT INTO model_pauses AS p (model, until, reason, refused)
    VALUES (of_model, now() + make_interval(secs => least(greatest(retry_after_seconds, base_seconds), max_seconds)), why,
            is_refusal)
    ON CONFLICT (model) DO UPDATE SET
        reason = excluded.reason,
        -- A request that was sent before the pause began says nothing new about the time after it.
        refused = excluded.refused OR (p.refused AND p.until > now() AND p.probe_run_id IS DISTINCT FROM of_run),
        refusals = CASE WHEN p.until > now() AND p.probe_run_id IS DISTINCT FROM of_run THEN p.refusals
                        ELSE least(p.refusals + 1, 30) END,
        until = CASE WHEN p.until > now() AND p.probe_run_id IS DISTINCT FROM of_run
                     THEN greatest(p.until, excluded.until)
                     ELSE now() + make_interval(secs => least(
                         greatest(retry_after_seconds, base_seconds * 2 ^ least(p.refusals, 30)), max_seconds
                     )) END,
        probe_run_id = CASE WHEN p.probe_run_id = of_run THEN NULL ELSE p.probe_run_id END
    RETURNING extract(epoch FROM until - now())::double precision
$$;

-- The provider has answered, and announced that it takes no more requests for this time.
CREATE OR REPLACE FUNCTION announce_model_pause(of_model text, why text, seconds double precision) RETURNS void
LANGUAGE sql VOLATILE
BEGIN ATOMIC
    INSERT INTO model_pauses AS p (model, until, reason, refused)
    VALUES (of_model, now() + make_interval(secs => seconds), why, true)
    ON CONFLICT (model) DO UPDATE SET
        reason = excluded.reason,
        refused = true,
        until = CASE WHEN p.probe_run_id IS NULL THEN greatest(p.until, excluded.until) ELSE excluded.until END,
        -- It was the answer to this run, or is newer.
        probe_run_id = NULL;
END;

-- The first run that comes after the pause tries. Returns whether it is this one. If it comes to nothing, for example
-- because its worker is lost, another one tries after `probe_seconds`.
CREATE OR REPLACE FUNCTION try_paused_model(of_model text, of_run uuid, probe_seconds double precision) RETURNS boolean
LANGUAGE sql VOLATILE
AS $$
    WITH tried AS (
        UPDATE model_pauses p SET until = now() + make_interval(secs => probe_seconds), probe_run_id = of_run
        WHERE p.model = of_model AND p.until <= now()
        RETURNING p.model
    )
    SELECT EXISTS (SELECT FROM tried)
$$;

-- The provider answers this run again. The runs that wait are found by the next call of release_waiting_runs().
CREATE OR REPLACE FUNCTION resume_model(of_model text, of_run uuid) RETURNS void
LANGUAGE sql VOLATILE
BEGIN ATOMIC
    DELETE FROM model_pauses p WHERE p.model = of_model AND (p.probe_run_id = of_run OR NOT p.refused);
END;

-- Gives jobs to the runs that need not wait any longer, and returns the pauses.
CREATE OR REPLACE FUNCTION release_waiting_runs(
    probe_seconds double precision, max_run_seconds double precision, limits jsonb
)
RETURNS SETOF model_pauses
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off
SET enable_bitmapscan = off
SET jit = off
AS $$
DECLARE
    due record;
    run record;
    limited text;
BEGIN
    FOR due IN
        SELECT p.model FROM model_pauses p WHERE p.until <= now() FOR UPDATE SKIP LOCKED
    LOOP
        SELECT r.id, r.session_id INTO run FROM runs r
        WHERE r.waits_for_models IS NOT NULL AND due.model = ANY (r.waits_for_models)
        ORDER BY r.id LIMIT 1 FOR UPDATE SKIP LOCKED;
        IF FOUND THEN
            PERFORM try_paused_model(due.model, run.id, probe_seconds);
            UPDATE runs SET waits_for_models = NULL WHERE id = run.id;
            PERFORM enqueue_run(run.session_id, run.id);
        END IF;
    END LOOP;
    -- Nobody has asked for it since. Its next pause is a short one again.
    DELETE FROM model_pauses p WHERE p.model IN (
        SELECT o.model FROM model_pauses o WHERE o.until < now() - interval '10 minutes' FOR UPDATE SKIP LOCKED
    );
    IF EXISTS (SELECT FROM model_requests) THEN
        -- The operator has removed the limit, or the run has ended while it waited.
        DELETE FROM model_requests q
        WHERE NOT limits ?| ARRAY[q.provider, q.model]
           OR NOT EXISTS (SELECT FROM runs r WHERE r.id = q.run_id AND r.state IN ('queued', 'running'));
        FOR limited IN SELECT DISTINCT q.provider FROM model_requests q LOOP
            IF pg_try_advisory_xact_lock(model_limits_lock(limited)) THEN
                PERFORM let_requests_go(limited, limits);
            END IF;
        END LOOP;
    END IF;
    FOR run IN
        SELECT r.id, r.session_id FROM runs r
        WHERE r.waits_for_models IS NOT NULL AND (
            (
                EXISTS (
                    SELECT FROM unnest(r.waits_for_models) AS w (model)
                    WHERE NOT EXISTS (SELECT FROM model_pauses p WHERE p.model = w.model)
                )
                -- Those are let go by let_requests_go().
                AND NOT EXISTS (SELECT FROM model_requests q WHERE q.run_id = r.id AND q.begun_at IS NULL)
            )
            -- Its worker lets it fail.
            OR r.started_at < now() - make_interval(secs => max_run_seconds + r.waited_seconds)
        )
        ORDER BY r.id LIMIT 500 FOR UPDATE SKIP LOCKED
    LOOP
        UPDATE runs SET waits_for_models = NULL WHERE id = run.id;
        PERFORM enqueue_run(run.session_id, run.id);
    END LOOP;
    RETURN QUERY SELECT * FROM model_pauses;
END;
$$;
