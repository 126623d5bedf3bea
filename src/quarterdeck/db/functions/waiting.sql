-- Runs that wait for answers. Callers hold the lock of the session, taken in an earlier statement.

-- Puts a waiting run back into the queue when none of its actions is open. Everything that closes an action calls this
-- in the same transaction. False: the run still waits, or it does not wait.
CREATE OR REPLACE FUNCTION continue_run(waiting_run_id uuid) RETURNS boolean
LANGUAGE plpgsql VOLATILE
-- As in submit_inputs(): no plans from the time when the tables were nearly empty.
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    waiting_session_id uuid;
BEGIN
    UPDATE runs r
    SET state = 'queued', waiting_since = NULL, updated_at = clock_timestamp(),
        waited_seconds = r.waited_seconds
            + greatest(extract(epoch FROM clock_timestamp() - r.waiting_since)::double precision, 0)
    WHERE r.id = waiting_run_id AND r.state = 'waiting' AND NOT EXISTS (
        SELECT FROM actions a WHERE a.run_id = waiting_run_id AND a.state = 'open'
    )
    RETURNING r.session_id INTO waiting_session_id;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM enqueue_run(waiting_session_id, waiting_run_id);
    RETURN true;
END;
$$;
