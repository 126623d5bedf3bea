-- The caller as the session's log names it: core/actors.py, Caller. `session_token_id` is NULL if the key itself was used.
-- No row: the token was deleted with its session just now.
--
-- RETURNS TABLE lets PostgreSQL inline the function into the calling statement.

CREATE OR REPLACE FUNCTION caller_of(calling_api_key_id uuid, calling_session_token_id uuid) RETURNS TABLE (caller jsonb)
LANGUAGE sql STABLE
AS $$
    SELECT jsonb_build_object(
        'type', CASE WHEN t.id IS NULL THEN 'api_key' ELSE 'session_token' END,
        'id', coalesce(t.id, k.id),
        'label', CASE WHEN t.id IS NULL THEN k.label ELSE t.label END,
        'user_id', u.id,
        'display_name', u.display_name
    )
    FROM api_keys k
    JOIN users u ON u.id = k.created_by
    LEFT JOIN session_tokens t ON t.id = calling_session_token_id
    WHERE k.id = calling_api_key_id AND (calling_session_token_id IS NULL OR t.id IS NOT NULL)
$$;

-- A user as the API shows it: core/actors.py, ActorBody.
CREATE OR REPLACE FUNCTION actor(shown users) RETURNS json
LANGUAGE sql STABLE
AS $$
    SELECT json_build_object('user_id', shown.id, 'display_name', shown.display_name, 'primary_email', shown.email)
$$;
