-- What is counted for a workspace's charts, by the time it came in.

-- `attempt >= 0` holds for every run. It is there so that only statements which say it too use these indexes: one that
-- looks for a session's active run, or for the next parked one, could walk a whole workspace by them.
CREATE INDEX runs_created ON runs (workspace_id, id) WHERE attempt >= 0;
CREATE INDEX runs_active ON runs (workspace_id, id) WHERE attempt >= 0 AND state IN ('queued', 'running');

-- Of input.accepted only: all other entries neither have it nor cost an entry of the index.
ALTER TABLE session_events ADD COLUMN workspace_id uuid;
-- As far back as anybody can ask.
UPDATE session_events e SET workspace_id = s.workspace_id
FROM sessions s WHERE s.id = e.session_id AND e.type = 'input.accepted' AND e.created_at > now() - interval '7 days';
CREATE INDEX session_events_inputs ON session_events (workspace_id, created_at) WHERE workspace_id IS NOT NULL;
