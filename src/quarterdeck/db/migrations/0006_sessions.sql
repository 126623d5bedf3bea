-- Deleting a session takes its row, and with it everybody's sight of it, at once. Its log may be millions of entries
-- long: they go in batches afterwards, which a foreign key with its cascade would not allow.
ALTER TABLE session_events DROP CONSTRAINT session_events_session_id_fkey;

-- Sessions whose logs are still to be removed.
CREATE TABLE deleted_sessions (
    session_id uuid PRIMARY KEY,
    deleted_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX deleted_sessions_oldest ON deleted_sessions (deleted_at);

CREATE INDEX sessions_active ON sessions (workspace_id, id) WHERE archived_at IS NULL;
CREATE INDEX sessions_archived ON sessions (workspace_id, id) WHERE archived_at IS NOT NULL;
