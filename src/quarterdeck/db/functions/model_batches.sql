-- Runs with the priority `batch` ask their model by the batch interface of its provider. A run that has asked waits without a
-- job. Workers collect the requests for a moment, send those that can travel together as one batch, and look after it until
-- it has ended: runs/model_batches.py.
--
-- Nothing has to be kept in step: every worker calls take_model_batches() again and again.

-- The model that the next run of the session uses, if its provider has no batch interface. NULL: it has one.
CREATE OR REPLACE FUNCTION model_without_batches(of_session uuid, batch_models jsonb) RETURNS text
LANGUAGE sql STABLE
AS $$
    SELECT used.model
    FROM sessions s CROSS JOIN LATERAL values_of_agent(s.id) AS agent CROSS JOIN LATERAL (
        SELECT coalesce(CASE WHEN agent ? 'model' THEN agent->>'model' ELSE s.model END, batch_models->>'default') AS model
    ) AS used
    WHERE s.id = of_session AND NOT batch_models->'providers' ? split_part(used.model, ':', 1)
$$;

-- Makes batches of the collected requests, and returns batches that a worker shall look after now. They are the caller's
-- until `look_at`: later another worker takes them. All its writes name that time, so that it writes nothing afterwards.
CREATE OR REPLACE FUNCTION take_model_batches(
    collect_seconds double precision, max_requests integer, max_bytes bigint, lease_seconds double precision,
    max_batches integer
)
RETURNS SETOF model_batches
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off
SET enable_bitmapscan = off
SET jit = off
AS $$
DECLARE
    due record;
    new_id uuid;
BEGIN
    IF pg_try_advisory_xact_lock(batches_lock()) THEN
        FOR due IN
            SELECT q.model, q.batch_group FROM batch_requests q WHERE q.batch_id IS NULL AND q.body IS NOT NULL
            GROUP BY q.model, q.batch_group
            HAVING min(q.created_at) <= now() - make_interval(secs => collect_seconds) OR count(*) >= max_requests
        LOOP
            INSERT INTO model_batches (id, model) VALUES (gen_random_uuid(), due.model) RETURNING id INTO new_id;
            UPDATE batch_requests q SET batch_id = new_id
            FROM (
                SELECT c.run_id, sum(octet_length(c.body)) OVER oldest AS bytes, row_number() OVER oldest AS number
                FROM batch_requests c
                WHERE c.model = due.model AND c.batch_group = due.batch_group AND c.batch_id IS NULL AND c.body IS NOT NULL
                WINDOW oldest AS (ORDER BY c.created_at, c.run_id)
            ) AS chosen
            -- One request is always sent.
            WHERE q.run_id = chosen.run_id AND q.batch_id IS NULL
              AND (chosen.number = 1 OR chosen.number <= max_requests AND chosen.bytes <= max_bytes);
        END LOOP;
    END IF;
    RETURN QUERY
        UPDATE model_batches b SET look_at = now() + make_interval(secs => lease_seconds)
        WHERE b.id IN (
            SELECT d.id FROM model_batches d WHERE d.look_at <= now()
            ORDER BY d.look_at LIMIT max_batches FOR UPDATE SKIP LOCKED
        )
        RETURNING b.*;
END;
$$;
