-- Deletes a batch of the oldest expired entries of the audit log and returns their number. The only way to delete
-- entries: SECURITY DEFINER, because the calling role may neither change nor delete them, nor set the retention.
--
-- The cutoff is the lowest id of its millisecond, by the database's clock. now(), because the volatile clock_timestamp()
-- would prevent an index scan.
CREATE OR REPLACE FUNCTION expire_audit_events(batch integer) RETURNS bigint
LANGUAGE sql VOLATILE SECURITY DEFINER
-- pg_temp last: otherwise a temporary table with the name of ours would be read instead.
SET search_path = app, pg_temp
BEGIN ATOMIC
    WITH gone AS (
        DELETE FROM audit_events WHERE id IN (
            SELECT id FROM audit_events
            WHERE id < (
                SELECT rpad(lpad(to_hex(
                    (extract(epoch FROM now() - make_interval(days => keep_days)) * 1000)::bigint
                ), 12, '0'), 32, '0')::uuid
                FROM audit_retention
            )
            ORDER BY id LIMIT batch
            FOR UPDATE SKIP LOCKED
        )
        RETURNING id
    )
    SELECT count(*) FROM gone;
END;
