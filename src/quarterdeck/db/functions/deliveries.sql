-- How runs are added and started. Callers hold the lock of the session.

-- Adds a run with inputs that wait. consumed_through lies just before the first one: starting at 0, the run would consume
-- the whole history. Fails if the session has an active run, unless the new one is pending.
CREATE OR REPLACE FUNCTION add_run(
    run_id uuid,
    session_id uuid,
    workspace_id uuid,
    state text,
    first_input bigint,          -- ids of the events input.accepted
    last_input bigint,
    inputs integer,
    input_bytes bigint,
    api_key_id uuid,
    traceparent text,            -- the span of the request; NULL: it is not traced
    takes_over uuid[] DEFAULT '{}',
    retried_from uuid DEFAULT NULL,
    priority text DEFAULT 'normal'
)
RETURNS void
LANGUAGE sql VOLATILE
AS $$
    INSERT INTO runs (id, session_id, workspace_id, state, first_input, last_input, consumed_through, inputs_accepted,
                      unconsumed_bytes, api_key_id, traceparent, takes_over, retried_from, priority)
    VALUES (run_id, session_id, workspace_id, state, first_input, last_input, first_input - 1, inputs,
            input_bytes, api_key_id, traceparent, takes_over, retried_from, priority)
$$;

-- Starts the oldest pending run of a session that has no active run. Every end of a run calls this, in its
-- transaction. Pending runs have one input each, so last_input is in the order in which they were accepted.
CREATE OR REPLACE FUNCTION start_pending_run(target_session_id uuid) RETURNS uuid
LANGUAGE plpgsql VOLATILE
-- As in submit_inputs(): no plans from the time when the table was nearly empty.
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    started_run_id uuid;
BEGIN
    UPDATE runs r SET state = 'queued', updated_at = clock_timestamp()
    WHERE r.id = (
        SELECT p.id FROM runs p WHERE p.session_id = target_session_id AND p.state = 'pending'
        ORDER BY p.last_input LIMIT 1
    ) AND NOT EXISTS (
        SELECT FROM runs a WHERE a.session_id = target_session_id AND a.state IN ('queued', 'running', 'waiting')
    )
    RETURNING r.id INTO started_run_id;
    IF FOUND THEN
        PERFORM enqueue_run(target_session_id, started_run_id);
    END IF;
    RETURN started_run_id;
END;
$$;

-- Copies the inputs of an ended run into a new run: those that it consumed, and those that its cancellation discarded.
-- Inputs that a person withdrew or dropped are left out. `copy_of` names the input that was sent first, also if a retry is
-- retried: the model sees one of them (worker/journal.py). Adds the events and the run, which is queued and has no job yet.
-- Returns NULL if the run was added, 'empty' if there is no input, and 'too_many' if the inputs exceed the limits; then
-- the caller rolls back. Texts are read one at a time, up to the limits.
CREATE OR REPLACE FUNCTION repeat_inputs(
    repeated_run_id uuid,
    new_run_id uuid,
    new_input_ids uuid[],        -- as many as there may be inputs
    max_bytes bigint,            -- one input may always be larger
    actor jsonb,                 -- the caller who retries
    api_key_id uuid,
    traceparent text             -- the span of the request; NULL: it is not traced
)
RETURNS text
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    run record;
    end_event_id bigint;
    input_events bigint[];
    input record;
    inputs integer := 0;
    copied_bytes bigint := 0;
    first_event_id bigint;
    last_event_id bigint;
BEGIN
    SELECT r.session_id, r.workspace_id, r.consumed_through, r.last_input, r.first_input, r.takes_over, r.state, r.priority
    INTO run FROM runs r WHERE r.id = repeated_run_id;

    SELECT e.id INTO end_event_id FROM session_events e
    WHERE e.session_id = run.session_id AND e.id >= run.first_input AND e.run_id = repeated_run_id
      AND e.type IN ('run.failed', 'run.cancelled')
    ORDER BY e.id LIMIT 1;

    SELECT array_agg(found.id ORDER BY found.id) INTO input_events FROM (
        SELECT e.input_event_id AS id FROM session_events e
        WHERE e.session_id = run.session_id AND e.id >= run.first_input AND e.id < end_event_id
          AND e.run_id = repeated_run_id AND e.type = 'input.consumed'
        UNION ALL
        -- A failed run handed these over to its successor.
        SELECT e.id FROM session_events e
        WHERE run.state = 'cancelled'
          AND e.session_id = run.session_id AND e.id > run.consumed_through AND e.id <= run.last_input
          AND e.type = 'input.accepted' AND e.run_id = ANY (run.takes_over || repeated_run_id)
        LIMIT cardinality(new_input_ids) + 1
    ) AS found;
    IF cardinality(input_events) > cardinality(new_input_ids) THEN
        RETURN 'too_many';
    END IF;

    FOR input IN
        SELECT e.data->>'input_id' AS id, e.data->>'text' AS content, e.data->'attachments' AS attachments,
               coalesce(e.data->>'copy_of', e.data->>'input_id') AS original_id
        FROM session_events e
        WHERE e.session_id = run.session_id AND e.id = ANY (input_events) ORDER BY e.id
    LOOP
        -- LIKE: only then the index session_events_of_input is used.
        CONTINUE WHEN EXISTS (
            SELECT FROM session_events d
            WHERE d.session_id = run.session_id AND d.data->>'input_id' = input.id
              AND d.type LIKE 'input.%' AND d.type = 'input.discarded'
              AND d.data->>'reason' IN ('withdrawn', 'dropped')
        );
        inputs := inputs + 1;
        copied_bytes := copied_bytes + octet_length(input.content);
        IF inputs > 1 AND copied_bytes > max_bytes THEN
            RETURN 'too_many';
        END IF;
        INSERT INTO session_events (session_id, run_id, workspace_id, type, data)
        VALUES (run.session_id, new_run_id, run.workspace_id, 'input.accepted', jsonb_build_object(
            'input_id', new_input_ids[inputs], 'text', input.content, 'retried_from', repeated_run_id,
            'copy_of', input.original_id, 'actor', actor
        ) || CASE WHEN input.attachments IS NULL THEN '{}' ELSE jsonb_build_object('attachments', input.attachments) END)
        RETURNING id INTO last_event_id;
        first_event_id := coalesce(first_event_id, last_event_id);
    END LOOP;
    IF inputs = 0 THEN
        RETURN 'empty';
    END IF;

    PERFORM add_run(new_run_id, run.session_id, run.workspace_id, 'queued', first_event_id, last_event_id, inputs,
                    copied_bytes, api_key_id, traceparent, retried_from => repeated_run_id,
                    priority => run.priority);
    RETURN NULL;
END;
$$;
