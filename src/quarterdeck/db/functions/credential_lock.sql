-- Held, shared, by every change made with a key or token; taken alone by whoever ends it.
CREATE OR REPLACE FUNCTION credential_lock(credential_id uuid) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN hashtextextended(credential_id::text, 5);
