"""A served API, and a workspace with the callers that a test needs."""

import gzip
import io
import os
import socket
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self
from uuid import UUID, uuid4

import httpx
import psycopg
from msgspec import Struct
from psycopg import AsyncConnection, sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from quarterdeck.api_keys.model import CreateApiKeyBody
from quarterdeck.core.actors import Permission
from quarterdeck.core.settings import AuditSettings, DatabaseSettings
from quarterdeck.db.migrate import migrate
from quarterdeck.workspaces import service as workspaces
from tests.fork_server import Process, start_qd
from tests.owner_connections import AS_OWNER as AS_OWNER
from tests.owner_connections import close_owner_connections, connect_as_owner, owner_connection

EVERY_PERMISSION = tuple(Permission)
# The login of API and workers. It owns nothing and is only a member of the service's role. One for each process of a
# parallel run: some tests count or end its connections.
LOGIN = f"quarterdeck_test_{os.environ.get('PYTEST_XDIST_WORKER', 'only')}"
LOGIN_PASSWORD = "for tests only"
# Only a failure takes this long, also on a busy machine. Below the timeout of a test.
START_SECONDS = 120.0
STOP_SECONDS = 60.0
# For servers and workers whose timeouts are not under test. A test or a busy machine may hold a lock for longer than
# the default timeouts. One attempt takes the whole wait for a lock, so that those who wait get the lock in their order.
PATIENT = {
    "DATABASE_LOCK_WAIT_SECONDS": 60,
    "DATABASE_LOCK_ATTEMPT_SECONDS": 60,
    "DATABASE_STATEMENT_SECONDS": 80,
    "DATABASE_POOL_WAIT_SECONDS": 30,
}

# Every API process of the tests allows it. Outside of the range of ports that systems give to connections.
CLOSED_MCP_ADDRESS = "127.0.0.1:65533"
CLOSED_MCP_URL = f"http://{CLOSED_MCP_ADDRESS}/mcp"

# Tests send more requests in a second than the default limits expect of a team. Those about the limits set their own.
TRIES_PER_ADDRESS = 1_000_000
UNLIMITED = {
    "QUARTERDECK_LIMIT_CREDENTIAL_PER_MINUTE": "0",
    "QUARTERDECK_LIMIT_WORKSPACE_PER_MINUTE": "0",
    "QUARTERDECK_SIGN_IN_TRIES_PER_ADDRESS": str(TRIES_PER_ADDRESS),
}


class Server(Struct, frozen=True):
    url: str
    port: int
    pid: int
    database_url: str
    log: Path
    data_dir: Path


def migrate_for_tests(url: str) -> None:
    """Migrate a database with the service's settings and create the login of `app_url`."""
    migrate(url, audit=AuditSettings())
    create_login(url)


def create_login(url: str) -> None:
    role, login = sql.Identifier(DatabaseSettings().role), sql.Identifier(LOGIN)
    with psycopg.connect(url, autocommit=True) as connection:
        if not connection.execute("SELECT FROM pg_roles WHERE rolname = %s", (LOGIN,)).fetchall():
            connection.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(login, LOGIN_PASSWORD))
        connection.execute(sql.SQL("GRANT {} TO {}").format(role, login))


def app_url(database_url: str) -> str:
    """The URL for the service, from the URL of the owner."""
    return make_conninfo(database_url, user=LOGIN, password=LOGIN_PASSWORD)


# How services reach a database if the suite runs behind a pooler: `make test-pgbouncer`. Returns None for a server that
# the pooler does not serve.
pooler_url: "Callable[[str], str | None]" = lambda database_url: None  # noqa: E731


def database_urls(database_url: str) -> dict[str, str]:
    """Settings of a service, from the URL of the owner."""
    direct, pooled = app_url(database_url), pooler_url(database_url)
    if pooled is None:
        return {"QUARTERDECK_DATABASE_URL": direct}
    return {"QUARTERDECK_DATABASE_URL": pooled, "QUARTERDECK_DATABASE_DIRECT_URL": direct}


def clone_database(postgres_url: str, template: str) -> str:
    name = f"qd_{uuid4().hex}"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        statement = sql.SQL("CREATE DATABASE {} TEMPLATE {}")
        connection.execute(statement.format(sql.Identifier(name), sql.Identifier(template)))
    return make_conninfo(postgres_url, dbname=name)


