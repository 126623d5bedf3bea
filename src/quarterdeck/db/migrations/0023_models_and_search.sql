-- Options for the model of a session, and a search in conversations (decision 0051).

ALTER TABLE sessions ADD COLUMN settings jsonb NOT NULL DEFAULT '{}';

-- The words of messages and of consumed inputs, a row for each. A table of its own: an index on session_events would have
-- to be built while nobody can write, and every submitted input would pay for it.
CREATE TABLE conversation_words (
    session_id uuid NOT NULL,
    -- Of the event with the text: message or input.accepted.
    event_id bigint NOT NULL,
    words tsvector NOT NULL,
    PRIMARY KEY (session_id, event_id)
);
-- The pending list is read by every search and merged by whoever fills it: a quarter of the usual size keeps both short.
CREATE INDEX conversation_words_words ON conversation_words USING gin (words) WITH (gin_pending_list_limit = 1024);

-- The workspace is one of the words. A search asks for it too, and GIN intersects from the rarest word on: a word that is
-- common elsewhere costs nothing, and PostgreSQL needs no extension. No text yields a word with a blank in it.
CREATE FUNCTION workspace_word(workspace_id uuid) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN 'workspace ' || workspace_id::text;

-- The text without long words and without '<'. The time that PostgreSQL's parser needs is quadratic in the length of a text
-- without blanks ('a_a_a_…'), and of one with many '<!--': 50,000 characters took half a minute.
CREATE FUNCTION short_words(content text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN regexp_replace(translate(content, '<', ' '), '(\S{100})', '\1 ', 'g');

-- Of the beginning of the text: a tsvector holds a megabyte, and parts of words are words as well. `simple` knows no
-- language: no stop words, no stems.
CREATE FUNCTION words_of(workspace_id uuid, content text) RETURNS tsvector
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN to_tsvector('pg_catalog.simple', short_words(left(content, 50000)))
       || array_to_tsvector(ARRAY[workspace_word(workspace_id)]);

-- Runs for the events that workers write. SECURITY DEFINER: the role of API and workers needs no privilege to write words,
-- also while a process of the previous release runs on this schema.
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

-- How far the words of earlier conversations have been added: up to this event, of the sessions up to the last one.
-- Workers go on with it in the background (functions/conversation_words.sql) and remove the row at the end.
CREATE TABLE conversation_words_backfill (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    session_id uuid NOT NULL,
    event_id bigint NOT NULL,
    last_session_id uuid NOT NULL
);
INSERT INTO conversation_words_backfill (session_id, event_id, last_session_id)
SELECT '00000000-0000-0000-0000-000000000000', 0, id FROM sessions ORDER BY id DESC LIMIT 1;
