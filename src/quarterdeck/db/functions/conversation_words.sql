-- The search in conversations (decision 0051). The table is in schema/11_search.sql.

-- The workspace is one of the words. A search asks for it too, and GIN intersects from the rarest word on: a word that is
-- common elsewhere costs nothing, and PostgreSQL needs no extension. No text yields a word with a blank in it.
CREATE OR REPLACE FUNCTION workspace_word(workspace_id uuid) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN 'workspace ' || workspace_id::text;

-- The text without long words and without '<'. The time that PostgreSQL's parser needs is quadratic in the length of a text
-- without blanks ('a_a_a_…'), and of one with many '<!--': 50,000 characters took half a minute.
CREATE OR REPLACE FUNCTION short_words(content text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN regexp_replace(translate(content, '<', ' '), '(\S{100})', '\1 ', 'g');

-- Of the beginning of the text: a tsvector holds a megabyte, and parts of words are words as well. `simple` knows no
-- language: no stop words, no stems.
CREATE OR REPLACE FUNCTION words_of(workspace_id uuid, content text) RETURNS tsvector
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN to_tsvector('pg_catalog.simple', short_words(left(content, 50000)))
       || array_to_tsvector(ARRAY[workspace_word(workspace_id)]);

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
