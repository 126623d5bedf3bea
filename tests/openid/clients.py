"""Our side of the tests: a provider as the application holds it."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from quarterdeck.openid.model import ProviderSettings
from quarterdeck.openid.provider import Provider
from quarterdeck.outbound.http_client import OutboundClient
from quarterdeck.outbound.rules import AddressPolicy
from tests.openid.real_provider import LOCAL

REDIRECT_URI = "http://127.0.0.1:1/callback"
CLIENT_ID = "quarterdeck"
SECRET = "secret of the client, which is long"
CODE_VERIFIER = "v" * 43
# For a machine with other work to do: a request that takes longer would be a temporary error.
PATIENT_SECONDS = 60.0


def provider_settings(issuer: str, **fields: Any) -> ProviderSettings:
    usual = {
        "name": "corporate",
        "title": "Example Corp",
        "issuer": issuer,
        "client_id": CLIENT_ID,
        "client_secret": SECRET,
        "groups_claim": "groups",
        "scopes": ("openid", "profile", "email", "groups"),
    }
    return ProviderSettings(**(usual | fields))


@asynccontextmanager
async def relying_party(
    settings: ProviderSettings, *, seconds: float = PATIENT_SECONDS, now: Callable[[], float] | None = None
) -> AsyncIterator[Provider]:
    client = OutboundClient(AddressPolicy(exceptions=LOCAL), seconds)
    try:
        yield Provider(settings, client) if now is None else Provider(settings, client, now=now)
    finally:
        client.close()
