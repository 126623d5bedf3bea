"""/v1/credentials, and the use of credentials: with a real token endpoint for those of OAuth."""

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote
from uuid import UUID, uuid4

import pytest

from quarterdeck.connections.credentials import service
from quarterdeck.connections.credentials.authorizations import OAuthAuthorization, OAuthTokens
from quarterdeck.connections.credentials.model import (
    Authorization,
    AuthorizationError,
    CredentialType,
    Parameters,
    StoredCredential,
)
from quarterdeck.core.errors import ServiceError
from quarterdeck.core.secret_encryption import SecretCipher
from quarterdeck.core.setting_types import AddressExceptions
from quarterdeck.core.settings import CredentialSettings, EncryptionSettings
from tests.token_server import TokenServer, token_server
from tests.world import Server, World, error_of

SECRET = "s3cret/with+signs & spaces"
OAUTH = {"kind": "oauth_client_credentials", "token_url": "https://example.com/token", "client_id": "us"}


async def test_the_secret_goes_in_and_never_comes_out(world: World) -> None:
    body = {"name": "Tracker", "kind": "header", "header": "X-Api-Key", "secret": SECRET}
    answers = [
        await world.post("/v1/credentials", body, headers={"Idempotency-Key": "once"}),
        await world.post("/v1/credentials", body, headers={"Idempotency-Key": "once"}),
    ]
    created, replayed = answers
    credential = created.json()
    assert (created.status_code, replayed.content) == (201, created.content)
    assert credential | {"name": "Tracker", "kind": "header", "header": "X-Api-Key", "revision": 1} == credential
    other_secret = await world.post(
        "/v1/credentials", body | {"secret": "another secret"}, headers={"Idempotency-Key": "once"}
    )
    assert error_of(other_secret) == (409, "conflict")
    path = f"/v1/credentials/{credential['id']}"
    answers.append(await world.post(f"{path}/rotate", {"secret": f"{SECRET} 2"}, headers={"If-Match": '"1"'}))
    assert (answers[-1].status_code, answers[-1].json()["revision"]) == (200, 2)
    assert answers[-1].json()["rotated_at"] is not None
    stale = await world.post(f"{path}/rotate", {"secret": f"{SECRET} 3"}, headers={"If-Match": '"1"'})
    assert error_of(stale) == (412, "precondition_failed")
    answers += [await world.get("/v1/credentials"), await world.get("/v1/audit-events")]
    assert answers[-2].json() == {"items": [answers[2].json()], "next_cursor": None}
    assert not [answer for answer in answers if SECRET in answer.text]
    assert (await world.delete(path)).status_code == 204
    assert (await world.get("/v1/credentials")).json()["items"] == []
    assert error_of(await world.delete(path)) == (404, "not_found")


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"secret": "short"}, "secret"),
        ({"secret": "with\nnew line"}, "secret"),
        ({"secret": " space before"}, "secret"),
        ({"kind": "password"}, "kind"),
        ({"kind": "header"}, "header is required"),
        ({"kind": "header", "header": "Content-Length"}, "every request sets itself"),
        ({"kind": "header", "header": "X: y\r\nZ"}, "header"),
        ({"header": "X-Api-Key"}, "does not belong"),
        ({"scope": "read"}, "does not belong"),
        (OAUTH | {"token_url": None}, "token_url is required"),
        (OAUTH | {"client_id": None}, "client_id is required"),
        (OAUTH | {"token_url": "http://example.com/token"}, "token_url must start with https://"),
        (OAUTH | {"token_url": "https://127.0.0.1/token"}, "token_url must have a public address"),
        (OAUTH | {"token_url": "https://user@example.com/token"}, "token_url must be"),
    ],
)
async def test_fields_must_fit_the_kind(world: World, fields: dict[str, Any], reason: str) -> None:
    answer = await world.post("/v1/credentials", {"name": "x", "kind": "bearer", "secret": SECRET} | fields)
    assert error_of(answer) == (400, "invalid_request")
    assert reason in answer.json()["error"]["message"]


