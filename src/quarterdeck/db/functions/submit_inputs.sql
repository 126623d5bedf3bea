-- Submits a batch of inputs: for each one, in the order given, finds the credential, checks that it sees the session
-- and may write to it, returns the receipt of an earlier request, or steers the active run or starts one, with the job that will drive it.
--
-- Lock first, then look. All locks of the batch are taken in sorted order before anything is read; each statement
-- after that has a snapshot of its own (VOLATILE, READ COMMITTED) and so sees what the last holder committed.
-- Written as one data-modifying statement, the reads would keep the snapshot from before the wait and lose inputs.
--
-- Who may be a stranger to the session is looked at before that, so that nobody takes or waits for the lock of a session
-- that they do not see; and then like everybody else.
--
-- Every writer of a session takes session_lock() of it, first and in a statement of its own.

CREATE OR REPLACE FUNCTION session_lock(session_id uuid) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN hashtextextended(session_id::text, 0);

CREATE OR REPLACE FUNCTION submit_inputs(
    secret_hashes bytea[],
    session_tokens_presented boolean[],  -- or NULL: an API key that was not seen yet to have access to the session
    session_ids uuid[],
    workspace_ids uuid[],        -- the Service-Workspace header, or NULL
    texts text[],
    input_ids uuid[],
    fresh_run_ids uuid[],        -- the id of the run, if the input starts one
    idempotency_keys text[],     -- or NULL
    fingerprints bytea[]
)
RETURNS TABLE (verdict text, body bytea, api_key_id uuid)
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    lock_key bigint;
    -- Whose credential it is. Looked for once where one credential sends several inputs in a row, as most batches are.
    secret_hash bytea;
    key_id uuid;
    caller_workspace_id uuid;
    only_session uuid;
    caller_scope_id uuid;
    may boolean;
    receipt record;
    event_id bigint;
    run_id uuid;
    outcome text;
    is_archived boolean;
BEGIN
    IF array_position(session_tokens_presented, NULL) IS NOT NULL THEN
        FOR i IN 1 .. cardinality(session_ids) LOOP
            IF session_tokens_presented[i] IS NULL THEN
                -- Not as a join, for which a small table of keys would be read by another index than that of hashes.
                PERFORM FROM sessions s
                WHERE s.id = session_ids[i] AND s.workspace_id = coalesce(workspace_ids[i], s.workspace_id)
                  AND s.workspace_id = (
                    SELECT k.workspace_id FROM api_keys k
                    WHERE k.secret_hash = secret_hashes[i] AND k.revoked_at IS NULL
                      AND (k.expires_at IS NULL OR k.expires_at > clock_timestamp())
                      AND 'session.manage' = ANY (k.permissions));
                IF NOT FOUND THEN
                    -- Without a session a stranger is refused below, as one who does not see it.
                    session_ids[i] := NULL;
                END IF;
            END IF;
        END LOOP;
    END IF;

    FOR lock_key IN
        SELECT session_lock(s) FROM unnest(session_ids) AS s
        UNION
        SELECT hashtextextended(encode(h, 'hex') || k, 1)
        FROM unnest(secret_hashes, idempotency_keys) AS item(h, k) WHERE k IS NOT NULL
        ORDER BY 1
    LOOP
        PERFORM pg_advisory_xact_lock(lock_key);
    END LOOP;

    FOR i IN 1 .. cardinality(session_ids) LOOP
        body := NULL;
        api_key_id := NULL;

        IF secret_hash IS DISTINCT FROM secret_hashes[i] THEN
            secret_hash := secret_hashes[i];
            IF session_tokens_presented[i] THEN
                SELECT k.id, s.workspace_id, t.session_id, t.session_id, true
                INTO key_id, caller_workspace_id, only_session, caller_scope_id, may
                FROM session_tokens t
                JOIN sessions s ON s.id = t.session_id
                JOIN api_keys k ON k.id = t.api_key_id
                WHERE t.secret_hash = secret_hashes[i] AND t.revoked_at IS NULL
                  AND t.expires_at > clock_timestamp() AND k.revoked_at IS NULL;
            ELSE
                SELECT k.id, k.workspace_id, NULL, k.lineage_id, 'session.manage' = ANY (k.permissions)
                INTO key_id, caller_workspace_id, only_session, caller_scope_id, may
                FROM api_keys k
                WHERE k.secret_hash = secret_hashes[i] AND k.revoked_at IS NULL
                  AND (k.expires_at IS NULL OR k.expires_at > clock_timestamp());
            END IF;
        END IF;
        IF key_id IS NULL THEN
            verdict := 'unauthorized';
            RETURN NEXT;
            CONTINUE;
        END IF;
        IF only_session IS NULL THEN
            api_key_id := key_id;
        END IF;

        SELECT s.archived_at IS NOT NULL INTO is_archived
        FROM sessions s
        WHERE s.id = session_ids[i] AND s.workspace_id = caller_workspace_id
          AND s.id = coalesce(only_session, s.id)
          AND s.workspace_id = coalesce(workspace_ids[i], s.workspace_id);
        IF NOT FOUND THEN
            verdict := 'not_found';
            RETURN NEXT;
            CONTINUE;
        END IF;

        IF NOT may THEN
            verdict := 'forbidden';
            RETURN NEXT;
            CONTINUE;
        END IF;

        IF idempotency_keys[i] IS NOT NULL THEN
            SELECT r.fingerprint, r.body INTO receipt
            FROM receipts r
            WHERE r.scope_id = caller_scope_id AND r.operation = 'submit_input' AND r.key = idempotency_keys[i];
            IF FOUND THEN
                verdict := CASE WHEN receipt.fingerprint = fingerprints[i] THEN 'replayed' ELSE 'conflict' END;
                body := CASE verdict WHEN 'replayed' THEN receipt.body END;
                RETURN NEXT;
                CONTINUE;
            END IF;
        END IF;

        IF is_archived THEN
            verdict := 'archived';
            RETURN NEXT;
            CONTINUE;
        END IF;

        event_id := nextval('session_event_ids');
        UPDATE runs r SET last_input = event_id, inputs_accepted = r.inputs_accepted + 1, updated_at = clock_timestamp()
        WHERE r.session_id = session_ids[i] AND r.state IN ('queued', 'running')
        RETURNING r.id INTO run_id;
        IF FOUND THEN
            outcome := 'steered';
        ELSE
            outcome := 'new_run';
            run_id := fresh_run_ids[i];
            -- Just before this input: from 0 the run would take up the session's whole history again.
            INSERT INTO runs (id, session_id, workspace_id, state, last_input, consumed_through)
            VALUES (run_id, session_ids[i], caller_workspace_id, 'queued', event_id, event_id - 1);
            PERFORM enqueue_run(session_ids[i], run_id);
        END IF;

        INSERT INTO session_events (id, session_id, run_id, workspace_id, type, data)
        VALUES (event_id, session_ids[i], run_id, caller_workspace_id, 'input.accepted',
                jsonb_build_object('input_id', input_ids[i], 'text', texts[i]));

        verdict := 'accepted';
        -- Not by format(), which looks up how to write each of its arguments.
        body := convert_to('{"outcome":"' || outcome || '","run_id":"' || run_id || '"}', 'UTF8');
        IF idempotency_keys[i] IS NOT NULL THEN
            INSERT INTO receipts (scope_id, operation, key, fingerprint, body)
            VALUES (caller_scope_id, 'submit_input', idempotency_keys[i], fingerprints[i], body);
        END IF;
        RETURN NEXT;
    END LOOP;
END;
$$;
