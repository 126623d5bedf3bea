-- Workspaces take turns at the slots of workers. A slot is one of the runs that a worker drives at the same time.
--
--   * A free slot goes to the waiting workspace that holds the fewest slots. Among equals, to the one whose last turn
--     is the longest ago. How many runs wait in a workspace does not matter.
--   * A workspace may hold all slots while nobody else waits. When others wait, every workspace has the same share,
--     which is never more than half. Runs beyond the share are asked to leave, the newest first. A run that leaves is
--     queued again with everything that it has stored.
--
-- Both functions look at the jobs of all workers, so nothing has to be kept in step between workers.

-- Workspaces with waiting jobs, and how many slots each holds. Reads one index entry per workspace, not per job.
CREATE OR REPLACE FUNCTION waiting_workspaces() RETURNS TABLE (workspace_id uuid, slots bigint)
LANGUAGE sql STABLE
AS $$
    WITH RECURSIVE waiting (workspace_id) AS (
        (SELECT j.workspace_id FROM run_jobs j WHERE NOT j.taken ORDER BY j.workspace_id LIMIT 1)
        UNION ALL
        SELECT (SELECT j.workspace_id FROM run_jobs j
                WHERE NOT j.taken AND j.workspace_id > w.workspace_id ORDER BY j.workspace_id LIMIT 1)
        FROM waiting w WHERE w.workspace_id IS NOT NULL
    )
    SELECT w.workspace_id, (SELECT count(*) FROM run_jobs j
                            WHERE j.taken AND j.workspace_id = w.workspace_id AND NOT j.leaving)
    FROM waiting w WHERE w.workspace_id IS NOT NULL
$$;

-- Takes the next job for a worker.
-- All columns are NULL if there is none.
CREATE OR REPLACE FUNCTION next_run_job(fetching_worker_id uuid, worker_slots integer)
RETURNS run_jobs
LANGUAGE plpgsql VOLATILE
-- As in submit_inputs(): plans from a time when the table was nearly empty would scan it.
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
SET jit = off
AS $$
DECLARE
    turn record;
    job run_jobs;
BEGIN
    FOR turn IN
        SELECT w.workspace_id, count(*) OVER () > 1 AS others_wait
        FROM waiting_workspaces() w LEFT JOIN workspace_turns t ON t.workspace_id = w.workspace_id
        ORDER BY w.slots, t.last_turn_at NULLS FIRST, w.workspace_id
    LOOP
        -- A workspace that had to give slots back takes no more than half of this worker until its runs may return.
        -- Otherwise a neighbour with a short run every few seconds would interrupt one of its runs each time.
        CONTINUE WHEN EXISTS (
            SELECT FROM run_jobs j
            WHERE j.workspace_id = turn.workspace_id AND NOT j.taken AND j.paused_until > now()
        ) AND greatest(worker_slots / 2, 1) <= (
            SELECT count(*) FROM run_jobs j
            WHERE j.workspace_id = turn.workspace_id AND j.taken AND j.worker_id = fetching_worker_id
        );
        SELECT j.* INTO job FROM run_jobs j
        WHERE j.workspace_id = turn.workspace_id AND NOT j.taken
          AND (j.paused_until IS NULL OR j.paused_until <= now())
          AND NOT EXISTS (SELECT FROM run_jobs d WHERE d.session_id = j.session_id AND d.taken)
        ORDER BY j.run_id LIMIT 1
        FOR UPDATE SKIP LOCKED;
        CONTINUE WHEN NOT FOUND;
        BEGIN
            UPDATE run_jobs j SET taken = true, worker_id = fetching_worker_id
            WHERE j.id = job.id RETURNING j.* INTO job;
        EXCEPTION WHEN unique_violation THEN
            -- Another worker has just taken a job of the same session.
            CONTINUE;
        END;
        IF turn.others_wait THEN
            INSERT INTO workspace_turns AS t (workspace_id, last_turn_at)
            VALUES (turn.workspace_id, clock_timestamp())
            ON CONFLICT (workspace_id) DO UPDATE SET last_turn_at = excluded.last_turn_at;
        END IF;
        RETURN job;
    END LOOP;
    RETURN NULL;
END;
$$;

-- The next jobs for a worker, at most `max_jobs`, which must not be more than its free slots.
CREATE OR REPLACE FUNCTION next_run_jobs(fetching_worker_id uuid, worker_slots integer, max_jobs integer)
RETURNS SETOF run_jobs
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
SET jit = off
AS $$
DECLARE
    waiting uuid[];
    job run_jobs;
    taken_jobs run_jobs[];
