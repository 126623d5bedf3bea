-- Every change holds this lock in shared mode for the key or token it uses. Revoking takes it exclusively.
CREATE OR REPLACE FUNCTION credential_lock(credential_id uuid) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN hashtextextended(credential_id::text, 5);
