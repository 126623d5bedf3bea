-- How people sign in. A device is a browser or an installation of `qd`; it has a credential of its own, which acts in
-- every workspace of its person, with the role that the person has there.

CREATE TABLE devices (
    id uuid PRIMARY KEY,
    user_id uuid NOT NULL REFERENCES users,
    kind text NOT NULL CHECK (kind IN ('browser', 'command_line')),
    -- As the device describes itself.
    name text NOT NULL,
    prefix text NOT NULL,
    secret_hash bytea NOT NULL CONSTRAINT devices_secret_hash UNIQUE CHECK (octet_length(secret_hash) = 32),
    -- Of the sign-in.
    address text,
    expires_at timestamptz NOT NULL,
    last_used_at timestamptz,
    ended_at timestamptz
) WITH (fillfactor = 80);
CREATE UNIQUE INDEX devices_page ON devices (user_id, id);

-- As for API keys.
CREATE TRIGGER devices_stay_ended BEFORE UPDATE OF ended_at, expires_at ON devices
FOR EACH ROW WHEN (
    (OLD.ended_at IS NOT NULL AND NEW.ended_at IS DISTINCT FROM OLD.ended_at) OR NEW.expires_at > OLD.expires_at
) EXECUTE FUNCTION refuse_change();

-- Links that let somebody in: into a workspace, or, made by the operator, into an existing account.
CREATE TABLE invitations (
    id uuid PRIMARY KEY,
    -- NULL: the link sets a new password for `user_id`.
    workspace_id uuid REFERENCES workspaces,
    user_id uuid REFERENCES users,
    email text NOT NULL,
    role text CHECK (role IN ('owner', 'admin', 'member', 'viewer')),
    secret_hash bytea NOT NULL CONSTRAINT invitations_secret_hash UNIQUE CHECK (octet_length(secret_hash) = 32),
    -- NULL: the operator.
    created_by uuid REFERENCES users,
    expires_at timestamptz NOT NULL,
    accepted_at timestamptz,
    accepted_by uuid REFERENCES users,
    withdrawn_at timestamptz,
    CHECK (CASE WHEN workspace_id IS NULL THEN user_id IS NOT NULL AND role IS NULL ELSE role IS NOT NULL END),
    CHECK (accepted_at IS NULL OR withdrawn_at IS NULL)
);
CREATE UNIQUE INDEX invitations_page ON invitations (workspace_id, id);
-- Links into an account that a new password ends.
CREATE INDEX invitations_user ON invitations (user_id)
WHERE user_id IS NOT NULL AND accepted_at IS NULL AND withdrawn_at IS NULL;

-- `qd login`: it shows a code, the browser of a person who has signed in approves it, and `qd` collects a credential.
CREATE TABLE device_codes (
    id uuid PRIMARY KEY,
    user_code text NOT NULL CONSTRAINT device_codes_user_code UNIQUE,
    secret_hash bytea NOT NULL CONSTRAINT device_codes_secret_hash UNIQUE CHECK (octet_length(secret_hash) = 32),
    name text NOT NULL,
    address text,
    expires_at timestamptz NOT NULL,
    -- The device of the person. An approval ends with it. NULL: nobody has answered.
    answered_by uuid REFERENCES devices,
    is_approved boolean,
    collected_at timestamptz,
    CHECK ((answered_by IS NULL) = (is_approved IS NULL))
);
CREATE INDEX device_codes_expires ON device_codes (expires_at);

-- Tries of passwords and of other things that can be guessed, by account and by address: see people/passwords.py.
CREATE TABLE sign_in_tries (
    subject bytea PRIMARY KEY,
    tries integer NOT NULL,
    began_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX sign_in_tries_began ON sign_in_tries (began_at);

-- Accounts of people at OpenID providers.
CREATE TABLE identities (
    issuer text NOT NULL,
    subject text NOT NULL,
    user_id uuid NOT NULL REFERENCES users,
    -- When the memberships that the provider gave end, unless it confirms the person before. NULL: they have ended.
    members_until timestamptz,
    PRIMARY KEY (issuer, subject)
);
-- Two identities at one provider would undo each other's memberships.
CREATE UNIQUE INDEX identities_user ON identities (user_id, issuer);
CREATE INDEX identities_members_until ON identities (members_until);

-- A browser that was sent to a provider and has not come back. The row is deleted when it does.
CREATE TABLE sign_in_attempts (
    state_hash bytea PRIMARY KEY CHECK (octet_length(state_hash) = 32),
    -- Of the cookie: nobody else's browser can finish the attempt.
    browser_hash bytea NOT NULL CHECK (octet_length(browser_hash) = 32),
    provider text NOT NULL,
    redirect_uri text NOT NULL,
    nonce text NOT NULL,
    code_verifier text NOT NULL,
    return_to text NOT NULL,
    device_name text NOT NULL,
    -- Of the person who connects an account at the provider. NULL: somebody who signs in.
    device_id uuid REFERENCES devices,
    expires_at timestamptz NOT NULL
);
CREATE INDEX sign_in_attempts_expires ON sign_in_attempts (expires_at);

-- Devices that were signed in at a provider, which is asked again and again whether the person may stay.
CREATE TABLE provider_sessions (
    device_id uuid PRIMARY KEY REFERENCES devices,
    -- Its name in the settings.
    provider text NOT NULL,
    issuer text NOT NULL,
    subject text NOT NULL,
    -- Of the console, for the way back from the sign-out at the provider.
    origin text NOT NULL,
    -- Encrypted: ProviderTokens in people/provider_model.py.
    tokens bytea NOT NULL,
    has_refresh_token boolean NOT NULL,
    -- When the provider last confirmed the person.
    confirmed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    refresh_at timestamptz NOT NULL,
    -- Whether the outcome of an earlier refresh with these tokens is unknown. The provider may have replaced them.
    is_unsure boolean NOT NULL DEFAULT false,
    FOREIGN KEY (issuer, subject) REFERENCES identities
) WITH (fillfactor = 80);
CREATE INDEX provider_sessions_refresh ON provider_sessions (refresh_at);
CREATE INDEX provider_sessions_identity ON provider_sessions (issuer, subject);