def drop_database(postgres_url: str, url: str) -> None:
    close_owner_connections(url)
    name = str(conninfo_to_dict(url)["dbname"])
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def is_listening(port: int) -> bool:
    """Cheaper than a request, for a loop that waits for a server."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


# Logs of all servers and workers that this process has started.
process_logs: list[Path] = []


@contextmanager
def serving(
    database_url: str, data_dir: Path, command: Sequence[str] | None = None, /, **settings: object
) -> Iterator[Server]:
    """Run `qd api`, or the arguments of a new Python that understands `--port`, as a process. `database_url` is the
    owner's. `settings` are environment variables without their prefix."""
    port = int(str(settings.get("SERVER_PORT") or free_port()))
    environment = {key: value for key, value in os.environ.items() if not key.startswith("QUARTERDECK_")}
    environment |= {
        **database_urls(database_url),
        "QUARTERDECK_SERVER_DATA_DIR": str(data_dir),
        "QUARTERDECK_KEY_LAST_USED_FLUSH_SECONDS": "0.2",
        # Sessions can name models of this provider. Workers of single tests have one behind another address.
        "QUARTERDECK_MODEL_OPENAI_BASE_URL": "http://127.0.0.1:1/v1",
        "QUARTERDECK_MCP_ALLOWED_ADDRESSES": CLOSED_MCP_ADDRESS,
        **UNLIMITED,
    }
    environment |= {f"QUARTERDECK_{name}": str(value) for name, value in settings.items()}
    log = data_dir / "api.log"
    process_logs.append(log)
    with log.open("wb") as output:
        process: Process
        if command is None:
            process = start_qd(["api", "--port", str(port)], environment, output)
        else:
            process = subprocess.Popen([sys.executable, *command, "--port", str(port)], env=environment, stderr=output)
    try:
        url = f"http://127.0.0.1:{port}"
        _wait_until_up(url, process, log)
        yield Server(url, port, process.pid, database_url, log, data_dir)
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_until_up(url: str, process: Process, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise AssertionError(f"qd api ended with {process.returncode}: {log.read_text()}")
        try:
            if is_listening(httpx.URL(url).port or 0):
                httpx.get(f"{url}/healthz", timeout=5)
                return
        except httpx.TransportError:
            pass
        time.sleep(0.05)
    raise AssertionError(f"qd api did not start: {log.read_text()}")


class World:
    """One workspace. `key` has every permission. Statements of a test run with the rights of the database's owner."""

    def __init__(self, database_url: str, http: httpx.AsyncClient) -> None:
        self.database_url = database_url
        self.http = http
        self.workspace_id: UUID
        self.key: str

    @classmethod
    async def create(cls, database_url: str, http: httpx.AsyncClient) -> Self:
        world = cls(database_url, http)
        async with owner_connection(world.database_url) as connection:
            world.workspace_id = await workspaces.create_workspace(connection, "Test", f"{uuid4().hex}@example.com")
            world.key, _ = await world._create_key(connection, CreateApiKeyBody("test", list(EVERY_PERMISSION), None))
        return world

    async def connect(self) -> "AsyncConnection[tuple[Any, ...]]":
        """One that stays open until the caller closes it."""
        return await connect_as_owner(self.database_url)

    async def fetch(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        async with owner_connection(self.database_url) as connection:
            return await (await connection.execute(query.encode(), values)).fetchall()

    async def new_key(self, *permissions: Permission, expires_at: datetime | None = None, label: str = "test") -> str:
        """Created by the operator, with every permission unless some are named."""
        return (await self.new_key_record(permissions or EVERY_PERMISSION, expires_at, label))[0]

    async def new_key_record(
        self, permissions: tuple[Permission, ...], expires_at: datetime | None = None, label: str = "test"
    ) -> tuple[str, UUID]:
        body = CreateApiKeyBody(label, list(permissions), expires_at)
        async with owner_connection(self.database_url) as connection:
            return await self._create_key(connection, body)

    async def _create_key(
        self, connection: "AsyncConnection[tuple[Any, ...]]", body: CreateApiKeyBody
    ) -> tuple[str, UUID]:
        created = await workspaces.create_key(connection, "test", self.workspace_id, body, None)
        assert isinstance(created.secret, str)
        return created.secret, created.id

    async def expired_key(self) -> str:
        secret, key_id = await self.new_key_record(EVERY_PERMISSION, datetime.now(UTC) + timedelta(hours=1))
        await self.execute("UPDATE api_keys SET expires_at = now() - interval '1 second' WHERE id = %s", key_id)
        return secret

    async def revoked_key(self) -> str:
        secret, key_id = await self.new_key_record(EVERY_PERMISSION)
        await self.execute("UPDATE api_keys SET revoked_at = now() WHERE id = %s", key_id)
        return secret

    async def execute(self, statement: str, *values: object) -> None:
        async with owner_connection(self.database_url) as connection:
            await connection.execute(statement.encode(), values)

    async def new_session(self) -> str:
        answer = await self.post("/v1/sessions", {})
        assert answer.status_code == 201, answer.text
        session_id: str = answer.json()["id"]
        return session_id

    async def new_token(self, session_id: str, *, may_resolve: bool = False) -> str:
        answer = await self.post(f"/v1/sessions/{session_id}/tokens", {"may_resolve": may_resolve})
        assert answer.status_code == 201, answer.text
        token: str = answer.json()["token"]
        return token

    async def new_mcp_server(self, **fields: object) -> str:
        """Nobody listens at its address, which the server of the tests allows."""
        answer = await self.post("/v1/mcp-servers", {"name": f"s{uuid4().hex[:24]}", "url": CLOSED_MCP_URL} | fields)
        assert answer.status_code == 201, answer.text
        server_id: str = answer.json()["id"]
        return server_id

    async def new_skill(self, name: str | None = None) -> str:
        """Without a name: the first of the workspace is called "demo"."""
        answer = await self.post("/v1/skills", {"name": name or "demo"})
        if name is None and answer.status_code == 409:
            answer = await self.post("/v1/skills", {"name": f"demo-{uuid4().hex[:12]}"})
        assert answer.status_code == 201, answer.text
        skill_id: str = answer.json()["id"]
        return skill_id

    async def new_agent(self, *, versions: int = 1) -> str:
        answer = await self.post("/v1/agents", {"name": f"agent {uuid4().hex}"})
        assert answer.status_code == 201, answer.text
        agent_id: str = answer.json()["id"]
        for _ in range(versions):
            assert (await self.post(f"/v1/agents/{agent_id}/versions", {})).status_code == 201
        return agent_id

    async def new_webhook(self, url: str = "https://example.com/hook", *events: str) -> str:
        answer = await self.post("/v1/webhooks", {"url": url, "events": events or ["run.succeeded", "run.failed"]})
        assert answer.status_code == 201, answer.text
        webhook_id: str = answer.json()["id"]
        return webhook_id

    async def new_credential(self, secret: str = "a secret of a test", **fields: object) -> str:
        body = {"name": f"credential {uuid4().hex}", "kind": "bearer", "secret": secret} | fields
        answer = await self.post("/v1/credentials", body)
        assert answer.status_code == 201, answer.text
        credential_id: str = answer.json()["id"]
        return credential_id

    async def upload(
        self, name: str, content: bytes, *, key: str | None = None, headers: dict[str, str] | None = None
    ) -> httpx.Response:
        given = self.headers(key) | {"Content-Type": "application/octet-stream"} | (headers or {})
        return await self.http.post("/v1/files", params={"name": name}, content=content, headers=given)

    async def new_file(self, name: str = "notes.txt", content: bytes = b"notes") -> str:
        answer = await self.upload(name, content)
        assert answer.status_code == 201, answer.text
        file_id: str = answer.json()["id"]
        return file_id

    async def get(self, path: str, *, key: str | None = None, headers: dict[str, str] | None = None) -> httpx.Response:
        return await self.http.get(path, headers=self.headers(key) | (headers or {}))

    async def post(
        self, path: str, body: object, *, key: str | None = None, headers: dict[str, str] | None = None
    ) -> httpx.Response:
        return await self.http.post(path, json=body, headers=self.headers(key) | (headers or {}))

    async def patch(
        self, path: str, body: object, *, key: str | None = None, headers: dict[str, str] | None = None
    ) -> httpx.Response:
        return await self.http.patch(path, json=body, headers=self.headers(key) | (headers or {}))

    async def delete(
        self, path: str, *, key: str | None = None, headers: dict[str, str] | None = None
    ) -> httpx.Response:
        return await self.http.delete(path, headers=self.headers(key) | (headers or {}))

    async def submit(
        self,
        session_id: str,
        text: str = "hello",
        *,
        key: str | None = None,
        idempotency_key: str | None = None,
        delivery: str | None = None,
    ) -> httpx.Response:
        headers = {} if idempotency_key is None else {"Idempotency-Key": idempotency_key}
        body = {"type": "input", "text": text} | ({} if delivery is None else {"delivery": delivery})
        return await self.post(f"/v1/sessions/{session_id}/events", body, key=key, headers=headers)

    async def push(
        self, skill_id: str, archive: bytes, *, key: str | None = None, headers: dict[str, str] | None = None
    ) -> httpx.Response:
        given = self.headers(key) | {"Content-Type": "application/gzip"} | (headers or {})
        return await self.http.post(f"/v1/skills/{skill_id}/versions", content=archive, headers=given)

    async def list_keys(self, query: str = "", *, key: str | None = None) -> httpx.Response:
        headers = {"Service-Workspace": str(self.workspace_id)}
        return await self.get(f"/v1/api-keys{query}", key=key, headers=headers)

    def headers(self, key: str | None = None) -> dict[str, str]:
        return {"Authorization": f"Bearer {key or self.key}"}


def bundle(name: str = "demo", **files: str) -> bytes:
    """A small valid bundle. The same arguments give the same bytes."""
    contents = {"SKILL.md": f"---\nname: {name}\ndescription: A test skill.\n---\nBody.\n"} | files
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as tar:
        for path, text in contents.items():
            member = tarfile.TarInfo(path)
            member.size = len(text.encode())
            tar.addfile(member, io.BytesIO(text.encode()))
    return gzip.compress(raw.getvalue(), mtime=0)


def error_of(answer: httpx.Response) -> tuple[int, str]:
    """Status and code. The body must be exactly the error envelope."""
    body = answer.json()
    assert set(body) == {"error"}, body
    assert set(body["error"]) == {"code", "message"}, body
    assert isinstance(body["error"]["message"], str)
    assert answer.headers["content-type"] == "application/json"
    return answer.status_code, body["error"]["code"]
