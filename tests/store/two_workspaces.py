"""Two workspaces with data of every kind, and a connection that records its statements and rows.

Ids and hashes of a workspace end in its letter, and its texts contain its name. So a test recognises its rows in any
table and in any result.
"""

import itertools
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import msgspec
import psycopg
import pytest
from msgspec import Struct
from psycopg import AsyncConnection, AsyncCursor, sql

from quarterdeck.core.ids import new_id
from quarterdeck.db.database import Connection
from quarterdeck.runs.model import AttachmentRequest
from quarterdeck.skills.model import Bundle, SkillManifest


class Workspace(Struct, frozen=True):
    letter: str
    name: str
    workspace: UUID
    user: UUID
    key: UUID
    # With an active run, with a parked one, archived with one that has ended, and deleted.
    session: UUID
    waiting_session: UUID
    archived_session: UUID
    deleted_session: UUID
    token: UUID
    run: UUID
    parked_run: UUID
    ended_run: UUID
    skill: UUID
    version: UUID
    webhook: UUID
    credential: UUID
    delivery: UUID
    audit_event: UUID
    mcp_server: UUID
    input: UUID
    action: UUID
    file: UUID
    agent: UUID
    agent_version: UUID
    batch: UUID
    device: UUID
    invitation: UUID
    device_code: UUID
    trusted_job: UUID

    @property
    def key_hash(self) -> bytes:
        return bytes.fromhex(self.letter * 62 + "01")

    @property
    def token_hash(self) -> bytes:
        return bytes.fromhex(self.letter * 62 + "02")

    @property
    def device_hash(self) -> bytes:
        return bytes.fromhex(self.letter * 62 + "05")

    @property
    def invitation_hash(self) -> bytes:
        return bytes.fromhex(self.letter * 62 + "06")

    @property
    def code_hash(self) -> bytes:
        return bytes.fromhex(self.letter * 62 + "07")

    @property
    def job_key_hash(self) -> bytes:
        return bytes.fromhex(self.letter * 62 + "08")

    @property
    def user_code(self) -> str:
        return self.letter * 10

    @property
    def blob(self) -> bytes:
        return bytes.fromhex(self.letter * 62 + "03")

    @property
    def condemned(self) -> bytes:
        return bytes.fromhex(self.letter * 62 + "04")

    @property
    def email(self) -> str:
        return f"{self.name}@example.com"

    @property
    def url(self) -> str:
        return f"https://{self.name}.example.com/"

    def marks(self, shown: str) -> bool:
        """Whether `shown`, a repr, contains data of this workspace."""
        return any(mark in shown for mark in (self.letter * 10, f"\\x{self.letter * 2}" * 5, self.name))


def plan(letter: str, name: str) -> Workspace:
    numbers = itertools.count(1)
    fields = [field.name for field in msgspec.structs.fields(Workspace)][2:]
    # Created now, since some statements read the time in an id.
    ids = [UUID(f"{str(new_id())[:-12]}{letter * 10}{next(numbers):02x}") for _ in fields]
    return Workspace(letter, name, *ids)


