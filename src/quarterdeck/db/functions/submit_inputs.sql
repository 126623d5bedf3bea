-- Submits a batch of inputs. Each one, in the given order, gets the receipt of an earlier request, or steers the active
-- run, or starts a run together with its job. An input for a run in which too many wait is refused with 'full'.
-- Inputs with another delivery than `steer` and retries do not come here (runs/creation.py), but find_submitter()
-- decides about them, too.
--
-- Three steps:
--   1. Check every caller. A caller that may not write to a session neither takes its lock nor waits for it.
--   2. Lock the sessions and the Idempotency-Keys. A batch does not wait (wait_for_locks = false), since one session
--      that is in use would hold up all others: its inputs get the verdict 'locked' and have no effect. They are sent
--      again by themselves, with wait_for_locks = true.
--   3. Check every caller again, since a key may have been revoked or a session archived before its lock was taken. Then
--      store the inputs.
--
-- Every writer of a session takes session_lock() first, in a statement of its own. The function is VOLATILE and runs
-- under READ COMMITTED, so each of its statements has a fresh snapshot: those of step 3 see what the previous holder of
-- the lock committed. A single data-modifying statement would keep the snapshot from before the wait and lose inputs.

-- Whether a caller may submit inputs to a session, and what may be attached to them: always one row. `refusal` is NULL
-- if it may. An archived session accepts no new input, but the receipt of an earlier one counts first.
-- RETURNS TABLE lets PostgreSQL inline the function into the calling statement.
CREATE OR REPLACE FUNCTION find_submitter(
    secret_hash bytea,
    target_session_id uuid,
    named_workspace_id uuid      -- the Service-Workspace header, or NULL
)
RETURNS TABLE (
    refusal text,
    api_key_id uuid,             -- of a session token: the key that made it
    session_token_id uuid,
    device_id uuid,
    user_id uuid,
    workspace_id uuid,
    scope_id uuid,               -- scope of Idempotency-Keys
    is_archived boolean,
    files_of uuid                -- the workspace whose uploaded files it may attach. NULL: a session token sees no files
)
LANGUAGE sql STABLE
AS $$
    SELECT CASE
               WHEN p.scope_id IS NULL THEN 'unauthorized'
               WHEN s.id IS NULL THEN 'not_found'
               WHEN p.session_id IS NULL AND NOT 'session.manage' = ANY (p.permissions) THEN 'forbidden'
           END,
           p.api_key_id, p.session_token_id, p.device_id, p.user_id, p.workspace_id, p.scope_id, s.archived_at IS NOT NULL,
           CASE WHEN p.session_id IS NULL THEN p.workspace_id END
    FROM (VALUES (1)) AS one_row
    LEFT JOIN find_principals(ARRAY[find_submitter.secret_hash], ARRAY[find_submitter.named_workspace_id]) p ON true
    LEFT JOIN sessions s
        ON s.id = target_session_id AND s.workspace_id = p.workspace_id
       AND s.id = coalesce(p.session_id, s.id) AND p.trusted_job_id IS NULL
       AND s.workspace_id = coalesce(find_submitter.named_workspace_id, s.workspace_id)
$$;

-- Takes an advisory lock until the end of the transaction. False: another transaction holds it, and we do not wait.
CREATE OR REPLACE FUNCTION take_lock(lock_key bigint, wait boolean) RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
    IF NOT wait THEN
        RETURN pg_try_advisory_xact_lock(lock_key);
    END IF;
    PERFORM pg_advisory_xact_lock(lock_key);
    RETURN true;
END;
$$;

CREATE OR REPLACE FUNCTION submit_inputs(
    secret_hashes bytea[],
    session_ids uuid[],
    workspace_ids uuid[],        -- the Service-Workspace header, or NULL
    texts text[],
    input_ids uuid[],
    fresh_run_ids uuid[],        -- the id of the run, if the input starts one
    idempotency_keys text[],     -- or NULL
    fingerprints bytea[],
    wait_for_locks boolean,
    -- Largest number and size of the inputs that a run has not consumed. An input always fits if no other one waits.
    run_waiting_inputs integer,
    run_waiting_bytes bigint,
    -- For find_attachments(). NULL: the input has none. The whole array is NULL if no input has any.
    attachments jsonb[],
    -- The spans of the requests, for the runs that they start. NULL: none is traced.
    traceparents text[],
    -- For model_without_batches(). NULL: the priority is normal. The whole array is NULL if all are.
    batch_models jsonb[]
)
-- `body`: the response, or details about a refusal. `used_id`: the key or device, NULL for a session token.
RETURNS TABLE (verdict text, body bytea, used_id uuid)
LANGUAGE plpgsql VOLATILE
-- Plans that were cached while the tables were nearly empty would scan them until the next ANALYZE.
SET enable_seqscan = off
SET enable_bitmapscan = off
-- Planning takes longer than the statements, and every set of values has the same best plan.
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    admitted boolean[];
    locked boolean[] := '{}';
    caller record;
    i integer;
    receipt record;
    event_id bigint;
    event_data jsonb;
    input_bytes integer;
    run_id uuid;
    outcome text;
    attached record;
    without_batches text;
