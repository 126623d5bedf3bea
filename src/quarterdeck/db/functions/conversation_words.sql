-- The search in conversations: see migrations/0023_models_and_search.sql.

-- Adds the words of a batch of earlier events. Stops early after `max_seconds`, so that it ends before the statement
-- timeout whatever the texts are. Returns how many events were read; 0: nothing is left, or another process is at it.
CREATE OR REPLACE FUNCTION backfill_conversation_words(batch integer, max_seconds double precision) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
-- pg_temp last: otherwise a temporary table with the name of ours would be used instead.
SET search_path = app, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    place record;
    event record;
    events_read integer := 0;
    stopped_early boolean := false;
BEGIN
    SELECT b.session_id, b.event_id, b.last_session_id INTO place
    FROM conversation_words_backfill b FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN 0;
    END IF;
    -- A loop, so that the content of other events is not read.
    FOR event IN
        SELECT e.session_id, e.id, e.type, e.data FROM session_events e
        WHERE (e.session_id, e.id) > (place.session_id, place.event_id) AND e.session_id <= place.last_session_id
        ORDER BY e.session_id, e.id LIMIT batch
    LOOP
        events_read := events_read + 1;
        IF event.type IN ('message', 'input.accepted') AND event.data->>'text' <> '' THEN
            -- The lock keeps the session from being deleted, so that no words are left behind.
            INSERT INTO conversation_words (session_id, event_id, words)
            SELECT event.session_id, event.id, words_of(s.workspace_id, event.data->>'text')
            FROM sessions s WHERE s.id = event.session_id AND NOT EXISTS (
                -- LIKE: only then the index session_events_of_input is used.
                SELECT FROM session_events d
                WHERE d.session_id = event.session_id AND d.data->>'input_id' = event.data->>'input_id'
                  AND d.type LIKE 'input.%' AND d.type = 'input.discarded'
            ) FOR KEY SHARE
            ON CONFLICT DO NOTHING;
        END IF;
        stopped_early := clock_timestamp() - statement_timestamp() >= make_interval(secs => max_seconds);
        EXIT WHEN stopped_early;
    END LOOP;
    IF events_read < batch AND NOT stopped_early THEN
        DELETE FROM conversation_words_backfill;
    ELSE
        UPDATE conversation_words_backfill SET session_id = event.session_id, event_id = event.id;
    END IF;
    RETURN events_read;
END;
$$;

-- NULL, which matches nothing, if there is no word in `search`. Long words are split as in texts.
CREATE OR REPLACE FUNCTION search_query(workspace_id uuid, search text) RETURNS tsquery
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE
    WHEN numnode(websearch_to_tsquery('pg_catalog.simple', short_words(search))) > 0
    THEN websearch_to_tsquery('pg_catalog.simple', short_words(search))
         && quote_literal(workspace_word(workspace_id))::tsquery
END;

-- The sessions of a workspace whose conversation matches, in no order. One row with NULL: more than `max_matches` texts
-- match.
CREATE OR REPLACE FUNCTION matching_sessions(workspace_id uuid, search text, max_matches integer) RETURNS SETOF uuid
LANGUAGE plpgsql STABLE
-- Only the index of words is left.
SET enable_seqscan = off
AS $$
DECLARE
    query tsquery := search_query(workspace_id, search);
    matches uuid[];
BEGIN
    SELECT array_agg(m.session_id) INTO matches FROM (
        SELECT w.session_id FROM conversation_words w WHERE w.words @@ query LIMIT max_matches + 1
    ) AS m;
    IF cardinality(matches) > max_matches THEN
        RETURN NEXT NULL;
    ELSE
        RETURN QUERY SELECT DISTINCT m FROM unnest(matches) AS m;
    END IF;
END;
$$;
