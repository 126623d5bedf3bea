-- Deletes expired parts of sessions: events, actions and runs. Their oldest part is deleted, up to the first run that is
-- kept, so what is left is a conversation without its beginning.

CREATE OR REPLACE FUNCTION has_ended_before(run runs, moment timestamptz) RETURNS boolean
LANGUAGE sql IMMUTABLE
AS $$
    SELECT run.state IN ('succeeded', 'failed', 'cancelled') AND coalesce(run.finished_at, run.updated_at) < moment
$$;

-- False: somebody uses the session, or it was deleted. A fork reads the log without the lock of the session, but keeps the
-- session from being deleted, which conflicts with the lock of the row.
CREATE OR REPLACE FUNCTION lock_to_expire(target_session_id uuid) RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
    IF NOT pg_try_advisory_xact_lock(session_lock(target_session_id)) THEN
        RETURN false;
    END IF;
    PERFORM FROM sessions s WHERE s.id = target_session_id FOR UPDATE SKIP LOCKED;
    RETURN FOUND;
END;
$$;

-- One session, which the caller has locked. Deletes up to `max_rows` events; then, with further calls, as many actions, and
-- as many runs. `is_complete`: nothing that has expired is left.
CREATE OR REPLACE FUNCTION expire_log(
    target_session_id uuid,
    events_before timestamptz,
    runs_before timestamptz,     -- NULL: runs are kept
    max_rows integer
)
RETURNS TABLE (events bigint, runs bigint, is_complete boolean)
LANGUAGE plpgsql VOLATILE
-- As in submit_inputs(): no plans from the time when the tables were nearly empty.
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
#variable_conflict use_column
DECLARE
    -- The last event of a run is stored a little earlier or later than the end of the run.
    margin interval := '1 minute';
    first_kept_event bigint;
    last_deleted_event bigint;
    deleted_actions integer;
    oldest_event_at timestamptz;
BEGIN
    runs := 0;
    -- NULL: no run is kept.
    SELECT min(r.first_input) INTO first_kept_event FROM runs r
    WHERE r.session_id = target_session_id AND NOT has_ended_before(r, events_before - margin);

    WITH gone AS (
        DELETE FROM session_events WHERE ctid = ANY (ARRAY(
            SELECT e.ctid FROM session_events e
            WHERE e.session_id = target_session_id AND e.id < coalesce(first_kept_event, 9223372036854775807)
              AND e.created_at < events_before
            ORDER BY e.id LIMIT max_rows
        ))
        RETURNING id
    )
    SELECT count(*), max(gone.id) INTO events, last_deleted_event FROM gone;
    IF events > 0 THEN
        DELETE FROM conversation_words w WHERE w.session_id = target_session_id AND w.event_id <= last_deleted_event;
        -- It quotes a deleted input.
        UPDATE sessions s SET title = NULL, title_event_id = NULL
        WHERE s.id = target_session_id AND s.title_event_id <= last_deleted_event;
    END IF;
    SELECT e.created_at INTO oldest_event_at FROM session_events e
    WHERE e.session_id = target_session_id ORDER BY e.id LIMIT 1;
    is_complete := events < max_rows;
    IF is_complete THEN
        -- An approval that is remembered for the session still applies. An action that events may refer to stays with them.
        DELETE FROM actions WHERE ctid = ANY (ARRAY(
            SELECT a.ctid FROM actions a
            WHERE a.session_id = target_session_id AND a.state <> 'open'
              AND a.resolution->>'remember' IS DISTINCT FROM 'session'
              AND a.resolved_at < coalesce(oldest_event_at - margin, 'infinity')
              AND NOT EXISTS (
                  SELECT FROM runs r WHERE r.id = a.run_id AND NOT has_ended_before(r, events_before - margin)
              )
            LIMIT max_rows
        ));
        GET DIAGNOSTICS deleted_actions = ROW_COUNT;
        is_complete := deleted_actions < max_rows;
    END IF;
    IF NOT is_complete THEN
        RETURN NEXT;
        RETURN;
    END IF;

    IF oldest_event_at IS NULL THEN
        DELETE FROM session_attachments a WHERE a.session_id = target_session_id;
    END IF;
    -- A run that ended before the oldest event has no events. least() ignores NULL.
    WITH gone AS (
        DELETE FROM runs WHERE ctid = ANY (ARRAY(
            SELECT r.ctid FROM runs r
            WHERE r.session_id = target_session_id AND runs_before IS NOT NULL
              AND has_ended_before(r, least(runs_before, oldest_event_at - margin))
            LIMIT max_rows
        ))
        RETURNING input_tokens, cached_tokens, cache_write_tokens, output_tokens, cost_usd
    ), used AS (
        SELECT count(*) AS runs, sum(input_tokens) AS input_tokens, sum(cached_tokens) AS cached_tokens,
               sum(cache_write_tokens) AS cache_write_tokens,
               sum(output_tokens) AS output_tokens, sum(cost_usd) AS cost_usd
        FROM gone
    ), counted AS (
        UPDATE sessions s
        SET expired_input_tokens = s.expired_input_tokens + used.input_tokens,
            expired_cached_tokens = s.expired_cached_tokens + used.cached_tokens,
            expired_cache_write_tokens = s.expired_cache_write_tokens + used.cache_write_tokens,
            expired_output_tokens = s.expired_output_tokens + used.output_tokens,
            expired_cost_usd = coalesce(s.expired_cost_usd + used.cost_usd, s.expired_cost_usd, used.cost_usd)
        FROM used WHERE s.id = target_session_id AND used.runs > 0
    )
    SELECT used.runs INTO runs FROM used;
    is_complete := runs < max_rows;
    RETURN NEXT;
END;
$$;

-- Several sessions, until `max_rows` are deleted or `max_seconds` have passed. Sessions in use are skipped. `sessions_done`:
-- how many of them, from the first on, need no further call.
CREATE OR REPLACE FUNCTION expire_logs(
    session_ids uuid[], events_before timestamptz, runs_before timestamptz, max_rows integer, max_seconds double precision
)
RETURNS TABLE (events bigint, runs bigint, sessions_done integer)
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    -- Events and actions hold up to a megabyte each. The time is checked after each batch.
    batch integer := 100;
    target_session_id uuid;
    expired record;
BEGIN
    events := 0;
    runs := 0;
    sessions_done := 0;
    <<all_sessions>>
    FOREACH target_session_id IN ARRAY session_ids LOOP
        IF lock_to_expire(target_session_id) THEN
            LOOP
                SELECT e.events, e.runs, e.is_complete INTO expired
                FROM expire_log(target_session_id, events_before, runs_before, batch) AS e;
                events := events + expired.events;
                runs := runs + expired.runs;
                EXIT WHEN expired.is_complete;
                EXIT all_sessions WHEN events + runs >= max_rows
                    OR clock_timestamp() - statement_timestamp() >= make_interval(secs => max_seconds);
            END LOOP;
        END IF;
        sessions_done := sessions_done + 1;
        EXIT WHEN events + runs >= max_rows
            OR clock_timestamp() - statement_timestamp() >= make_interval(secs => max_seconds);
    END LOOP;
    RETURN NEXT;
END;
$$;
