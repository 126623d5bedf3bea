-- Titles that sessions get from their first input.

-- The first line of a text that has visible characters, cut after a word. NULL: there is none. A title is a `Line`
-- (core/text_types.py): no controls, line separators or bidirectional formatting characters.
CREATE OR REPLACE FUNCTION title_of(content text) RETURNS text
LANGUAGE plpgsql IMMUTABLE
AS $$
DECLARE
    max_characters integer := 80;
    line text;
BEGIN
    FOR line IN SELECT regexp_split_to_table(left(content, 2000), '[\u000a-\u000d\u0085\u2028\u2029]') LOOP
        line := btrim(regexp_replace(line, '[\u0001-\u0020\u007f-\u00a0\u202a-\u202e\u2066-\u2069]+', ' ', 'g'));
        CONTINUE WHEN line = '';
        IF char_length(line) <= max_characters THEN
            RETURN line;
        END IF;
        -- Up to the last space. A text without spaces is cut anywhere.
        RETURN left(regexp_replace(left(line, max_characters), ' [^ ]*$', ''), max_characters - 1) || '…';
    END LOOP;
    RETURN NULL;
END;
$$;

-- Part of begin_attempt(), which holds the lock of the session. Only the first run of a session that begins gives it a
-- title, so one that a person removes does not come back. The revision stays: nobody has changed the session.
CREATE OR REPLACE FUNCTION give_title(of_session uuid, of_run uuid, input_event_id bigint, content text) RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    new_title text;
BEGIN
    PERFORM FROM sessions s WHERE s.id = of_session AND s.title IS NULL;
    IF NOT FOUND OR EXISTS (
        SELECT FROM runs r WHERE r.session_id = of_session AND r.id <> of_run AND r.started_at IS NOT NULL
    ) THEN
        RETURN;
    END IF;
    new_title := title_of(content);
    IF new_title IS NOT NULL THEN
        UPDATE sessions SET title = new_title, title_event_id = input_event_id WHERE id = of_session;
    END IF;
END;
$$;