_FILL = """
INSERT INTO users (id, email, display_name) VALUES (%(user)s, %(email)s, %(name)s);
INSERT INTO workspaces (id, name, owner_id) VALUES (%(workspace)s, %(name)s, %(user)s);
INSERT INTO members (workspace_id, user_id, role) VALUES (%(workspace)s, %(user)s, 'owner');
INSERT INTO devices (id, user_id, kind, name, prefix, secret_hash, expires_at)
VALUES (%(device)s, %(user)s, 'browser', %(name)s, %(name)s, %(device_hash)s, now() + interval '1 day');
INSERT INTO invitations (id, workspace_id, email, role, secret_hash, created_by, expires_at) VALUES
    (%(invitation)s, %(workspace)s, %(email)s, 'member', %(invitation_hash)s, %(user)s, now() + interval '1 day');
INSERT INTO device_codes (id, user_code, secret_hash, name, expires_at)
VALUES (%(device_code)s, %(user_code)s, %(code_hash)s, %(name)s, now() + interval '1 day');
INSERT INTO sign_in_tries (subject, tries) VALUES (%(code_hash)s, 1);
INSERT INTO identities (issuer, subject, user_id, members_until)
VALUES (%(url)s, %(name)s, %(user)s, now() + %(due_in)s::interval);
INSERT INTO sign_in_attempts (state_hash, browser_hash, provider, redirect_uri, nonce, code_verifier, return_to,
                              device_name, device_id, expires_at)
VALUES (%(code_hash)s, %(device_hash)s, %(name)s, %(url)s, %(name)s, %(name)s, '/', %(name)s, %(device)s,
        now() + interval '1 day');
INSERT INTO provider_sessions (device_id, provider, issuer, subject, origin, tokens, has_refresh_token, refresh_at)
VALUES (%(device)s, %(name)s, %(url)s, %(name)s, %(url)s, %(code_hash)s, true, now() + %(due_in)s::interval);
INSERT INTO api_keys (id, workspace_id, lineage_id, label, prefix, secret_hash, permissions, created_by)
VALUES (%(key)s, %(workspace)s, %(key)s, %(name)s, %(name)s, %(key_hash)s,
        '{session.manage,skill.manage,workspace.read}', %(user)s);
INSERT INTO sessions (id, workspace_id, title, model, instructions, created_by, archived_at) VALUES
    (%(session)s, %(workspace)s, %(name)s, %(name)s, %(name)s, %(user)s, NULL),
    (%(waiting_session)s, %(workspace)s, %(name)s, NULL, NULL, %(user)s, NULL),
    (%(archived_session)s, %(workspace)s, %(name)s, NULL, NULL, %(user)s, now());
INSERT INTO session_tokens (id, session_id, api_key_id, created_by, secret_hash, prefix, expires_at)
VALUES (%(token)s, %(session)s, %(key)s, %(user)s, %(token_hash)s, %(name)s, now() + interval '1 day');
INSERT INTO runs (id, session_id, workspace_id, state, attempt, first_input, last_input, consumed_through, parked,
                  started_at, finished_at) VALUES
    (%(run)s, %(session)s, %(workspace)s, 'running', 1, 1, 1000000, 0, false, now(), NULL),
    (%(parked_run)s, %(waiting_session)s, %(workspace)s, 'queued', 0, 1, 1000000, 0, true, NULL, NULL),
    (%(ended_run)s, %(archived_session)s, %(workspace)s, 'succeeded', 1, 1, 1, 1, false, now(), now());
INSERT INTO actions (id, workspace_id, session_id, run_id, kind, step, call_id, tool, reached, reason, expires_at)
VALUES (%(action)s, %(workspace)s, %(session)s, %(run)s, 'budget', 1, %(name)s, %(name)s,
        '{"scope": "run", "limit": "max_tokens", "maximum": 1, "used": 1}', %(name)s, now() + %(due_in)s::interval);
UPDATE sessions SET limits = '{"run": {"max_tokens": 1}}' WHERE id = %(session)s AND %(due_in)s::interval > '0';
INSERT INTO session_events (session_id, run_id, workspace_id, type, data) VALUES
    (%(session)s, %(run)s, %(workspace)s, 'input.accepted',
     jsonb_build_object('input_id', %(input)s::uuid, 'text', %(name)s::text)),
    (%(session)s, %(run)s, NULL, 'message', jsonb_build_object('text', %(name)s::text)),
    (%(deleted_session)s, NULL, NULL, 'message', jsonb_build_object('text', %(name)s::text));
INSERT INTO run_usage (workspace_id, day, run_id, session_id, api_key_id, model, input_tokens, cached_tokens,
                       output_tokens, cost_usd)
SELECT %(workspace)s, (now() AT TIME ZONE 'UTC')::date - past, %(run)s, %(session)s, %(key)s, %(name)s, 2, 1, 1, 0.5
FROM generate_series(0, 1) AS past;
INSERT INTO daily_usage (workspace_id, day, shard, input_tokens, cached_tokens, output_tokens, cost_usd)
SELECT workspace_id, day, 0, input_tokens, cached_tokens, output_tokens, cost_usd
FROM run_usage WHERE workspace_id = %(workspace)s;
INSERT INTO model_pauses (model, until, reason, refused)
VALUES (%(name)s, now() + interval '1 hour', %(name)s, true);
INSERT INTO model_requests (run_id, workspace_id, provider, model, tokens, begun_at, attempt)
VALUES (%(run)s, %(workspace)s, %(name)s, %(name)s, 1, now(), 1);
INSERT INTO model_limits (name, used_tokens, counted_at) VALUES (%(name)s, 1, now());
INSERT INTO model_turns (provider, workspace_id, last_turn_at) VALUES (%(name)s, %(workspace)s, now());
INSERT INTO deleted_sessions (session_id) VALUES (%(deleted_session)s);
INSERT INTO blobs (sha256, generation, bytes) VALUES (%(blob)s, %(version)s, 1);
INSERT INTO condemned_blobs (sha256, generation) VALUES (%(condemned)s, %(version)s);
INSERT INTO skills (id, workspace_id, name, created_by, latest_version)
VALUES (%(skill)s, %(workspace)s, %(name)s, %(user)s, 1);
INSERT INTO skill_versions (id, skill_id, version, bundle_sha256, bundle_bytes, frontmatter, manifest, created_by)
VALUES (%(version)s, %(skill)s, 1, %(blob)s, 1,
        json_build_object('name', %(name)s::text, 'description', %(name)s::text),
        '{"archive_sha256": "", "files": [], "unpacked_bytes": 0}', %(user)s);
INSERT INTO skill_version_contents (version_id, sha256) VALUES (%(version)s, %(blob)s);
INSERT INTO trusted_jobs (id, workspace_id, skill_id, name, issuer, claims, created_by)
VALUES (%(trusted_job)s, %(workspace)s, %(skill)s, %(name)s, %(url)s, '{}', %(user)s);
INSERT INTO job_keys (secret_hash, prefix, trusted_job_id, expires_at)
VALUES (%(job_key_hash)s, %(name)s, %(trusted_job)s, now() + interval '1 day');
INSERT INTO session_skills (session_id, position, skill_id, version) VALUES (%(session)s, 0, %(skill)s, 1);
INSERT INTO agents (id, workspace_id, name, created_by, latest_version)
VALUES (%(agent)s, %(workspace)s, %(name)s, %(user)s, 1);
INSERT INTO agent_versions (id, agent_id, version, configuration, created_by)
VALUES (%(agent_version)s, %(agent)s, 1, jsonb_build_object('instructions', %(name)s::text), %(user)s);
INSERT INTO agent_version_skills (agent_version_id, skill_id) VALUES (%(agent_version)s, %(skill)s);
UPDATE sessions SET agent_id = %(agent)s WHERE id = %(waiting_session)s;
UPDATE runs SET agent_id = %(agent)s, agent_version = 1 WHERE id = %(run)s;
INSERT INTO mcp_servers (id, workspace_id, name, url, created_by)
VALUES (%(mcp_server)s, %(workspace)s, %(name)s, %(url)s, %(user)s);
INSERT INTO mcp_tools (server_id, name, definition, definition_sha256)
VALUES (%(mcp_server)s, %(name)s, jsonb_build_object('name', %(name)s::text, 'description', '', 'parameters',
        '{}'::jsonb), %(key_hash)s);
INSERT INTO files (id, workspace_id, name, media_type, sha256, bytes, created_by)
VALUES (%(file)s, %(workspace)s, %(name)s, 'text/plain', %(blob)s, 1, %(user)s);
INSERT INTO session_files (session_id, path, kind, sha256, bytes, mode, modified_at)
VALUES (%(session)s, %(name)s, 'file', %(blob)s, 1, 420, now());
INSERT INTO session_attachments (session_id, sha256) VALUES (%(session)s, %(blob)s);
INSERT INTO webhooks (id, workspace_id, url, host, events, description, secret, created_by)
VALUES (%(webhook)s, %(workspace)s, %(url)s, %(name)s, '{run.succeeded}', %(name)s, %(key_hash)s, %(user)s);
INSERT INTO credentials (id, workspace_id, name, kind, secret, created_by)
VALUES (%(credential)s, %(workspace)s, %(name)s, 'bearer', %(key_hash)s, %(user)s);
INSERT INTO webhook_deliveries (id, webhook_id, event, run_id, payload, next_attempt_at)
VALUES (%(delivery)s, %(webhook)s, 'run.succeeded', %(run)s, %(key_hash)s, now() + %(due_in)s::interval);
INSERT INTO receipts (scope_id, operation, key, fingerprint, body) VALUES
    (%(key)s, 'create_session', 'the same', %(key_hash)s, %(key_hash)s),
    (%(key)s, 'create_session', %(name)s, %(key_hash)s, %(key_hash)s),
    (%(deleted_session)s, 'submit_input', 'the same', %(key_hash)s, %(key_hash)s);
INSERT INTO audit_events (id, workspace_id, action, object_type, object_id, user_id, api_key_id, detail)
VALUES (%(audit_event)s, %(workspace)s, 'create_session', 'session', %(session)s, %(user)s, %(key)s, '{}');
INSERT INTO workspace_turns (workspace_id, last_turn_at) VALUES (%(workspace)s, now() + %(due_in)s::interval);
INSERT INTO model_batches (id, model, look_at) VALUES (%(batch)s, %(name)s, now() + %(due_in)s::interval);
INSERT INTO batch_requests (run_id, step, model, batch_group, body, batch_id)
VALUES (%(run)s, 1, %(name)s, %(name)s, %(name)s, %(batch)s);
SELECT enqueue_run(%(session)s, %(run)s)
"""


