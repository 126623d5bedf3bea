-- A key or token that has ended stays ended, also for a process that sends statements of its own: a revocation cannot be
-- removed or moved, an expiry cannot be removed or postponed, and a key is replaced once. No statement of this release or
-- the previous one does so. The owner of the tables can disable these triggers; the role of API and workers cannot.
CREATE FUNCTION refuse_change() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    RAISE EXCEPTION 'a row of % that has ended, or ends sooner, cannot be changed back', TG_TABLE_NAME
        USING ERRCODE = 'insufficient_privilege';
END;
$$;

CREATE TRIGGER api_keys_stay_ended BEFORE UPDATE OF revoked_at, expires_at, replaced_by ON api_keys
FOR EACH ROW WHEN (
    (OLD.revoked_at IS NOT NULL AND NEW.revoked_at IS DISTINCT FROM OLD.revoked_at)
    OR (OLD.expires_at IS NOT NULL AND (NEW.expires_at IS NULL OR NEW.expires_at > OLD.expires_at))
    OR (OLD.replaced_by IS NOT NULL AND NEW.replaced_by IS DISTINCT FROM OLD.replaced_by)
) EXECUTE FUNCTION refuse_change();

CREATE TRIGGER session_tokens_stay_ended BEFORE UPDATE OF revoked_at, expires_at ON session_tokens
FOR EACH ROW WHEN (
    (OLD.revoked_at IS NOT NULL AND NEW.revoked_at IS DISTINCT FROM OLD.revoked_at) OR NEW.expires_at > OLD.expires_at
) EXECUTE FUNCTION refuse_change();
