-- The job queue. A job is inserted in the transaction that creates its run or makes it ready.

-- ON CONFLICT: the run has a waiting job already.
CREATE OR REPLACE FUNCTION enqueue_run(session_id uuid, run_id uuid) RETURNS void
LANGUAGE sql VOLATILE
BEGIN ATOMIC
    INSERT INTO run_jobs (run_id, session_id, workspace_id)
    SELECT r.id, enqueue_run.session_id, r.workspace_id FROM runs r WHERE r.id = enqueue_run.run_id
    ON CONFLICT (run_id) WHERE NOT taken DO NOTHING;
END;

-- For a run that gave its slot to another workspace. See next_run_job() for the effect of the pause.
CREATE OR REPLACE FUNCTION enqueue_run_after(session_id uuid, run_id uuid, pause_seconds double precision) RETURNS void
LANGUAGE sql VOLATILE
BEGIN ATOMIC
    INSERT INTO run_jobs (run_id, session_id, workspace_id, paused_until, ask_at)
    SELECT r.id, enqueue_run_after.session_id, r.workspace_id, now() + make_interval(secs => pause_seconds),
           -- No notification announces the end of the pause, so a free worker finds the job with its next poll.
           now() + make_interval(secs => pause_seconds + 1.5)
    FROM runs r WHERE r.id = enqueue_run_after.run_id
    ON CONFLICT (run_id) WHERE NOT taken DO NOTHING;
END;

-- After the end of a run: nobody takes its waiting job any more, and the worker that has taken it shall stop.
CREATE OR REPLACE FUNCTION cancel_run_jobs(of_run uuid) RETURNS void
LANGUAGE sql VOLATILE
BEGIN ATOMIC
    DELETE FROM run_jobs j WHERE j.run_id = of_run AND NOT j.taken;
    WITH stopped AS (UPDATE run_jobs j SET cancelled = true WHERE j.run_id = of_run AND j.taken RETURNING j.run_id)
    SELECT pg_notify('quarterdeck_jobs', '') FROM stopped;
END;

-- Without this, a job that waits for the taken job of its session would wait for the next poll. It is the job of the
-- active run, which two indexes find.
CREATE OR REPLACE FUNCTION notify_session_freed() RETURNS trigger
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
BEGIN
    PERFORM FROM app.runs r JOIN app.run_jobs j ON j.run_id = r.id
    WHERE r.session_id = OLD.session_id AND r.state IN ('queued', 'running') AND NOT j.taken;
    IF FOUND THEN
        PERFORM pg_notify('quarterdeck_jobs', '');
    END IF;
    RETURN NULL;
END;
$$;

-- PostgreSQL drops repeated notifications, so a transaction that adds many jobs sends one.
CREATE OR REPLACE FUNCTION notify_jobs_added() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM pg_notify('quarterdeck_jobs', '');
    RETURN NULL;
END;
$$;

CREATE OR REPLACE TRIGGER jobs_added AFTER INSERT ON run_jobs
FOR EACH STATEMENT EXECUTE FUNCTION app.notify_jobs_added();

CREATE OR REPLACE TRIGGER session_freed_by_delete AFTER DELETE ON run_jobs
FOR EACH ROW WHEN (OLD.taken) EXECUTE FUNCTION app.notify_session_freed();

CREATE OR REPLACE TRIGGER session_freed_by_update AFTER UPDATE OF taken ON run_jobs
FOR EACH ROW WHEN (OLD.taken AND NOT NEW.taken) EXECUTE FUNCTION app.notify_session_freed();
