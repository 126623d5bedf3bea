-- Workspaces, the tenants, and their members.
--
-- The time at which a record was created is part of its id, a UUIDv7: no table repeats it, and lists are ordered by id.

CREATE TABLE users (
    id uuid PRIMARY KEY,
    -- NULL: the OpenID provider of the person names none that it has verified.
    email text,
    display_name text,
    -- Argon2id. NULL: the person does not sign in with a password.
    password_hash text
);
CREATE UNIQUE INDEX users_email ON users (lower(email));

CREATE TABLE workspaces (
    id uuid PRIMARY KEY,
    name text NOT NULL,
    -- The owner who is shown. Others may have the role too; people/members.py keeps this one an owner.
    owner_id uuid NOT NULL REFERENCES users,
    -- NULL: keys of this workspace need no end.
    max_key_days integer CHECK (max_key_days > 0),
    -- For all runs of the workspace together, from midnight to midnight UTC. NULL: no limit.
    daily_max_cost_usd numeric,
    daily_max_tokens bigint,
    -- RetentionDays in core/retention.py. A kind of data that is not named follows the settings of the server.
    retention jsonb NOT NULL DEFAULT '{}',
    revision integer NOT NULL DEFAULT 1
);

-- A membership ends and may begin again. The row of the user stays, since other rows name who created them.
CREATE TABLE members (
    workspace_id uuid NOT NULL REFERENCES workspaces,
    user_id uuid NOT NULL REFERENCES users,
    role text NOT NULL DEFAULT 'member' CHECK (role IN ('owner', 'admin', 'member', 'viewer')),
    joined_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at timestamptz,
    -- The issuer that gave the membership, as to one of its groups, and that may change and end it. NULL: people did.
    given_by text,
    PRIMARY KEY (workspace_id, user_id)
);
-- The workspaces of a person.
CREATE INDEX members_user ON members (user_id, joined_at) WHERE ended_at IS NULL;
