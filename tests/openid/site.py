"""A served API with OpenID providers, browsers that sign in there, and the refresher of a process."""

import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit
from uuid import UUID, uuid4

import httpx
import msgspec

from quarterdeck.core.secret_encryption import SecretCipher
from quarterdeck.core.settings import DatabaseSettings, EncryptionSettings, OidcSettings
from quarterdeck.db.database import Database
from quarterdeck.openid.providers import Providers
from quarterdeck.people.provider_refresh import ProviderRefresher
from tests.openid.clients import PATIENT_SECONDS, SECRET
from tests.openid.hostile_provider import HostileProvider
from tests.openid.real_provider import LOCAL
from tests.people import CLIENT
from tests.world import PATIENT, Server, World, app_url, serving

Json = dict[str, Any]


def entry(issuer: str, **fields: object) -> Json:
    """Of the file."""
    usual = {
        "title": "Example Corp",
        "issuer": issuer,
        "client_id": "quarterdeck",
        "client_secret": SECRET,
        "scopes": ["openid", "profile", "email", "groups"],
        "groups_claim": "groups",
    }
    return usual | fields


def role_of(group: str, world: World, role: str) -> Json:
    return {"group": group, "workspace_id": str(world.workspace_id), "role": role}


class Site:
    def __init__(self, server: Server, worlds: list[World], file: Path) -> None:
        self.server = server
        self.world, self.other_world = worlds
        self._file = file

    @property
    def origin(self) -> str:
        return self.server.url

    @asynccontextmanager
    async def refresher(self, **settings: Any) -> AsyncIterator[ProviderRefresher]:
        """Of another process with the same settings, except for these. Its file can be another one."""
        usual: dict[str, Any] = {
            "providers_file": str(self._file),
            "allowed_addresses": LOCAL,
            "request_seconds": 60.0,
            "refresh_seconds": 604_800.0,
        }
        oidc = OidcSettings(**(usual | settings))
        providers = Providers(oidc)
        database = Database(app_url(self.server.database_url), DatabaseSettings(statement_seconds=80))
        await database.open()
        try:
            cipher = SecretCipher(EncryptionSettings(), self.server.data_dir)
            yield ProviderRefresher(database, providers, cipher, oidc)
        finally:
            await database.close()
            providers.close()

    async def refresh(self, visitor: "Visitor", **settings: Any) -> None:
        """As if the time had come for this browser."""
        await self.make_due(visitor)
        async with self.refresher(**settings) as refresher:
            await refresher.refresh()

    async def make_due(self, visitor: "Visitor") -> None:
        await self.world.execute(
            "UPDATE provider_sessions SET refresh_at = now() - interval '1 second' WHERE device_id = %s",
            visitor.device_id,
        )

    async def age(self, visitor: "Visitor", seconds: float) -> None:
        """As if the last confirmation were so much older."""
        await self.world.execute(
            "UPDATE provider_sessions SET confirmed_at = confirmed_at - make_interval(secs => %s) WHERE device_id = %s",
            seconds,
            visitor.device_id,
        )


@contextmanager
def site_server(database_url: str, folder: Path, port: int, **others: object) -> Iterator[Server]:
    """Reads its providers from `providers.yaml` in this folder. It refreshes nothing by itself unless it is told to."""
    settings: dict[str, object] = {
        "SERVER_PORT": port,
        "OIDC_PROVIDERS_FILE": folder / "providers.yaml",
        "OIDC_ALLOWED_ADDRESSES": "127.0.0.1/32",
        "OIDC_REQUEST_SECONDS": 60,
        # Unknown keys are looked for at once.
        "OIDC_KEY_PAUSE_SECONDS": 0.001,
        "OIDC_REFRESH_SECONDS": 604800,
    }
    with serving(database_url, folder, **(settings | PATIENT | others)) as server:
        yield server


def write_providers(folder: Path, entries: Mapping[str, Json]) -> Path:
    file = folder / "providers.yaml"
    file.write_bytes(msgspec.yaml.encode(entries))
    return file


class Visitor:
    """A browser with its cookies."""

    def __init__(self, origin: str) -> None:
        self.origin = origin
        self.http = httpx.AsyncClient(base_url=origin, timeout=PATIENT_SECONDS)
        self.device_id: UUID

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.http.aclose()

    def cookie(self, name: str) -> str:
        return self.http.cookies[name]

    def set_cookie(self, name: str, value: str) -> None:
        self.http.cookies.set(name, value, domain="127.0.0.1", path="/")

    async def get(self, path: str) -> httpx.Response:
        return await self.http.get(path, headers=CLIENT)

    async def post(self, path: str, body: object = None, **headers: str) -> httpx.Response:
        return await self.http.post(path, json=body, headers=CLIENT | {"Origin": self.origin} | headers)

    async def begin(self, provider: str = "corporate", path: str = "/v1/sign-in/begin", **body: str) -> Json:
        """The parameters of the authorization request, and its URL as `url`."""
        answer = await self.post(path, {"provider": provider} | body)
        assert answer.status_code == 200, answer.text
        url = answer.json()["authorization_url"]
        return {name: value for name, (value,) in parse_qs(urlsplit(url).query).items()} | {"url": url}

    async def come_back(self, answer: Mapping[str, str], provider: str = "corporate") -> str:
        """What follows `#` in the address of the console."""
        response = await self.http.get(f"/signed-in/{provider}", params=dict(answer))
        assert response.status_code == 303, response.text
        assert response.headers["cache-control"] == "no-store"
        assert response.headers["referrer-policy"] == "no-referrer"
        before, _, page = response.headers["location"].partition("#")
        assert before == "/", "only this site"
        if not page.startswith("/sign-in?problem="):
            self.device_id = UUID((await self.get("/v1/profile")).json()["device_id"])
        return str(page)

    async def is_signed_in(self) -> bool:
        status = (await self.get("/v1/whoami")).status_code
        assert status in (200, 401)
        return status == 200

    async def roles(self) -> dict[str, str]:
        """By the id of the workspace."""
        answer = await self.get("/v1/profile")
        assert answer.status_code == 200, answer.text
        return {one["workspace_id"]: one["role"] for one in answer.json()["workspaces"]}


def new_subject() -> str:
    return f"subject-{uuid4().hex}"


def new_person() -> Json:
    """Claims of somebody in the group `engineering`. The times are those of the server, which checks them."""
    subject = new_subject()
    return {
        "sub": subject,
        "email": f"{subject}@example.com",
        "exp": time.time() + 3600,
        "iat": time.time(),
    }


async def sign_in(visitor: Visitor, hostile: HostileProvider, provider: str = "corporate", **begin: str) -> str:
    """The page of the console."""
    sent = await visitor.begin(provider, **begin)
    hostile.claims["nonce"] = sent["nonce"]
    return await visitor.come_back({"state": sent["state"], "code": "code"}, provider)
