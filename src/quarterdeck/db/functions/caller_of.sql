-- The caller as the session's log names it: core/actors.py, Caller. Of the three ids one is used: that of the session
-- token, or else that of the key, or else that of the device. No row: the token was deleted with its session just now.
--
-- RETURNS TABLE lets PostgreSQL inline the function into the calling statement.

CREATE OR REPLACE FUNCTION caller_of(
    calling_api_key_id uuid, calling_session_token_id uuid, calling_device_id uuid, calling_user_id uuid
) RETURNS TABLE (caller jsonb)
LANGUAGE sql STABLE
AS $$
    SELECT jsonb_build_object(
        'type', CASE
            WHEN calling_session_token_id IS NOT NULL THEN 'session_token'
            WHEN calling_device_id IS NOT NULL THEN 'device'
            ELSE 'api_key'
        END,
        'id', coalesce(t.id, d.id, k.id),
        'label', CASE
            WHEN calling_session_token_id IS NOT NULL THEN t.label
            WHEN calling_device_id IS NOT NULL THEN d.name
            ELSE k.label
        END,
        'user_id', u.id,
        'display_name', u.display_name
    )
    FROM users u
    LEFT JOIN api_keys k ON k.id = calling_api_key_id
    LEFT JOIN session_tokens t ON t.id = calling_session_token_id
    LEFT JOIN devices d ON d.id = calling_device_id
    WHERE u.id = calling_user_id AND (calling_session_token_id IS NULL OR t.id IS NOT NULL)
$$;

-- A user as the API shows it: core/actors.py, ActorBody.
CREATE OR REPLACE FUNCTION actor(shown users) RETURNS json
LANGUAGE sql STABLE
AS $$
    SELECT json_build_object('user_id', shown.id, 'display_name', shown.display_name, 'primary_email', shown.email)
$$;