BEGIN
    SELECT array_agg(c.refusal IS NULL ORDER BY item.number) INTO admitted
    FROM unnest(secret_hashes, session_ids, workspace_ids) WITH ORDINALITY
        AS item (secret_hash, session_id, workspace_id, number)
    CROSS JOIN LATERAL find_submitter(item.secret_hash, item.session_id, item.workspace_id) AS c;

    FOR i IN 1 .. cardinality(session_ids) LOOP
        -- The key's lock comes second, so that a call that waits for a session keeps no key from others.
        locked[i] := admitted[i] AND take_lock(session_lock(session_ids[i]), wait_for_locks) AND (
            idempotency_keys[i] IS NULL
            OR take_lock(input_receipt_lock(secret_hashes[i], idempotency_keys[i]), wait_for_locks)
        );
    END LOOP;

    FOR caller IN
        SELECT item.number, c.*, (
            SELECT a.caller FROM caller_of(c.api_key_id, c.session_token_id, c.device_id, c.user_id) a
        ) AS actor
        FROM unnest(secret_hashes, session_ids, workspace_ids) WITH ORDINALITY
            AS item (secret_hash, session_id, workspace_id, number)
        CROSS JOIN LATERAL find_submitter(item.secret_hash, item.session_id, item.workspace_id) AS c
        ORDER BY item.number
    LOOP
        i := caller.number;
        body := NULL;
        used_id := CASE WHEN caller.session_token_id IS NULL THEN coalesce(caller.device_id, caller.api_key_id) END;
        IF caller.refusal IS NOT NULL OR NOT locked[i] THEN
            -- A caller that was refused in step 1 holds no lock, so it stays refused if it has gained access meanwhile.
            verdict := coalesce(caller.refusal, CASE WHEN admitted[i] THEN 'locked' ELSE 'not_found' END);
            RETURN NEXT;
            CONTINUE;
        END IF;

        IF idempotency_keys[i] IS NOT NULL THEN
            SELECT r.fingerprint, r.body INTO receipt
            FROM receipts r
            WHERE r.scope_id = caller.scope_id AND r.operation = 'submit_input' AND r.key = idempotency_keys[i];
            IF FOUND THEN
                verdict := CASE WHEN receipt.fingerprint = fingerprints[i] THEN 'replayed' ELSE 'conflict' END;
                body := CASE verdict WHEN 'replayed' THEN receipt.body END;
                RETURN NEXT;
                CONTINUE;
            END IF;
        END IF;

        IF caller.is_archived THEN
            verdict := 'archived';
            RETURN NEXT;
            CONTINUE;
        END IF;

        IF batch_models[i] IS NOT NULL THEN
            without_batches := model_without_batches(session_ids[i], batch_models[i]);
            IF without_batches IS NOT NULL THEN
                verdict := 'no_batches';
                body := convert_to(to_jsonb(without_batches)::text, 'UTF8');
                RETURN NEXT;
                CONTINUE;
            END IF;
        END IF;

        IF attachments[i] IS NOT NULL THEN
            SELECT f.refusal, f.detail, f.attachments INTO attached
            FROM find_attachments(session_ids[i], caller.files_of, attachments[i]) AS f;
            IF attached.refusal IS NOT NULL THEN
                verdict := attached.refusal;
                body := convert_to(attached.detail::text, 'UTF8');
                RETURN NEXT;
                CONTINUE;
            END IF;
        END IF;

        event_id := nextval('session_event_ids');
        input_bytes := octet_length(texts[i]);
        UPDATE runs r
        SET last_input = event_id, inputs_accepted = r.inputs_accepted + 1, updated_at = clock_timestamp(),
            unconsumed_bytes = r.unconsumed_bytes + input_bytes
        WHERE r.session_id = session_ids[i] AND r.state IN ('queued', 'running', 'waiting')
          AND (r.consumed_through = r.last_input
               OR (r.inputs_accepted - r.inputs_consumed < run_waiting_inputs
                   AND r.unconsumed_bytes + input_bytes <= run_waiting_bytes))
        RETURNING r.id INTO run_id;
        IF FOUND THEN
            outcome := 'steered';
        ELSIF EXISTS (
            SELECT FROM runs r WHERE r.session_id = session_ids[i] AND r.state IN ('queued', 'running', 'waiting')
        ) THEN
            -- The UPDATE passed over it.
            verdict := 'full';
            RETURN NEXT;
            CONTINUE;
        ELSE
            outcome := 'new_run';
            run_id := fresh_run_ids[i];
            PERFORM add_run(run_id, session_ids[i], caller.workspace_id, 'queued', event_id, event_id, 1, input_bytes,
                            caller.api_key_id, traceparents[i],
                            priority => CASE WHEN batch_models[i] IS NULL THEN 'normal' ELSE 'batch' END);
            PERFORM enqueue_run(session_ids[i], run_id);
        END IF;

        event_data := jsonb_build_object('input_id', input_ids[i], 'text', texts[i], 'actor', caller.actor);
        IF batch_models[i] IS NOT NULL THEN
            event_data := event_data || '{"priority": "batch"}';
        END IF;
        IF attachments[i] IS NOT NULL THEN
            event_data := event_data || jsonb_build_object('attachments', attached.attachments);
            PERFORM store_attachments(session_ids[i], attached.attachments);
        END IF;
        INSERT INTO session_events (id, session_id, run_id, workspace_id, type, data)
        VALUES (event_id, session_ids[i], run_id, caller.workspace_id, 'input.accepted', event_data);

        verdict := 'accepted';
        body := convert_to('{"outcome":"' || outcome || '","run_id":"' || run_id || '"}', 'UTF8');
        IF idempotency_keys[i] IS NOT NULL THEN
            INSERT INTO receipts (scope_id, operation, key, fingerprint, body)
            VALUES (caller.scope_id, 'submit_input', idempotency_keys[i], fingerprints[i], body);
        END IF;
        RETURN NEXT;
    END LOOP;
END;
$$;
