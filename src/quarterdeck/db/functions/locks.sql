-- The names of all advisory locks. No other file has a key or a seed, except for the lock of migrations (db/migrate.py),
-- which is taken before these functions exist. The seed keeps the locks of different kinds apart.

-- Every writer of a session takes it first.
CREATE OR REPLACE FUNCTION session_lock(session_id uuid) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN hashtextextended(session_id::text, 0);

-- An Idempotency-Key of submit_inputs(), by the secret of the caller: it is taken before the caller's scope is read.
CREATE OR REPLACE FUNCTION input_receipt_lock(secret_hash bytea, idempotency_key text) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN hashtextextended(encode(secret_hash, 'hex') || idempotency_key, 1);

-- An Idempotency-Key of another operation.
CREATE OR REPLACE FUNCTION receipt_lock(scope_id uuid, operation text, idempotency_key text) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN hashtextextended(scope_id || ' ' || operation || ' ' || idempotency_key, 2);

-- The number of running runs of a workspace. Taken after the lock of a session; its holder never waits for a session.
CREATE OR REPLACE FUNCTION running_runs_lock(workspace_id uuid) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN hashtextextended(workspace_id::text, 3);

-- The number of webhooks of a workspace.
CREATE OR REPLACE FUNCTION webhooks_lock(workspace_id uuid) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN hashtextextended(workspace_id::text, 4);

-- An API key or session token. Every change holds it in shared mode for the key or token it uses. Revoking takes it
-- exclusively.
CREATE OR REPLACE FUNCTION credential_lock(credential_id uuid) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN hashtextextended(credential_id::text, 5);

-- The number of credentials for MCP servers of a workspace.
CREATE OR REPLACE FUNCTION stored_credentials_lock(workspace_id uuid) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN hashtextextended(workspace_id::text, 6);

-- The number of MCP servers of a workspace.
CREATE OR REPLACE FUNCTION mcp_servers_lock(workspace_id uuid) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN hashtextextended(workspace_id::text, 7);

-- The decision which requests are sent in one batch: take_model_batches().
CREATE OR REPLACE FUNCTION batches_lock() RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN hashtextextended('batches', 9);

-- The decision which runs leave their slots: ask_runs_to_leave().
CREATE OR REPLACE FUNCTION turns_lock() RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN hashtextextended('turns', 8);

-- The requests to the models of a provider with a limit. Its holder waits for no session.
CREATE OR REPLACE FUNCTION model_limits_lock(provider text) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN hashtextextended(provider, 10);
