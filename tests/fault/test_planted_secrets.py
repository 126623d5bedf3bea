"""Recognisable secrets are given to the system and used. Then everything that it wrote is searched for them: database,
backup, logs, files, responses, and what tools can see."""

import base64
import secrets
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from msgspec import Struct

from quarterdeck.core.secret_encryption import KEY_FILE, SecretCipher
from quarterdeck.core.settings import EncryptionSettings
from tests.cli.command import qd_here
from tests.fault.test_secrets import dump
from tests.fault.waiting import start, succeeded
from tests.mcp.targets import commands_file
from tests.reflecting_server import ReflectingServer, reflecting_server
from tests.sandboxes import all_results, bash, sandbox_host
from tests.token_server import TokenServer, token_server
from tests.workers import working
from tests.world import PATIENT, World, serving

# A stdio server whose only tool tells what it sees of all environments.
_ENVIRONMENT_SERVER = r"""
while IFS= read -r line; do
    id=0
    [[ $line =~ \"id\":([0-9]+) ]] && id=${BASH_REMATCH[1]}
    case $line in
        *'"method":"initialize"'*)
            about='"protocolVersion":"2025-06-18","serverInfo":{"name":"x","version":"1"}'
            result='{"capabilities":{"tools":{}},'"$about"'}' ;;
        *'"method":"tools/list"'*) result='{"tools":[{"name":"environment","inputSchema":{"type":"object"}}]}' ;;
        *'"method":"tools/call"'*)
            seen=$(cat /proc/[0-9]*/environ | tr '\0\n"\\' '    ')
            result='{"content":[{"type":"text","text":"'"$seen"'"}]}' ;;
        *) continue ;;
    esac
    printf '%s\n' '{"jsonrpc":"2.0","id":'"$id"',"result":'"$result"'}'
done
"""


class Planted(Struct, frozen=True):
    bearer: str
    rotated_bearer: str
    header: str
    client_secret: str
    wrong_client_secret: str
    refused: str
    # In the environment of API and worker.
    provider_key: str
    encryption_key: str

    @classmethod
    def make(cls) -> "Planted":
        names = [name for name in cls.__struct_fields__ if name != "encryption_key"]
        texts = {name: f"planted/{name}+{secrets.token_hex(16)}" for name in names}
        return cls(**texts, encryption_key=base64.b64encode(secrets.token_bytes(32)).decode())


def forms(secret: str) -> Iterator[bytes]:
    """As it is, in hex, and in base64 at each position in a longer text."""
    raw = secret.encode()
    yield raw
    yield raw.hex().encode()
    for before in range(3):
        yield base64.b64encode(bytes(before) + raw)[4:-4]


async def _create_servers(world: World, planted: Planted, reflecting: str, token_url: str) -> list[str]:
    oauth: dict[str, object] = {"kind": "oauth_client_credentials", "token_url": token_url, "client_id": "us"}
    made: dict[str, dict[str, object]] = {
        "bearer": {"secret": planted.bearer, "kind": "bearer"},
        "header": {"secret": planted.header, "kind": "header", "header": "X-Api-Key"},
        "oauth": {"secret": planted.client_secret} | oauth,
        "wrong": {"secret": planted.wrong_client_secret} | oauth,
    }
    servers = []
    for name, fields in made.items():
        again = {"Idempotency-Key": f"create {name}"}
        for _ in range(2):
            answer = await world.post("/v1/credentials", {"name": name} | fields, headers=again)
            assert answer.status_code == 201, answer.text
        credential_id = answer.json()["id"]
        if name == "bearer":
            path = f"/v1/credentials/{credential_id}/rotate"
            rotated = await world.post(path, {"secret": planted.rotated_bearer}, headers={"Idempotency-Key": "rotate"})
            assert rotated.status_code == 200, rotated.text
        body = {"name": name, "url": reflecting, "credential_id": credential_id}
        servers.append((await world.post("/v1/mcp-servers", body)).json()["id"])
    servers.append((await world.post("/v1/mcp-servers", {"name": "local", "command": "environment"})).json()["id"])
    wrong: list[dict[str, object]] = [{"name": 5}, {"name": "x", "kind": "header"}, {"name": "oauth", "kind": "bearer"}]
    for fields in wrong:
        refused = await world.post("/v1/credentials", fields | {"secret": planted.refused})
        assert refused.status_code in (400, 409)
    return servers


