CREATE TABLE agents (
    id uuid PRIMARY KEY,
    workspace_id uuid NOT NULL REFERENCES workspaces,
    name text NOT NULL,
    latest_version integer NOT NULL DEFAULT 0,
    -- NULL: the latest.
    default_version integer,
    revision bigint NOT NULL DEFAULT 1,
    archived_at timestamptz,
    created_by uuid NOT NULL REFERENCES users
);
CREATE INDEX agents_active ON agents (workspace_id, id) WHERE archived_at IS NULL;
CREATE INDEX agents_archived ON agents (workspace_id, id) WHERE archived_at IS NOT NULL;
CREATE UNIQUE INDEX agents_name ON agents (workspace_id, name) WHERE archived_at IS NULL;

-- Never changed after it was added.
CREATE TABLE agent_versions (
    id uuid PRIMARY KEY,
    agent_id uuid NOT NULL REFERENCES agents,
    version integer NOT NULL CHECK (version > 0),
    -- AgentConfiguration in the package `agents`.
    configuration jsonb NOT NULL,
    created_by uuid NOT NULL REFERENCES users,
    CONSTRAINT agent_versions_number UNIQUE (agent_id, version)
);
ALTER TABLE agents ADD CONSTRAINT agents_default_version
    FOREIGN KEY (id, default_version) REFERENCES agent_versions (agent_id, version);

-- The skills in the configurations, so that a skill in use is not deleted.
CREATE TABLE agent_version_skills (
    agent_version_id uuid NOT NULL REFERENCES agent_versions,
    skill_id uuid NOT NULL REFERENCES skills,
    PRIMARY KEY (agent_version_id, skill_id)
);
CREATE INDEX agent_version_skills_skill ON agent_version_skills (skill_id);
