-- Runs that wait for answers, and the actions that they wait for.

-- Puts a waiting run back into the queue when none of its actions is open. Everything that closes an action calls this
-- in the same transaction, under the lock of the session, which it took in an earlier statement. False: the run still
-- waits, or it did not wait.
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

-- These actions in this order, up to the one that uses up the budget: arguments and answers hold up to a megabyte each.
-- The loop reads the content of those that it returns and of no others.
CREATE OR REPLACE FUNCTION read_actions(of_workspace_id uuid, action_ids uuid[], budget_bytes bigint)
RETURNS SETOF actions
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    used_bytes bigint := 0;
    action_id uuid;
    action actions;
BEGIN
    FOREACH action_id IN ARRAY action_ids LOOP
        SELECT * INTO action FROM actions a WHERE a.id = action_id AND a.workspace_id = of_workspace_id;
        CONTINUE WHEN NOT FOUND;
        RETURN NEXT action;
        used_bytes := used_bytes + coalesce(octet_length(action.arguments::text), 0)
            + coalesce(octet_length(action.resolution::text), 0);
        EXIT WHEN used_bytes >= budget_bytes;
    END LOOP;
END;
$$;
