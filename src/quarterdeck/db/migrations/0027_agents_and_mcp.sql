-- Agents and their versions, MCP servers as tools of sessions, and the credentials that these servers need.

ALTER TABLE api_keys DROP CONSTRAINT api_keys_permissions_check;
-- Not validated: every row satisfies the old constraint, which was stricter. Keys from before do not get the new
-- permissions: a process of the release before could not read them. `qd admin create-key` makes keys that have them.
ALTER TABLE api_keys ADD CONSTRAINT api_keys_permissions_check CHECK (
    permissions <@ ARRAY[
        'workspace.read', 'key.manage', 'session.manage', 'skill.manage', 'agent.manage', 'credential.manage'
    ]
) NOT VALID;

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
    -- AgentConfiguration in agents/configuration.py.
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

-- A secret of a workspace. It is encrypted; the keys are not in the database.
CREATE TABLE credentials (
    id uuid PRIMARY KEY,
    workspace_id uuid NOT NULL REFERENCES workspaces,
    name text NOT NULL,
    kind text NOT NULL CHECK (kind IN ('bearer', 'header', 'oauth_client_credentials')),
    -- What is not secret: the name of a header, or the token endpoint, client id and scope of OAuth.
    parameters jsonb NOT NULL DEFAULT '{}',
    secret bytea NOT NULL,
    revision bigint NOT NULL DEFAULT 1,
    rotated_at timestamptz,
    created_by uuid NOT NULL REFERENCES users
);
CREATE UNIQUE INDEX credentials_page ON credentials (workspace_id, id);
CREATE UNIQUE INDEX credentials_name ON credentials (workspace_id, name);

CREATE TABLE mcp_servers (
    id uuid PRIMARY KEY,
    workspace_id uuid NOT NULL REFERENCES workspaces,
    -- The first part of the names of its tools.
    name text NOT NULL,
    -- Either a URL (streamable HTTP), or the name of a command in the configuration of the operator (stdio).
    url text,
    command text,
    credential_id uuid REFERENCES credentials,
    revision bigint NOT NULL DEFAULT 1,
    -- The last check. NULL: never.
    checked_at timestamptz,
    -- Why the last check failed. NULL: it did not.
    check_failure text,
    created_by uuid NOT NULL REFERENCES users,
    CHECK ((url IS NULL) <> (command IS NULL)),
    CHECK (credential_id IS NULL OR url IS NOT NULL)
);
CREATE UNIQUE INDEX mcp_servers_page ON mcp_servers (workspace_id, id);
CREATE UNIQUE INDEX mcp_servers_name ON mcp_servers (workspace_id, name);
CREATE INDEX mcp_servers_credential ON mcp_servers (credential_id);

-- The tools of a server as they were first seen by a run, or last seen by a check. If a run finds another definition,
-- the policy's `allow` does not hold for it: a person is asked.
CREATE TABLE mcp_tools (
    server_id uuid NOT NULL REFERENCES mcp_servers ON DELETE CASCADE,
    -- Of the server, without its prefix.
    name text NOT NULL,
    definition jsonb NOT NULL,
    definition_sha256 bytea NOT NULL,
    PRIMARY KEY (server_id, name)
);

ALTER TABLE sessions
    ADD COLUMN agent_id uuid REFERENCES agents,
    -- NULL: the default version of the agent when a run begins.
    ADD COLUMN agent_version integer,
    -- The fields that do not follow the agent. Only for sessions with an agent. The columns of the other fields hold
    -- the values of the agent as of the last change of the session or the last run that began.
    ADD COLUMN overrides text[] NOT NULL DEFAULT '{}',
    -- No foreign key: a server can be deleted while sessions and agents name it.
    ADD COLUMN mcp_servers uuid[] NOT NULL DEFAULT '{}',
    ADD COLUMN output_schema jsonb;
CREATE INDEX sessions_agent ON sessions (agent_id) WHERE agent_id IS NOT NULL;

ALTER TABLE runs
    -- The version that the run uses. NULL: none, or the run has not begun.
    ADD COLUMN agent_id uuid,
    ADD COLUMN agent_version integer,
    -- The tools of MCP servers that the run offers in all its attempts. NULL: not listed yet, or the run has ended.
    ADD COLUMN mcp_tools jsonb;
CREATE INDEX runs_of_agent ON runs (agent_id, id) WHERE agent_id IS NOT NULL;

ALTER TABLE actions
    -- Of a tool of an MCP server: the hash of the definition that the model was given.
    ADD COLUMN tool_definition bytea;
