-- The queue as our statements see it. A job is inserted where its run is created or freed, in the same transaction.

-- One job a run, one running a session. ON CONFLICT: the run has a waiting job already.
CREATE OR REPLACE FUNCTION enqueue_run(session_id uuid, run_id uuid) RETURNS void
LANGUAGE sql VOLATILE
BEGIN ATOMIC
    INSERT INTO jobs.procrastinate_jobs (queue_name, task_name, lock, queueing_lock, args)
    VALUES ('runs', 'drive_run', session_id::text, run_id::text, jsonb_build_object('run_id', run_id))
    ON CONFLICT (queueing_lock) WHERE status = 'todo' DO NOTHING;
END;

-- The library notifies on INSERT only: a job that waits for its session's lock would wait for the next poll.
CREATE OR REPLACE FUNCTION notify_lock_freed() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM FROM jobs.procrastinate_jobs j WHERE j.lock = OLD.lock AND j.status = 'todo';
    IF FOUND THEN
        PERFORM pg_notify('procrastinate_queue_v1#' || OLD.queue_name,
                          json_build_object('type', 'job_inserted', 'job_id', OLD.id)::text);
    END IF;
    RETURN NULL;
END;
$$;

CREATE OR REPLACE TRIGGER lock_freed_by_delete AFTER DELETE ON jobs.procrastinate_jobs
FOR EACH ROW WHEN (OLD.status = 'doing') EXECUTE FUNCTION app.notify_lock_freed();

CREATE OR REPLACE TRIGGER lock_freed_by_update AFTER UPDATE OF status ON jobs.procrastinate_jobs
FOR EACH ROW WHEN (OLD.status = 'doing' AND NEW.status <> 'doing') EXECUTE FUNCTION app.notify_lock_freed();

-- Whatever the caller's search_path, the library's own functions find the library's own tables.
DO $$
DECLARE
    library_function regprocedure;
BEGIN
    FOR library_function IN SELECT oid FROM pg_proc WHERE pronamespace = 'jobs'::regnamespace LOOP
        EXECUTE format('ALTER ROUTINE %s SET search_path = jobs, pg_temp', library_function);
    END LOOP;
END;
$$;
