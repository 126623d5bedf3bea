-- Deletes expired entries of the audit log: the only way to delete entries. SECURITY DEFINER, because the calling role may
-- neither change nor delete them, nor shorten the retention. A workspace can keep its entries longer than the server
-- does, not shorter.

-- The lowest id that a record of this time can have: ids begin with the milliseconds of their creation.
CREATE OR REPLACE FUNCTION lowest_id_at(moment timestamptz) RETURNS uuid
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN rpad(lpad(to_hex(floor(extract(epoch FROM moment) * 1000)::bigint), 12, '0'), 32, '0')::uuid;

-- One batch of the entries after `after_id`, oldest first. `entries_read` is less than `batch` at the end of the log.
-- now(), because the volatile clock_timestamp() would prevent an index scan.
CREATE OR REPLACE FUNCTION expire_audit_entries(batch integer, after_id uuid)
RETURNS TABLE (deleted bigint, entries_read bigint, last_id uuid)
LANGUAGE sql VOLATILE SECURITY DEFINER
-- pg_temp last: otherwise a temporary table with the name of ours would be read instead.
SET search_path = app, pg_temp
BEGIN ATOMIC
    WITH old AS (
        SELECT a.id, greatest(r.keep_days, (w.retention->>'audit_days')::integer) AS days
        FROM audit_retention r CROSS JOIN audit_events a JOIN workspaces w ON w.id = a.workspace_id
        WHERE a.id > after_id AND a.id < (
            SELECT lowest_id_at(now() - make_interval(days => keep_days)) FROM audit_retention
        )
        ORDER BY a.id LIMIT batch
    ), gone AS (
        DELETE FROM audit_events WHERE id = ANY (ARRAY(
            SELECT id FROM audit_events
            WHERE id = ANY (ARRAY(SELECT id FROM old WHERE id < lowest_id_at(now() - make_interval(days => days))))
            FOR UPDATE SKIP LOCKED
        ))
        RETURNING id
    )
    SELECT (SELECT count(*) FROM gone), count(*), (SELECT id FROM old ORDER BY id DESC LIMIT 1) FROM old;
END;
