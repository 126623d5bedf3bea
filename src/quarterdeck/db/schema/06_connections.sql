-- MCP servers and the credentials that they need.

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