async def test_conflicts(world: World) -> None:
    credential_id = await world.new_credential(name="Tracker")
    taken = await world.post("/v1/credentials", {"name": "Tracker", "kind": "bearer", "secret": SECRET})
    assert error_of(taken) == (409, "conflict")
    await world.execute(
        "INSERT INTO mcp_servers (id, workspace_id, name, url, credential_id, created_by)"
        " SELECT gen_random_uuid(), id, 'tracker', 'https://example.com/', %s, owner_id FROM workspaces WHERE id = %s",
        credential_id,
        world.workspace_id,
    )
    in_use = await world.delete(f"/v1/credentials/{credential_id}")
    assert error_of(in_use) == (409, "conflict")
    await world.execute(
        "INSERT INTO credentials (id, workspace_id, name, kind, secret, created_by)"
        " SELECT gen_random_uuid(), id, n::text, 'bearer', '', owner_id FROM workspaces, generate_series(2, 200) n"
        " WHERE id = %s",
        world.workspace_id,
    )
    full = await world.post("/v1/credentials", {"name": "One more", "kind": "bearer", "secret": SECRET})
    assert error_of(full) == (409, "conflict")
    assert "maximum of 200" in full.json()["error"]["message"]


def _stored(kind: CredentialType, parameters: Parameters) -> StoredCredential:
    return StoredCredential(id=uuid4(), workspace_id=uuid4(), kind=kind, parameters=parameters, secret=b"", revision=1)


@asynccontextmanager
async def oauth(exceptions: AddressExceptions | None = None, seconds: float = 30) -> AsyncIterator[OAuthTokens]:
    tokens = OAuthTokens(CredentialSettings(token_seconds=seconds), exceptions)
    try:
        yield tokens
    finally:
        tokens.close()


async def use(world: World, server: Server, tokens: OAuthTokens, credential_id: str) -> Authorization:
    cipher = SecretCipher(EncryptionSettings(), server.data_dir)
    async with await world.connect() as connection:
        used = await service.authorization(connection, cipher, tokens, world.workspace_id, UUID(credential_id))
    assert used.revision == 1
    return used.authorization


async def test_bearer_and_header_are_sent_and_redacted(world: World, server: Server) -> None:
    async with oauth() as tokens:
        bearer = await use(world, server, tokens, await world.new_credential(SECRET))
        header = await use(world, server, tokens, await world.new_credential(SECRET, kind="header", header="X-Key"))
        with pytest.raises(ServiceError, match="No such credential"):
            await use(world, server, tokens, str(uuid4()))
    assert await bearer.headers() == {"Authorization": f"Bearer {SECRET}"}
    assert await header.headers() == {"X-Key": SECRET}
    for one in (bearer, header):
        assert not await one.renew(await one.headers())
        for before in ("", "x", "xy"):
            in_base64 = base64.b64encode(f"{before}{SECRET}!".encode()).decode()
            shown = one.redact(f"a {SECRET}, {quote(SECRET)}, {SECRET.encode().hex()} or {in_base64} b")
            assert shown.count("[redacted]") == 4, shown
            assert SECRET[:6] not in shown
        assert one.redact("nothing here") == "nothing here"
        assert SECRET not in repr(one)


async def test_a_secret_without_its_key_is_an_error_of_the_use_alone(world: World, server: Server) -> None:
    credential_id = await world.new_credential(SECRET)
    other_key = SecretCipher(EncryptionSettings(keys=base64.b64encode(bytes(32)).decode()), server.data_dir)
    async with oauth() as tokens, await world.connect() as connection:
        used = await service.authorization(connection, other_key, tokens, world.workspace_id, UUID(credential_id))
    with pytest.raises(AuthorizationError, match="cannot be decrypted"):
        await used.authorization.headers()


@asynccontextmanager
async def client_of(server: TokenServer, secret: str = SECRET, **fields: str) -> AsyncIterator[OAuthAuthorization]:
    parameters = Parameters(token_url=server.url, client_id="us & them", **fields)
    kind = CredentialType.OAUTH_CLIENT_CREDENTIALS
    credential = _stored(kind, parameters)
    async with oauth(server.exceptions) as tokens:
        yield tokens.of(credential, secret)


