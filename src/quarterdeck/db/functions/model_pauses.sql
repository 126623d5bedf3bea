-- A provider that refuses requests (too many, overloaded) is left alone by all workers together. Runs that need it wait without
-- a job and without a slot. When the pause is over, one of them tries. If it is refused, the next pause is twice as long;
-- if it is answered, the others go on in the order of the queue, where workspaces take turns.
--
-- Nothing has to be kept in step: every worker calls release_waiting_runs() again and again.

-- A request of the run was refused. Returns the seconds of the pause.
CREATE OR REPLACE FUNCTION pause_model(
    of_model text, of_run uuid, why text, retry_after_seconds double precision,
    base_seconds double precision, max_seconds double precision
) RETURNS double precision
LANGUAGE sql VOLATILE
AS $$
    INSERT INTO model_pauses AS p (model, until, reason)
    VALUES (of_model, now() + make_interval(secs => least(greatest(retry_after_seconds, base_seconds), max_seconds)), why)
    ON CONFLICT (model) DO UPDATE SET
        reason = excluded.reason,
        -- A request that was sent before the pause began says nothing new about the time after it.
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

-- The provider answers again. The runs that wait are found by the next call of release_waiting_runs().
CREATE OR REPLACE FUNCTION resume_model(of_model text) RETURNS void
LANGUAGE sql VOLATILE
BEGIN ATOMIC
    DELETE FROM model_pauses p WHERE p.model = of_model;
END;

-- Gives jobs to the runs that need not wait any longer, and returns the pauses.
CREATE OR REPLACE FUNCTION release_waiting_runs(probe_seconds double precision, max_run_seconds double precision)
RETURNS SETOF model_pauses
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off
SET enable_bitmapscan = off
SET jit = off
AS $$
DECLARE
    due record;
    run record;
BEGIN
    FOR due IN
        SELECT p.model FROM model_pauses p WHERE p.until <= now() FOR UPDATE SKIP LOCKED
    LOOP
        SELECT r.id, r.session_id INTO run FROM runs r
        WHERE r.waits_for_model = due.model ORDER BY r.id LIMIT 1 FOR UPDATE SKIP LOCKED;
        IF FOUND THEN
            -- If it comes to nothing, for example because its worker is lost, another one tries after that time.
            UPDATE model_pauses p SET until = now() + make_interval(secs => probe_seconds), probe_run_id = run.id
            WHERE p.model = due.model;
            UPDATE runs SET waits_for_model = NULL WHERE id = run.id;
            PERFORM enqueue_run(run.session_id, run.id);
        ELSIF NOT EXISTS (SELECT FROM runs r WHERE r.waits_for_model = due.model) THEN
            DELETE FROM model_pauses p WHERE p.model = due.model;
        END IF;
    END LOOP;
    FOR run IN
        SELECT r.id, r.session_id FROM runs r
        WHERE r.waits_for_model IS NOT NULL AND (
            NOT EXISTS (SELECT FROM model_pauses p WHERE p.model = r.waits_for_model)
            -- Its worker lets it fail.
            OR r.started_at < now() - make_interval(secs => max_run_seconds + r.waited_seconds)
        )
        ORDER BY r.id LIMIT 500 FOR UPDATE SKIP LOCKED
    LOOP
        UPDATE runs SET waits_for_model = NULL WHERE id = run.id;
        PERFORM enqueue_run(run.session_id, run.id);
    END LOOP;
    RETURN QUERY SELECT * FROM model_pauses;
END;
$$;