async def fill(connection: Connection, workspace: Workspace, due_in: str) -> None:
    hashes = (
        "key_hash",
        "token_hash",
        "device_hash",
        "invitation_hash",
        "code_hash",
        "job_key_hash",
        "blob",
        "condemned",
    )
    names = (*hashes, "user_code", "email", "url")
    values = msgspec.structs.asdict(workspace) | {name: getattr(workspace, name) for name in names}
    for statement in _FILL.split(";\n"):
        await connection.execute(statement.encode(), values | {"due_in": due_in})


# Tables without data of workspaces.
NO_WORKSPACES = {"migrations", "audit_retention", "model_pauses", "workers"}
_TABLES = "SELECT format('%I.%I', schemaname, tablename) FROM pg_tables WHERE schemaname = 'app' ORDER BY 1"


async def tables(connection: Connection) -> list[str]:
    """Tables with data of workspaces, jobs included."""
    found = [row[0] for row in await (await connection.execute(_TABLES)).fetchall()]
    return [name for name in found if name.removeprefix("app.") not in NO_WORKSPACES]


async def rows_of(connection: Connection, names: list[str], workspace: Workspace) -> dict[str, str]:
    """A hash of all rows of the workspace, for each table that has some."""
    query = " UNION ALL ".join(
        f"SELECT '{name}', md5(string_agg(t::text, ' ' ORDER BY t::text)) FROM {name} t WHERE t::text ~ %(marks)s"
        for name in names
    )
    values = {"marks": f"{workspace.letter * 10}|{workspace.name}"}
    rows = await (await connection.execute(query.encode(), values)).fetchall()
    return {name: found for name, found in rows if found is not None}


