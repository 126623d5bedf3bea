-- Reads the inputs and the log of a session up to a budget of bytes. An event holds up to a megabyte and more, most of it
-- outside of its row. A loop reads those parts of the rows that it returns and of no others: the cost depends on the
-- budget and not on what is stored.

-- The oldest inputs that the run has not consumed, without discarded ones. They end with the one that uses up the budget,
-- so there is at least one if any waits. Each counts as its text and `overhead_bytes`.
CREATE OR REPLACE FUNCTION waiting_inputs(target_run_id uuid, budget_bytes bigint, overhead_bytes integer)
RETURNS TABLE (event_id bigint, input_id text, content text, attachments jsonb, copy_of text)
LANGUAGE plpgsql STABLE
-- As in submit_inputs(): no plans from the time when the tables were nearly empty.
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    used_bytes bigint := 0;
    run record;
    event record;
BEGIN
    SELECT r.session_id, r.consumed_through, r.last_input, r.takes_over || r.id AS owners INTO run
    FROM runs r WHERE r.id = target_run_id;
    FOR event IN
        SELECT e.id, e.data FROM session_events e
        WHERE e.session_id = run.session_id AND e.id > run.consumed_through AND e.id <= run.last_input
          AND e.type = 'input.accepted' AND e.run_id = ANY (run.owners)
        ORDER BY e.id
    LOOP
        EXIT WHEN used_bytes >= budget_bytes;
        event_id := event.id;
        input_id := event.data->>'input_id';
        -- LIKE: only then the index session_events_of_input is used.
        CONTINUE WHEN EXISTS (
            SELECT FROM session_events d
            WHERE d.session_id = run.session_id AND d.data->>'input_id' = event.data->>'input_id'
              AND d.type LIKE 'input.%' AND d.type = 'input.discarded'
        );
        content := event.data->>'text';
        attachments := event.data->'attachments';
        copy_of := event.data->>'copy_of';
        used_bytes := used_bytes + octet_length(content) + overhead_bytes;
        RETURN NEXT;
    END LOOP;
END;
$$;

-- Whether the summary has nothing of an input that was discarded after it.
CREATE OR REPLACE FUNCTION summary_counts(of_session_id uuid, of_event_id bigint) RETURNS boolean
LANGUAGE sql STABLE
AS $$
    SELECT NOT EXISTS (
        SELECT FROM session_events d
        WHERE d.session_id = of_session_id AND d.id > of_event_id AND d.type = 'input.discarded' AND EXISTS (
            -- LIKE: only then the index session_events_of_input is used.
            SELECT FROM session_events c
            WHERE c.session_id = of_session_id AND c.data->>'input_id' = d.data->>'input_id'
              AND c.type LIKE 'input.%' AND c.type = 'input.consumed' AND c.id < of_event_id
        )
    )
$$;

-- The newest entries of the conversation, newest first, until the budget is used up. A step is not cut: an entry of a
-- tool is followed by the message that called it. Three parts are there whatever their size: the newest input, the first
-- input of its run, and the newest step, which may have calls that are still to be carried out. At most `max_events` events
-- of the log are considered.
--
-- The newest exchange is everything since the last answer without calls. When the budget is used up within it, its older
-- results are returned as their beginning and end, with 'cut' as `content`. Its older steps are returned up to the budget,
-- counted with the cut results, and its inputs up to the budget. models/context.py cuts and drops in the same way.
--
-- The newest summary (context.compacted) is returned too. Before it, only the last `kept_answers` answers are, with the
-- inputs since the answer before them and those of the newest exchange: the summary stands for the rest. It counts no more
-- if an input that was consumed before it was discarded since. If the budget is used up before the summary is met, it is
-- returned with 'unread' as `content`.
--
-- Not returned are discarded inputs, and those that a run with `unanswered_left_out` consumed after its last answer. They
-- use nothing of the budget. If there are any, the last row has the type 'left_out' and their number as `data`. The results
-- after the last answer of such a run are returned without their text, and with 'left_out' as `content`.
--
-- `content` is the text of a consumed input. Its attachments and `copy_of` are added to `data`. They are in the event
-- input.accepted, which input_event_id names.
CREATE OR REPLACE FUNCTION read_conversation(
    target_session_id uuid,
    budget_bytes bigint,
    overhead_bytes integer,      -- of each entry
    max_events integer
)
RETURNS TABLE (event_id bigint, run_id uuid, type text, data jsonb, record jsonb, content text)
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
SET enable_bitmapscan = off
-- Planning takes longer than the statements, which run thousands of times.
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    -- As models/context.py cuts results. As many characters are enough for as many bytes.
    cut_bytes CONSTANT integer := 512;
    used_bytes bigint := 0;
    -- Bytes of the newest exchange before its newest step, with cut results; and bytes of its inputs.
    step_bytes bigint := 0;
    input_bytes bigint := 0;
    entry_bytes bigint;
    has_input boolean := false;
    has_message boolean := false;
    in_step boolean := false;
    in_exchange boolean := true;
    -- The step that is being read is left out.
    skips_step boolean := false;
    has_skipped boolean := false;
    has_calls boolean := false;
    newest_run uuid;
    -- The first input of the newest run, if there was no room for it.
    task record;
    has_task boolean := false;
    is_older boolean;
    first_event_id bigint;
    -- The run of which no answer was met yet, if its unanswered turns are left out.
    left_out_run uuid;
    left_out_turns integer := 0;
    accepted jsonb;
    is_left_out boolean;
    event record;
    -- How many answers before the summary that was met are still to come.
    answers_left integer;
    is_summarised boolean := false;
    has_all boolean := true;
