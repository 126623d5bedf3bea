"""Issuers that workspaces trust: of tokens for CI jobs and other programs. Unlike providers, members name them."""

from typing import TYPE_CHECKING, Any

from quarterdeck.core import errors
from quarterdeck.core.logging import log
from quarterdeck.core.settings import OidcSettings
from quarterdeck.core.slots import Slots, hold_slot
from quarterdeck.openid.model import OpenIdError, ProviderSettings
from quarterdeck.outbound.rules import AddressPolicy, read_url

if TYPE_CHECKING:
    from quarterdeck.openid.provider import Provider
    from quarterdeck.outbound.http_client import OutboundClient

# Their discovery documents and keys are kept.
_KEPT_ISSUERS = 64
_CONCURRENT = 16
_CONCURRENT_PER_ADDRESS = 4
_WAIT_SECONDS = 10.0


class Issuers:
    """Raises ServiceError."""

    def __init__(self, settings: OidcSettings) -> None:
        self._settings = settings
        self._policy = AddressPolicy(exceptions=settings.allowed_addresses)
        self._slots = Slots(_CONCURRENT, _CONCURRENT_PER_ADDRESS)
        # Created on first use.
        self._client: OutboundClient | None = None
        self._providers: dict[str, Provider] = {}

    def close(self) -> None:
        if self._client is not None:
            self._client.close()

    def check(self, issuer: str) -> None:
        read_url(issuer, self._policy, field="issuer")
        if "?" in issuer:
            raise errors.invalid("issuer must have no query.")

    async def verify(self, issuer: str, token: str, audience: str, address: str | None) -> dict[str, Any]:
        """The claims of a token."""
        async with hold_slot(self._slots, address, _WAIT_SECONDS, "exchanges of tokens"):
            try:
                return await self._provider(issuer).verify_token(token, audience)
            except OpenIdError as fault:
                log.info("a token of %s was refused: %s", issuer, fault.detail)
                raise errors.unavailable(str(fault)) if fault.is_temporary else errors.wrong_token(str(fault)) from None

    def _provider(self, issuer: str) -> "Provider":
        from quarterdeck.openid.provider import Provider
        from quarterdeck.outbound.http_client import OutboundClient

        found = self._providers.pop(issuer, None)
        if found is None:
            if self._client is None:
                self._client = OutboundClient(self._policy, self._settings.request_seconds)
            settings = ProviderSettings(
                name="issuer",
                title=issuer,
                issuer=issuer,
                client_id="none",
                clock_skew_seconds=self._settings.clock_skew_seconds,
                discovery_seconds=self._settings.discovery_seconds,
                key_pause_seconds=self._settings.key_pause_seconds,
            )
            found = Provider(settings, self._client)
        # To the end: the one that was not used for the longest time is forgotten first.
        self._providers[issuer] = found
        if len(self._providers) > _KEPT_ISSUERS:
            del self._providers[next(iter(self._providers))]
        return found
