-- A page of a session's log, oldest first: at most `max_events` events after `after_id`, up to the one that uses up the
-- budget. An event holds up to a megabyte, most of it outside of its row. The loop reads the content of those that it
-- returns and of no others: sizes summed up by a window function would read that of all candidates.
--
-- `followed`: whether the log goes on after this event.
CREATE OR REPLACE FUNCTION read_log(
    target_session_id uuid, after_id bigint, max_events integer, budget_bytes bigint
)
RETURNS TABLE (event_id bigint, run_id uuid, type text, created_at timestamptz, data jsonb, followed boolean)
-- Not STABLE: the loop must see what was committed when it gets the table, as a plain query does.
LANGUAGE plpgsql
-- As in submit_inputs(): no plans from the time when the tables were nearly empty.
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    used_bytes bigint := 0;
    taken integer := 0;
    event record;
BEGIN
    followed := false;
    FOR event IN
        SELECT e.id, e.run_id, e.type, e.created_at, e.data FROM session_events e
        WHERE e.session_id = target_session_id AND e.id > after_id ORDER BY e.id LIMIT max_events + 1
    LOOP
        -- Each event is returned when it is known whether another one follows.
        IF taken > 0 THEN
            followed := true;
            RETURN NEXT;
            followed := false;
        END IF;
        IF taken = max_events OR used_bytes >= budget_bytes THEN
            RETURN;
        END IF;
        event_id := event.id;
        run_id := event.run_id;
        type := event.type;
        created_at := event.created_at;
        data := event.data;
        used_bytes := used_bytes + octet_length(event.data::text);
        taken := taken + 1;
    END LOOP;
    IF taken > 0 THEN
        RETURN NEXT;
    END IF;
END;
$$;