BEGIN
    SELECT min(newest.id) INTO first_event_id FROM (
        SELECT e.id FROM session_events e WHERE e.session_id = target_session_id ORDER BY e.id DESC LIMIT max_events
    ) AS newest;

    FOR event IN
        SELECT e.id, e.run_id, e.type, e.data, e.record, e.input_event_id
        FROM session_events e
        WHERE e.session_id = target_session_id AND e.id >= first_event_id
          AND (
              e.type IN ('input.consumed', 'message', 'tool.call', 'tool.started', 'tool.result', 'run.failed',
                         'run.cancelled', 'context.compacted')
              -- A call that the caller of the API may carry out.
              OR (e.type = 'action.required' AND e.data->>'kind' = 'tool_result')
          )
        ORDER BY e.id DESC
    LOOP
        IF event.type IN ('run.failed', 'run.cancelled') THEN
            -- A pending run can be cancelled in the middle of another run: then the other one stays left out.
            left_out_run := coalesce((
                SELECT r.id FROM runs r WHERE r.id = event.run_id AND r.unanswered_left_out AND r.inputs_consumed > 0
            ), left_out_run);
            CONTINUE;
        END IF;
        IF event.type = 'context.compacted' THEN
            CONTINUE WHEN answers_left IS NOT NULL OR NOT summary_counts(target_session_id, event.id);
            answers_left := (event.data->>'kept_answers')::integer;
            event_id := event.id;
            run_id := event.run_id;
            type := event.type;
            data := event.data;
            record := NULL;
            content := CASE WHEN has_skipped THEN 'unread' END;
            used_bytes := used_bytes + octet_length(event.data->>'summary') + overhead_bytes;
            RETURN NEXT;
            CONTINUE;
        END IF;
        IF event.type = 'message' AND event.run_id = left_out_run THEN
            left_out_run := NULL;
        END IF;
        -- A fork marks in `record` what its origin leaves out.
        is_left_out := event.type IN ('input.consumed', 'tool.result') AND (
            coalesce(event.run_id = left_out_run, false) OR event.record IS NOT NULL
            OR (event.type = 'input.consumed' AND EXISTS (
                SELECT FROM session_events d
                WHERE d.session_id = target_session_id AND d.data->>'input_id' = event.data->>'input_id'
                  AND d.type LIKE 'input.%' AND d.type = 'input.discarded'
            ))
        );
        IF is_left_out AND event.type = 'input.consumed' THEN
            left_out_turns := left_out_turns + 1;
            CONTINUE;
        END IF;
        IF event.type = 'tool.call' THEN
            has_calls := true;
        ELSIF event.type = 'message' THEN
            in_exchange := in_exchange AND (has_calls OR event.data ? 'mismatch');
            has_calls := false;
        END IF;
        IF answers_left = 0 AND event.type <> 'input.consumed' THEN
            -- The answer before the kept ones, and its calls. Inputs of the exchange, or the newest one, may be before it.
            is_summarised := is_summarised OR event.type = 'message';
            EXIT WHEN is_summarised AND has_input AND NOT in_exchange;
            CONTINUE;
        END IF;
        EXIT WHEN is_summarised AND has_input AND NOT in_exchange;
        IF event.type = 'input.consumed' THEN
            newest_run := coalesce(newest_run, event.run_id);
            IF in_exchange AND has_input AND input_bytes >= budget_bytes THEN
                has_skipped := true;
                IF event.run_id = newest_run THEN
                    task := event;
                    has_task := true;
                END IF;
                CONTINUE;
            END IF;
        ELSIF NOT in_step THEN
            skips_step := in_exchange AND has_message AND step_bytes >= budget_bytes;
        END IF;
        IF skips_step AND event.type <> 'input.consumed' THEN
            has_skipped := true;
            in_step := event.type <> 'message';
            answers_left := answers_left - (event.type = 'message')::integer;
            CONTINUE;
        END IF;
        IF NOT in_exchange AND used_bytes >= budget_bytes AND NOT in_step THEN
            IF has_input AND has_message THEN
                has_all := false;
                EXIT;
            END IF;
            CONTINUE WHEN CASE event.type WHEN 'input.consumed' THEN has_input ELSE has_message END;
        END IF;
        event_id := event.id;
        run_id := event.run_id;
        type := event.type;
        data := event.data;
        record := event.record;
        content := NULL;
        entry_bytes := 0;
        is_older := has_message;
        CASE event.type
            WHEN 'input.consumed' THEN
                SELECT a.data INTO accepted FROM session_events a
                WHERE a.session_id = target_session_id AND a.id = event.input_event_id;
                content := accepted->>'text';
                CONTINUE WHEN content IS NULL;
                data := data || jsonb_strip_nulls(
                    jsonb_build_object('attachments', accepted->'attachments', 'copy_of', accepted->'copy_of')
                );
                entry_bytes := octet_length(content);
                input_bytes := input_bytes + entry_bytes + overhead_bytes;
                has_input := true;
            WHEN 'message' THEN
                entry_bytes := octet_length(coalesce(event.record::text, event.data->>'text'));
                -- For people. The record has what the model gets of it.
                data := data - 'reasoning' - 'sources';
                has_message := true;
                in_step := false;
                answers_left := answers_left - 1;
            WHEN 'tool.result' THEN
                IF is_left_out THEN
                    data := data - 'text' - 'images';
                    record := NULL;
                    content := 'left_out';
                ELSE
                    entry_bytes := octet_length(event.data->>'text');
                    step_bytes := step_bytes - CASE WHEN is_older THEN greatest(entry_bytes - cut_bytes, 0) ELSE 0 END;
                    IF in_exchange AND is_older AND used_bytes >= budget_bytes
                       AND char_length(data->>'text') > 2 * cut_bytes THEN
                        data := data || jsonb_build_object(
                            'text', left(data->>'text', cut_bytes) || right(data->>'text', cut_bytes)
                        );
                        content := 'cut';
                    END IF;
                END IF;
                in_step := true;
            ELSE
                -- A call: the record of its message contains it. Or the start of a call.
                in_step := true;
        END CASE;
        used_bytes := used_bytes + entry_bytes + overhead_bytes;
        step_bytes := step_bytes + CASE WHEN is_older THEN entry_bytes + overhead_bytes ELSE 0 END;
        RETURN NEXT;
    END LOOP;
    IF has_task THEN
        SELECT task.id, task.run_id, task.type, task.data || jsonb_strip_nulls(
                   jsonb_build_object('attachments', a.data->'attachments', 'copy_of', a.data->'copy_of')
               ), NULL, a.data->>'text'
        INTO event_id, run_id, type, data, record, content
        FROM session_events a WHERE a.session_id = target_session_id AND a.id = task.input_event_id;
        IF FOUND THEN
            RETURN NEXT;
        END IF;
    END IF;
    IF answers_left IS NULL AND NOT has_all THEN
        SELECT e.id, e.run_id, e.type, e.data, NULL, 'unread' INTO event_id, run_id, type, data, record, content
        FROM session_events e
        WHERE e.session_id = target_session_id AND e.id >= first_event_id AND e.id < event.id
          AND e.type = 'context.compacted' AND summary_counts(target_session_id, e.id)
        ORDER BY e.id DESC LIMIT 1;
        IF FOUND THEN
            RETURN NEXT;
        END IF;
    END IF;
    IF left_out_turns > 0 THEN
        event_id := NULL;
        run_id := NULL;
        type := 'left_out';
        data := to_jsonb(left_out_turns);
        record := NULL;
        content := NULL;
        RETURN NEXT;
    END IF;
END;
$$;
