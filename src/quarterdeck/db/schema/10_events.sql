-- The log of a session. Ids are drawn one at a time while the lock of the session is held, so within a session they are
-- in commit order and a reader resumes by `id > last`.
CREATE SEQUENCE session_event_ids AS bigint CACHE 1;
CREATE TABLE session_events (
    id bigint NOT NULL DEFAULT nextval('session_event_ids'),
    -- No foreign key: see deleted_sessions.
    session_id uuid NOT NULL,
    run_id uuid,
    -- Only of input.accepted, for the index below.
    workspace_id uuid,
    type text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    data jsonb NOT NULL,
    -- A model's own record of its answer, sent back to it unchanged. Not shown.
    record jsonb,
    -- Of input.consumed: the event input.accepted in the same session, which has the text.
    input_event_id bigint,
    PRIMARY KEY (session_id, id)
);
ALTER SEQUENCE session_event_ids OWNED BY session_events.id;

CREATE INDEX session_events_inputs ON session_events (workspace_id, created_at) WHERE workspace_id IS NOT NULL;
-- All events of an input. The condition is written so that only statements which say it too use this index: one that
-- reads the log in its order must use the primary key.
CREATE INDEX session_events_of_input ON session_events (session_id, (data->>'input_id')) WHERE type LIKE 'input.%';