async def test_a_token_is_fetched_once_for_many_callers_and_again_when_it_is_refused(
    world: World, server: Server
) -> None:
    async with token_server("us & them", SECRET) as issuer, oauth(issuer.exceptions) as tokens:
        fields = OAUTH | {"client_id": "us & them", "scope": "read write", "audience": "tools"}
        credential_id = await world.new_credential(SECRET, **fields)
        # The server under test has no exception for this address.
        await world.execute(
            "UPDATE credentials SET parameters = parameters || jsonb_build_object('token_url', %s::text) WHERE id = %s",
            issuer.url,
            credential_id,
        )
        first, second = [await use(world, server, tokens, credential_id) for _ in range(2)]
        issuer.gate.clear()
        impatient = asyncio.create_task(first.headers())
        asked = [asyncio.create_task(one.headers()) for one in (first, second) for _ in range(10)]
        while not issuer.received:
            await asyncio.sleep(0.01)
        impatient.cancel()
        issuer.gate.set()
        given = await asyncio.gather(*asked)
        assert issuer.forms == [{"grant_type": "client_credentials", "scope": "read write", "audience": "tools"}]
        assert given == [{"Authorization": f"Bearer {issuer.issued[0]}"}] * 20
        assert await asyncio.gather(*(one.renew(given[0]) for one in (first, second) for _ in range(10))) == [True] * 20
        again = await asyncio.gather(*(one.headers() for one in (first, second) for _ in range(10)))
        assert again == [{"Authorization": f"Bearer {issuer.issued[1]}"}] * 20
        # Refused before the refresh, reported after it: the new token stays.
        assert await second.renew(given[0])
        assert await second.headers() == again[0]
        assert len(issuer.received) == 2
        assert second.redact(f"{issuer.issued} {SECRET}") == "['[redacted]', '[redacted]'] [redacted]"


async def test_expired_tokens_and_clients_named_in_the_form() -> None:
    async with token_server("us & them", SECRET) as issuer, client_of(issuer) as client:
        issuer.takes_header = False
        for issuer.expires_in in (0, "-1", 3600):
            assert await client.headers() == {"Authorization": f"Bearer {issuer.issued[-1]}"}
        assert len(issuer.issued) == 3
        await client.headers()
        assert len(issuer.issued) == 3
        assert issuer.forms[1]["client_secret"] == SECRET


async def test_failures_of_a_token_endpoint_tell_no_secret() -> None:
    async with token_server("us & them", SECRET) as issuer:
        async with client_of(issuer, "the wrong secret") as client:
            with pytest.raises(AuthorizationError, match=r"^The token endpoint answered 401 \(invalid_client\).$"):
                await client.headers()
        async with client_of(issuer) as client:
            for raw, reason in {
                b"HTTP/1.1 302 Found\r\nLocation: /other\r\nContent-Length: 0\r\n\r\n": "answered 302",
                b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]": "no usable access_token",
                b'HTTP/1.1 200 OK\r\nContent-Length: 23\r\n\r\n{"access_token":"a\\nb"}': "no usable access_token",
                # Redacting it would make results many times longer.
                b'HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n{"access_token":"e"}': "no usable access_token",
                b"HTTP/1.1 200 OK\r\nContent-Length: 999999999\r\n\r\n" + b"x" * 2**20: "no usable access_token",
                b"HTTP/1.1 500 Error\r\nContent-Length: 0\r\n\r\n": "answered 500",
                b"SMTP ready\r\n": "No token: The response was invalid",
            }.items():
                issuer.raw = raw
                with pytest.raises(AuthorizationError, match=reason):
                    await client.headers()
            issuer.raw = None
            assert await client.headers(), "the next caller tries again"
        asked = len(issuer.received)
        parameters = Parameters(token_url=issuer.url, client_id="us")
        kind = CredentialType.OAUTH_CLIENT_CREDENTIALS
        credential = _stored(kind, parameters)
        async with oauth() as tokens:
            with pytest.raises(AuthorizationError, match="token_url"):
                await tokens.of(credential, SECRET).headers()
        assert len(issuer.received) == asked, "private addresses are refused at each use"
