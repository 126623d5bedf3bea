-- The job queue. A job is inserted in the transaction that creates its run or makes it ready.

-- At most one waiting job for a run, and one running job for a session. ON CONFLICT: the run has a waiting job already.
CREATE OR REPLACE FUNCTION enqueue_run(session_id uuid, run_id uuid) RETURNS void
LANGUAGE sql VOLATILE
BEGIN ATOMIC
    INSERT INTO jobs.procrastinate_jobs (queue_name, task_name, lock, queueing_lock, args, workspace_id)
    SELECT 'runs', 'drive_run', enqueue_run.session_id::text, r.id::text, jsonb_build_object('run_id', r.id),
           r.workspace_id
    FROM runs r WHERE r.id = enqueue_run.run_id
    ON CONFLICT (queueing_lock) WHERE status = 'todo' DO NOTHING;
END;

-- For a run that gave its slot to another workspace. See next_run_job() for the effect of the pause.
CREATE OR REPLACE FUNCTION enqueue_run_after(session_id uuid, run_id uuid, pause_seconds double precision) RETURNS void
LANGUAGE sql VOLATILE
BEGIN ATOMIC
    INSERT INTO jobs.procrastinate_jobs
        (queue_name, task_name, lock, queueing_lock, args, workspace_id, scheduled_at, ask_at)
    SELECT 'runs', 'drive_run', enqueue_run_after.session_id::text, r.id::text, jsonb_build_object('run_id', r.id),
           r.workspace_id, now() + make_interval(secs => pause_seconds),
           -- No notification announces the end of the pause, so a free worker finds the job with its next poll.
           now() + make_interval(secs => pause_seconds + 1.5)
    FROM runs r WHERE r.id = enqueue_run_after.run_id
    ON CONFLICT (queueing_lock) WHERE status = 'todo' DO NOTHING;
END;

-- The library notifies on INSERT only: a job that waits for the lock of its session would wait for the next poll. It is the
-- job of the active run, which two indexes find; there is none by the lock of waiting jobs.
CREATE OR REPLACE FUNCTION notify_lock_freed() RETURNS trigger
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
BEGIN
    PERFORM FROM app.runs r JOIN jobs.procrastinate_jobs j ON j.queueing_lock = r.id::text
    WHERE r.session_id = OLD.lock::uuid AND r.state IN ('queued', 'running') AND j.status = 'todo';
    IF FOUND THEN
        PERFORM pg_notify('procrastinate_queue_v1#' || OLD.queue_name,
                          json_build_object('type', 'job_inserted', 'job_id', OLD.id)::text);
    END IF;
    RETURN NULL;
END;
$$;

-- In place of the library's trigger, which sends two notifications for each job. PostgreSQL drops repeated ones, so a
-- transaction that adds many jobs sends one. Workers do not look at the id.
CREATE OR REPLACE FUNCTION notify_jobs_added() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM pg_notify('procrastinate_queue_v1#runs', '{"type": "job_inserted", "job_id": 0}');
    RETURN NULL;
END;
$$;

CREATE OR REPLACE TRIGGER jobs_added AFTER INSERT ON jobs.procrastinate_jobs
FOR EACH STATEMENT EXECUTE FUNCTION app.notify_jobs_added();

-- Not needed: that trigger, and the history of jobs, which is deleted with them a moment later.
ALTER TABLE jobs.procrastinate_jobs DISABLE TRIGGER procrastinate_jobs_notify_queue_job_inserted_v1;
ALTER TABLE jobs.procrastinate_jobs DISABLE TRIGGER procrastinate_trigger_status_events_insert_v1;
ALTER TABLE jobs.procrastinate_jobs DISABLE TRIGGER procrastinate_trigger_status_events_update_v1;
ALTER TABLE jobs.procrastinate_jobs DISABLE TRIGGER procrastinate_trigger_scheduled_events_v1;
ALTER TABLE jobs.procrastinate_jobs DISABLE TRIGGER procrastinate_trigger_abort_requested_events_v1;

CREATE OR REPLACE TRIGGER lock_freed_by_delete AFTER DELETE ON jobs.procrastinate_jobs
FOR EACH ROW WHEN (OLD.status = 'doing') EXECUTE FUNCTION app.notify_lock_freed();

CREATE OR REPLACE TRIGGER lock_freed_by_update AFTER UPDATE OF status ON jobs.procrastinate_jobs
FOR EACH ROW WHEN (OLD.status = 'doing' AND NEW.status <> 'doing') EXECUTE FUNCTION app.notify_lock_freed();

-- The library's functions must find the library's tables, whatever the search_path of the caller is.
DO $$
DECLARE
    library_function regprocedure;
BEGIN
    FOR library_function IN SELECT oid FROM pg_proc WHERE pronamespace = 'jobs'::regnamespace LOOP
        EXECUTE format('ALTER ROUTINE %s SET search_path = jobs, pg_temp', library_function);
    END LOOP;
END;
$$;