async def _use(world: World, servers: list[str]) -> list[str]:
    """The texts that tools returned."""
    for server_id in servers[:4]:
        checked = (await world.post(f"/v1/mcp-servers/{server_id}/check", None)).json()
        assert checked["ok"] is (server_id != servers[3]), checked
    fields = {"mcp_servers": servers, "sandbox": {}, "model": "demo", "tool_policy": {"*": "allow"}}
    session_id = (await world.post("/v1/sessions", fields)).json()["id"]
    await world.new_token(session_id)
    calls = [f"call: {name}__headers {{}}" for name in ("bearer", "header", "oauth")]
    calls += ["call: local__environment {}", bash("env; cat /proc/[0-9]*/environ | tr '\\0' '\\n'")]
    await succeeded(world, await start(world, session_id, "\n".join(calls)))
    for path in ("/v1/credentials", "/v1/mcp-servers", "/v1/audit-events", f"/v1/sessions/{session_id}/export"):
        assert (await world.get(path)).status_code == 200
    for server_id in servers:
        assert (await world.get(f"/v1/mcp-servers/{server_id}")).status_code == 200
    read = {"name": "read_log", "arguments": {"session_id": session_id, "limit": 200}}
    asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": read}
    through_mcp = await world.post("/mcp", asked, headers={"Accept": "application/json, text/event-stream"})
    assert "tool.result" in through_mcp.text
    return await all_results(world, session_id)


def _backup(database_url: str, planted: Planted, folder: Path) -> bytes:
    file = folder / "backup.qd"
    settings = {"DATABASE_URL": database_url, "SERVER_DATA_DIR": str(folder), "ENCRYPTION_KEYS": planted.encryption_key}
    done = qd_here("admin", "backup", str(file), **settings)
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(file) as archive:
        return b"\n".join(archive.read(name) for name in archive.namelist())


def _check_that_they_were_used(
    planted: Planted, reflecting: ReflectingServer, issuer: TokenServer, database_url: str, folder: Path
) -> None:
    """The search would find nothing if there were nothing."""
    received = "".join(reflecting.received)
    assert len(reflecting.received) == 3
    assert all(secret in received for secret in (planted.rotated_bearer, planted.header, issuer.issued[-1]))
    cipher = SecretCipher(EncryptionSettings(keys=planted.encryption_key), folder)
    with psycopg.connect(database_url) as connection:
        rows = connection.execute("SELECT id, secret FROM app.credentials").fetchall()
    decrypted = {cipher.decrypt(credential_id, secret).decode() for credential_id, secret in rows}
    assert decrypted == {planted.rotated_bearer, planted.header, planted.client_secret, planted.wrong_client_secret}


@pytest.mark.long
async def test_no_planted_secret_is_found(database_url: str, tmp_path: Path) -> None:
    planted, answers = Planted.make(), list[httpx.Response]()
    data = tmp_path / "data"
    data.mkdir()
    settings: dict[str, object] = {
        **PATIENT,
        "LOG_LEVEL": "debug",
        "MCP_ALLOWED_ADDRESSES": "127.0.0.0/8",
        "MCP_COMMANDS_FILE": commands_file(tmp_path, environment={"command": ["/bin/bash", "-c", _ENVIRONMENT_SERVER]}),
        "MCP_CONNECT_SECONDS": 100,
        "MODEL_OPENAI_API_KEY": planted.provider_key,
        "ENCRYPTION_KEYS": planted.encryption_key,
    }

    async def take(answer: httpx.Response) -> None:
        await answer.aread()
        answers.append(answer)

    async with reflecting_server() as reflecting, token_server("us", planted.client_secret) as issuer:
        with sandbox_host() as host, serving(database_url, data, **settings, **host.settings) as server:
            hooks: dict[str, Any] = {"response": [take]}
            async with httpx.AsyncClient(base_url=server.url, timeout=100, event_hooks=hooks) as http:
                world = await World.create(database_url, http)
                created = (await world.post("/v1/api-keys", {"label": "x", "permissions": []})).json()["secret"]
                servers = await _create_servers(world, planted, reflecting.url, issuer.url)
                with working(database_url, data, **settings, **host.settings):
                    texts = await _use(world, servers)
    assert not (data / KEY_FILE).exists()
    _check_that_they_were_used(planted, reflecting, issuer, database_url, data)
    # The headers in four forms, of which each has the secret once or more.
    assert [text.count("[redacted]") >= 4 for text in texts] == [True] * 3 + [False] * 2, texts
    assert all("PATH=" in text for text in texts[3:]), "the environments were seen"
    contents = {str(file): file.read_bytes() for file in data.rglob("*") if file.is_file()}
    contents |= {"dump": dump(database_url), "backup": _backup(database_url, planted, data)}
    contents |= {f"answer of {answer.request.url}": answer.content + str(answer.headers).encode() for answer in answers}
    assert sum(name.endswith(".log") for name in contents) == 2
    ours = [world.key, created]
    foreign = [getattr(planted, name) for name in Planted.__struct_fields__] + issuer.issued
    for secret in (*ours, *foreign):
        found = [name for name, content in contents.items() if any(form in content for form in forms(secret))]
        shown_once = [name for name in found if name.endswith("/v1/api-keys")]
        assert found == (shown_once if secret == created else []), secret[:20]