BEGIN
    SELECT array_agg(w.workspace_id) INTO waiting FROM waiting_workspaces() w;
    IF waiting IS NULL THEN
        RETURN;
    END IF;
    -- A workspace that waits alone takes no turns: its jobs are taken together. Unless it had to give slots back.
    IF cardinality(waiting) = 1 AND NOT EXISTS (
        SELECT FROM run_jobs j
        WHERE j.workspace_id = waiting[1] AND NOT j.taken AND j.paused_until > now()
    ) THEN
        BEGIN
            WITH doing AS (
                UPDATE run_jobs j SET taken = true, worker_id = fetching_worker_id
                WHERE j.id = ANY (ARRAY(
                    SELECT t.id FROM run_jobs t
                    WHERE t.workspace_id = waiting[1] AND NOT t.taken
                      AND NOT EXISTS (SELECT FROM run_jobs d WHERE d.session_id = t.session_id AND d.taken)
                    ORDER BY t.run_id LIMIT max_jobs
                    FOR UPDATE SKIP LOCKED
                ))
                RETURNING j.*
            )
            SELECT array_agg(doing::run_jobs ORDER BY doing.run_id) INTO taken_jobs FROM doing;
            RETURN QUERY SELECT * FROM unnest(taken_jobs);
            RETURN;
        EXCEPTION WHEN unique_violation THEN
            -- Another worker has just taken a job of the same session, or two of these jobs are of one session.
            NULL;
        END;
    END IF;
    FOR i IN 1 .. max_jobs LOOP
        job := next_run_job(fetching_worker_id, worker_slots);
        EXIT WHEN job.id IS NULL;
        RETURN NEXT job;
    END LOOP;
END;
$$;

-- One round of a worker: see worker/queue_store.py.
CREATE OR REPLACE FUNCTION synchronize_worker(
    of_worker uuid, lease_seconds double precision, slots integer, max_jobs integer, done_jobs bigint[]
) RETURNS TABLE (job_id bigint, of_run uuid, is_cancelled boolean, waited_seconds double precision)
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
SET jit = off
AS $$
BEGIN
    INSERT INTO workers AS w (id) VALUES (of_worker)
    ON CONFLICT (id) DO UPDATE SET last_heartbeat = now()
    WHERE w.last_heartbeat < now() - make_interval(secs => lease_seconds / 4);
    -- Those that are gone are passed over: recovery may have replaced them.
    DELETE FROM run_jobs j WHERE j.id = ANY (done_jobs);
    IF max_jobs > 0 THEN
        PERFORM next_run_jobs(of_worker, slots, max_jobs);
    END IF;
    RETURN QUERY
    SELECT j.id, j.run_id, j.cancelled,
           extract(epoch FROM clock_timestamp() - greatest(j.queued_at, j.paused_until))::double precision
    FROM run_jobs j WHERE j.worker_id = of_worker AND j.taken;
END;
$$;

-- Marks runs that shall leave their slots, one for each waiting run of a workspace that has less than its share. If the
-- run still waits some seconds later, another one is asked: a tool call may take long, or the slot went to a third.
CREATE OR REPLACE FUNCTION ask_runs_to_leave() RETURNS void
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
SET jit = off
AS $$
DECLARE
    share bigint;
BEGIN
    -- One decision at a time: two workers would ask twice for the same run.
    IF NOT pg_try_advisory_xact_lock(turns_lock()) THEN
        RETURN;
    END IF;

    -- Waiting runs mean that no slot is free, so the slots of all workers are the jobs that are being done.
    SELECT greatest((SELECT count(*) FROM run_jobs j WHERE j.taken) / greatest(count(*), 2), 1)
    INTO share
    FROM (
        SELECT j.workspace_id FROM run_jobs j WHERE j.taken
        UNION
        SELECT w.workspace_id FROM waiting_workspaces() w
    ) AS every_workspace;

    WITH entitled AS (
        SELECT missing.id, row_number() OVER () AS number
        FROM waiting_workspaces() w
        CROSS JOIN LATERAL (
            SELECT j.id, j.ask_at FROM run_jobs j
            WHERE j.workspace_id = w.workspace_id AND NOT j.taken
              AND (j.paused_until IS NULL OR j.paused_until <= now())
              AND NOT EXISTS (SELECT FROM run_jobs d WHERE d.session_id = j.session_id AND d.taken)
            ORDER BY j.run_id LIMIT greatest(share - w.slots, 0)
        ) AS missing
        WHERE missing.ask_at <= now()
    ), ranked AS (
        -- By run and not by job: a run that left has a new job, and would be the one that leaves each time.
        SELECT j.id, j.run_id, row_number() OVER (PARTITION BY j.workspace_id ORDER BY j.run_id) AS number
        FROM run_jobs j WHERE j.taken AND NOT j.leaving
    ), borrowed AS (
        SELECT r.id, row_number() OVER (ORDER BY r.number DESC, r.run_id DESC) AS number
        FROM ranked r WHERE r.number > share
    ), asked AS (
        UPDATE run_jobs j SET leaving = true
        FROM borrowed b JOIN entitled e ON e.number = b.number WHERE j.id = b.id
        RETURNING e.id
    )
    UPDATE run_jobs j SET ask_at = now() + interval '5 seconds' FROM asked WHERE j.id = asked.id;
END;
$$;

-- Gives a free slot of the workspace to its oldest parked run.
-- Takes no lock on the workspace: all its runs would end one after the other. A run that is being parked at this moment
-- is not seen here, and starts with the next round of recovery.
CREATE OR REPLACE FUNCTION unpark_next_run(of_workspace uuid) RETURNS void
LANGUAGE sql VOLATILE
AS $$
    WITH freed AS (
        UPDATE runs r SET parked = false
        WHERE r.parked AND r.id = (
            SELECT p.id FROM runs p WHERE p.workspace_id = of_workspace AND p.parked
            ORDER BY p.id LIMIT 1 FOR UPDATE SKIP LOCKED
        )
        RETURNING r.session_id, r.id
    )
    SELECT enqueue_run(f.session_id, f.id) FROM freed f
$$;
