"""A provider that can be told to do anything wrong: a real HTTP server. Without being told, it does all right."""

import asyncio
import hashlib
from base64 import b64encode, urlsafe_b64encode
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec
from joserfc.jwk import ECKey, OKPKey, RSAKey
from joserfc.jws import JWSRegistry

from quarterdeck.openid.model import Claims
from quarterdeck.openid.provider import Provider
from tests.openid.clients import CODE_VERIFIER, REDIRECT_URI, provider_settings, relying_party
from tests.receivers import Behaviour, Received, answering, read_request

Json = dict[str, Any]
SigningKey = RSAKey | ECKey | OKPKey

# Now, for the tests: tokens that expire do so by its distance, not because time passes.
NOW = 1_800_000_000.0
SUBJECT = "subject-1"
# The allowance of our settings.
SKEW_SECONDS = 60.0
NONCE = "nonce-of-the-sign-in"
ACCESS_TOKEN = "access-token"


def rsa_key(kid: str) -> RSAKey:
    return RSAKey.generate_key(2048, {"kid": kid, "use": "sig"})


def encode(part: bytes | Json) -> str:
    """A part of a token."""
    text = part if isinstance(part, bytes) else msgspec.json.encode(part)
    return urlsafe_b64encode(text).rstrip(b"=").decode()


def access_token_hash(access_token: str, name: str = "sha256") -> str:
    digest = hashlib.new(name, access_token.encode()).digest()
    return encode(digest[: len(digest) // 2])


def signed(key: Any, alg: str, payload: bytes | Json, **header: Any) -> str:
    """With any header, also a refused one."""
    head = {"alg": alg, "kid": key.kid} | header
    text = f"{encode({name: value for name, value in head.items() if value is not None})}.{encode(payload)}"
    return f"{text}.{encode(JWSRegistry.algorithms[alg].sign(text.encode(), key))}"


class HostileProvider:
    """Everything that it sends can be changed before it is asked."""

    key = rsa_key("key-1")

    def __init__(self) -> None:
        self.port = 0
        self.reset()

    def reset(self) -> None:
        self.received: list[Received] = []
        # Instead of the usual answer, by path.
        self.behaviours: dict[str, Behaviour] = {}
        # Changes of what is sent. None leaves a field out.
        self.metadata: Json = {}
        self.claims: Json = {}
        self.token_answer: Json = {}
        self.userinfo: Json = {}
        # As they are published.
        self.keys: list[Any] = [self.public(self.key)]
        # Instead of the usual one.
        self.id_token: str | None = None

    @property
    def issuer(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @staticmethod
    def public(key: SigningKey) -> Json:
        return dict(key.as_dict(private=False))

    def asked(self, path: str) -> int:
        return sum(received.path == path for received in self.received)

    @property
    def usual_claims(self) -> Json:
        """Of an ID token, with the changes."""
        usual = {
            "iss": self.issuer,
            "sub": SUBJECT,
            "aud": "quarterdeck",
            "exp": NOW + 600,
            "iat": NOW,
            "nonce": NONCE,
            "email": "ada@example.com",
            "email_verified": True,
            "name": "Ada",
            "groups": ["engineering"],
        }
        return _changed(usual, self.claims)

    def answer(self, path: str) -> Json | None:
        if path == "/.well-known/openid-configuration":
            usual: Json = {
                "issuer": self.issuer,
                "jwks_uri": f"{self.issuer}/keys",
                "authorization_endpoint": f"{self.issuer}/authorize",
                "token_endpoint": f"{self.issuer}/token",
                "userinfo_endpoint": f"{self.issuer}/userinfo",
                "end_session_endpoint": f"{self.issuer}/end",
            }
            return _changed(usual, self.metadata)
        if path == "/keys":
            return {"keys": self.keys}
        if path == "/token":
            id_token = self.id_token or signed(self.key, "RS256", self.usual_claims)
            usual = {"access_token": ACCESS_TOKEN, "token_type": "Bearer", "id_token": id_token}
            return _changed(usual, self.token_answer)
        if path == "/userinfo":
            usual = {"sub": SUBJECT, "email": "of-userinfo@example.com", "groups": ["of-userinfo"]}
            return _changed(usual, self.userinfo)
        return None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                received = await read_request(reader)
                self.received.append(received)
                behave = self.behaviours.get(received.path)
                if behave is None:
                    found = self.answer(received.path)
                    behave = answering(404) if found is None else json_answer(found)
                await behave(writer)
        finally:
            writer.close()


def json_answer(content: object, status: int = 200) -> Behaviour:
    return answering(status, "Content-Type: application/json\r\nConnection: close\r\n", msgspec.json.encode(content))


def basic(client_id: str, secret: str) -> str:
    return f"Basic {b64encode(f'{client_id}:{secret}'.encode()).decode()}"


def _changed(usual: Json, changes: Json) -> Json:
    return {name: value for name, value in (usual | changes).items() if value is not None}


@asynccontextmanager
async def hostile_provider() -> AsyncIterator[HostileProvider]:
    provider = HostileProvider()
    tasks: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(provider.serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    provider.port = server.sockets[0].getsockname()[1]
    try:
        yield provider
    finally:
        server.close()
        # Also those that never answer.
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()


def relying(hostile: HostileProvider, now: Callable[[], float] = lambda: NOW, **fields: Any) -> Any:
    return relying_party(provider_settings(hostile.issuer, clock_skew_seconds=SKEW_SECONDS, **fields), now=now)


async def redeem(provider: Provider, iss: str | None = None) -> Claims:
    return await provider.redeem("code", CODE_VERIFIER, REDIRECT_URI, NONCE, iss)