class RecordingConnection(AsyncConnection[tuple[Any, ...]]):
    """Records statements and rows."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self.cursor_factory = _Cursor
        self.statements: list[str] = []
        self.rows: list[str] = []

    def forget(self) -> None:
        self.statements.clear()
        self.rows.clear()


class _Cursor(AsyncCursor[tuple[Any, ...]]):
    @property
    def _recording(self) -> RecordingConnection:
        assert isinstance(self.connection, RecordingConnection)
        return self.connection

    async def execute(self, query: Any, *values: Any, **options: Any) -> Any:
        self._recording.statements.append(query)
        return await super().execute(query, *values, **options)

    async def executemany(self, query: Any, *values: Any, **options: Any) -> None:
        self._recording.statements.append(query)
        await super().executemany(query, *values, **options)

    async def fetchone(self) -> tuple[Any, ...] | None:
        row = await super().fetchone()
        self._recording.rows.append(repr(row))
        return row

    async def fetchall(self) -> list[tuple[Any, ...]]:
        rows = await super().fetchall()
        self._recording.rows.extend(map(repr, rows))
        return rows


def read_only_twin(recording: RecordingConnection) -> psycopg.Connection[tuple[Any, ...]]:
    """Another connection of the same login, for store functions that are not asynchronous. Its statements and rows are
    recorded with those of `recording`. It sees only what was committed."""

    class Cursor(psycopg.Cursor[tuple[Any, ...]]):
        def execute(self, query: Any, *values: Any, **options: Any) -> Any:
            text = query.as_string(self) if isinstance(query, sql.Composable) else query
            recording.statements.append(text.decode() if isinstance(text, bytes) else text)
            return super().execute(query, *values, **options)

        def fetchone(self) -> tuple[Any, ...] | None:
            row = super().fetchone()
            recording.rows.append(repr(row))
            return row

        def fetchall(self) -> list[tuple[Any, ...]]:
            rows = super().fetchall()
            recording.rows.extend(map(repr, rows))
            return rows

    twin = psycopg.connect(recording.info.dsn, password=recording.info.password, cursor_factory=Cursor)
    twin.read_only = True
    return twin


StoreCall = Callable[[RecordingConnection, Workspace, Workspace], Awaitable[object]]
ALPHA, BRAVO = plan("a", "alpha"), plan("b", "bravo")
BUNDLE = Bundle(
    frontmatter={},
    manifest=SkillManifest(files=[], unpacked_bytes=0, archive_sha256=ALPHA.blob.hex()),
    bundle_bytes=1,
    starts={ALPHA.blob.hex(): 0},
)


async def refused(call: Awaitable[object]) -> None:
    """For a store function that asserts that the row exists."""
    with pytest.raises(AssertionError):
        await call


async def returns(call: Awaitable[object], expected: object) -> None:
    """For results that show no workspace, such as numbers."""
    found = await call
    assert found == expected, f"returned {found}"


def attaching(file_id: UUID) -> AttachmentRequest:
    return AttachmentRequest(
        file_ids=[file_id],
        default_model="demo",
        media_types={"demo": ["text/%"]},
        all_files_bytes=1000,
        files=1000,
    )
