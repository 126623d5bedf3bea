-- How long the data of a workspace is kept (decision 0081).

-- RetentionDays in core/retention.py. A kind of data that is not named follows the settings of the server.
ALTER TABLE workspaces ADD COLUMN retention jsonb NOT NULL DEFAULT '{}';

-- What the deleted runs of the session have used. It still counts against the limits of the session.
ALTER TABLE sessions
    ADD COLUMN expired_input_tokens bigint NOT NULL DEFAULT 0,
    ADD COLUMN expired_cached_tokens bigint NOT NULL DEFAULT 0,
    ADD COLUMN expired_output_tokens bigint NOT NULL DEFAULT 0,
    ADD COLUMN expired_cost_usd numeric;

-- Logs are found by their inputs (session_events_inputs). Those that a fork has copied are not in that index.
CREATE INDEX sessions_forked ON sessions (workspace_id, id) WHERE forked_from_session_id IS NOT NULL;
