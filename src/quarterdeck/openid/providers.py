"""The providers of a process, by name."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from quarterdeck.core.settings import OidcSettings
from quarterdeck.openid.model import ProviderSettings, read_providers
from quarterdeck.outbound.rules import AddressPolicy

if TYPE_CHECKING:
    from quarterdeck.openid.provider import Provider
    from quarterdeck.outbound.http_client import OutboundClient


class Providers:
    """Raises ProvidersError."""

    def __init__(self, settings: OidcSettings) -> None:
        self._settings = settings
        # In the order of the sign-in page.
        self.described: Mapping[str, ProviderSettings] = read_providers(settings)
        # Created on first use.
        self._client: OutboundClient | None = None
        self._providers: dict[str, Provider] = {}

    def get(self, name: str) -> "Provider | None":
        described = self.described.get(name)
        if described is None:
            return None
        if name not in self._providers:
            from quarterdeck.openid.provider import Provider
            from quarterdeck.outbound.http_client import OutboundClient

            if self._client is None:
                policy = AddressPolicy(exceptions=self._settings.allowed_addresses)
                self._client = OutboundClient(policy, self._settings.request_seconds)
            self._providers[name] = Provider(described, self._client)
        return self._providers[name]

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
