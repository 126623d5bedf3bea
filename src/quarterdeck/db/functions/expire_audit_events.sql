-- The one way in which entries of the audit log go. With the rights of its owner: the role that calls it can neither
-- change nor delete an entry, and cannot say how old is old. It removes a batch of the oldest and says how many.
--
-- The cutoff is the lowest id of its millisecond, by the database's clock: one for all processes. now(), because no
-- index is searched for what clock_timestamp() says.
CREATE OR REPLACE FUNCTION expire_audit_events(batch integer) RETURNS bigint
LANGUAGE sql VOLATILE SECURITY DEFINER
-- Temporary tables last, or one by the name of ours would be read in its place.
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
