-- The search in conversations (decision 0051). Its functions are in functions/conversation_words.sql.

-- The words of messages and of consumed inputs, a row for each. A table of its own: with an index on session_events, every
-- submitted input would pay for it.
CREATE TABLE conversation_words (
    session_id uuid NOT NULL,
    -- Of the event with the text: message or input.accepted.
    event_id bigint NOT NULL,
    words tsvector NOT NULL,
    PRIMARY KEY (session_id, event_id)
);
-- The pending list is read by every search and merged by whoever fills it: a quarter of the usual size keeps both short.
CREATE INDEX conversation_words_words ON conversation_words USING gin (words) WITH (gin_pending_list_limit = 1024);

-- Runs for the events that workers write. SECURITY DEFINER: the role of API and workers needs no privilege to write words.
CREATE FUNCTION add_conversation_words() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER
-- pg_temp last: otherwise a temporary table with the name of ours would be used instead.
SET search_path = app, pg_temp
-- As in submit_inputs(): no plans from the time when the tables were nearly empty.
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
BEGIN
    -- A fork copies events whose words are those of its origin.
    IF NEW.type NOT IN ('message', 'input.consumed') OR current_setting('app.copies_events', true) = 'on' THEN
        RETURN NULL;
    END IF;
    INSERT INTO conversation_words (session_id, event_id, words)
    SELECT e.session_id, e.id, words_of(s.workspace_id, e.data->>'text')
    FROM session_events e JOIN sessions s ON s.id = e.session_id
    WHERE e.session_id = NEW.session_id
      AND e.id = CASE NEW.type WHEN 'message' THEN NEW.id ELSE NEW.input_event_id END
      AND e.data->>'text' <> ''
    ON CONFLICT DO NOTHING;
    RETURN NULL;
END;
$$;
-- Only input.accepted has a workspace. The condition is read anew for each INSERT, so it is as short as possible: a
-- submitted input pays for it.
CREATE TRIGGER session_events_words AFTER INSERT ON session_events
FOR EACH ROW WHEN (NEW.workspace_id IS NULL) EXECUTE FUNCTION add_conversation_words();
