-- Repairing a conversation: runs that the model no longer sees, inputs that are discarded by their id, forks.

-- The model no longer sees what the run consumed after its last stored answer: the provider refused the request, or the
-- run was retried. Another migration of this release may have added the column.
ALTER TABLE runs ADD COLUMN IF NOT EXISTS unanswered_left_out boolean NOT NULL DEFAULT false;

-- All events of an input. The condition is written so that only statements which say it too use this index: one that
-- reads the log in its order must use the primary key.
CREATE INDEX session_events_of_input ON session_events (session_id, (data->>'input_id')) WHERE type LIKE 'input.%';

-- Where a session was forked from. No foreign key: the origin may be deleted, this stays.
ALTER TABLE sessions
    ADD COLUMN forked_from_session_id uuid,
    -- The first event of the origin that was not copied. NULL: the whole log was.
    ADD COLUMN forked_from_event_id bigint;
