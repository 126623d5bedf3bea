-- What a run needs to be driven: what the session asks of its agent, how far the run is, and the place it takes.

ALTER TABLE sessions ADD COLUMN model text, ADD COLUMN instructions text;

-- A NULL version follows the latest.
CREATE TABLE session_skills (
    session_id uuid NOT NULL REFERENCES sessions ON DELETE CASCADE,
    position integer NOT NULL,
    skill_id uuid NOT NULL REFERENCES skills,
    version integer,
    PRIMARY KEY (session_id, position),
    UNIQUE (session_id, skill_id),
    FOREIGN KEY (skill_id, version) REFERENCES skill_versions (skill_id, version)
);

ALTER TABLE runs
    ADD COLUMN workspace_id uuid REFERENCES workspaces,
    -- Waits for a place in its workspace: it has no job until another run ends.
    ADD COLUMN parked boolean NOT NULL DEFAULT false,
    -- Attempts since the last stored step. Too many in a row mean that the run itself brings its worker down.
    ADD COLUMN barren_attempts integer NOT NULL DEFAULT 0,
    ADD COLUMN inputs_accepted integer NOT NULL DEFAULT 1,
    ADD COLUMN inputs_consumed integer NOT NULL DEFAULT 0,
    ADD COLUMN steps integer NOT NULL DEFAULT 0,
    ADD COLUMN input_tokens bigint NOT NULL DEFAULT 0,
    ADD COLUMN output_tokens bigint NOT NULL DEFAULT 0,
    ADD COLUMN started_at timestamptz,
    ADD COLUMN finished_at timestamptz,
    ADD COLUMN failure text;
UPDATE runs r
SET workspace_id = s.workspace_id,
    inputs_accepted = (
        SELECT count(*) FROM session_events e
        WHERE e.session_id = r.session_id AND e.run_id = r.id AND e.type = 'input.accepted'
    )
FROM sessions s WHERE s.id = r.session_id;
ALTER TABLE runs ALTER COLUMN workspace_id SET NOT NULL;
CREATE INDEX runs_running ON runs (workspace_id) WHERE state = 'running';
CREATE INDEX runs_parked ON runs (workspace_id, id) WHERE parked;

-- A model's own record of its answer, given back to it word for word. Not shown.
ALTER TABLE session_events ADD COLUMN record jsonb;
