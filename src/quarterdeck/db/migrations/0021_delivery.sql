-- Runs that wait for the end of the active one, and runs that repeat another.

-- Not validated: every row satisfies the old constraint, which was stricter. Validating would read the whole table.
ALTER TABLE runs DROP CONSTRAINT runs_state_check;
ALTER TABLE runs ADD CONSTRAINT runs_state_check
    CHECK (state IN ('pending', 'queued', 'running', 'succeeded', 'failed', 'cancelled')) NOT VALID;

ALTER TABLE runs
    -- Earlier runs whose inputs this one continues with. The ranges of inputs of a session's runs overlap, so an input
    -- belongs to a run only if its event names the run or one of these. NULL: the run ended before this migration.
    ADD COLUMN takes_over uuid[],
    -- No event of the run, and of the inputs that it took over, is older. NULL: unknown.
    ADD COLUMN first_input bigint,
    -- The run whose inputs this one repeats.
    ADD COLUMN retried_from uuid,
    -- The model no longer sees the turns of this run after its last stored answer.
    ADD COLUMN IF NOT EXISTS unanswered_left_out boolean NOT NULL DEFAULT false;

UPDATE runs r SET takes_over = ARRAY(
    SELECT DISTINCT e.run_id FROM session_events e
    WHERE e.session_id = r.session_id AND e.id > r.consumed_through AND e.id <= r.last_input
      AND e.type = 'input.accepted' AND e.run_id <> r.id
)
WHERE r.state IN ('queued', 'running');

-- To find the next run of a session, and to count those of a workspace. See 0008_activity.sql for `attempt >= 0`.
CREATE INDEX runs_pending ON runs (session_id) WHERE state = 'pending';
CREATE INDEX runs_pending_created ON runs (workspace_id, id) WHERE attempt >= 0 AND state = 'pending';

-- For workers of the previous release: when a run fails, they add its successor with the same range and do not say whose
-- inputs it takes over. Without this the successor would not find them. To be dropped with the release after this one.
CREATE FUNCTION find_predecessor() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    SELECT r.takes_over || r.id INTO NEW.takes_over FROM runs r
    WHERE r.session_id = NEW.session_id AND r.state = 'failed'
      AND r.last_input = NEW.last_input AND r.consumed_through = NEW.consumed_through
    ORDER BY r.finished_at DESC LIMIT 1;
    NEW.takes_over := coalesce(NEW.takes_over, '{}');
    RETURN NEW;
END;
$$;
CREATE TRIGGER runs_predecessor BEFORE INSERT ON runs
FOR EACH ROW WHEN (NEW.takes_over IS NULL) EXECUTE FUNCTION find_predecessor();
