"""Posts to the URLs of webhooks."""

import asyncio
import ssl
from contextlib import suppress
from uuid import UUID

from msgspec import Struct

from quarterdeck.core.errors import ServiceError
from quarterdeck.core.settings import WebhookSettings
from quarterdeck.outbound.http_client import NETWORK_ERRORS, OutboundClient, Resolve, UnreachableError, read_body
from quarterdeck.webhooks.rules import address_policy

# How much of the response body is read before the connection is closed. Only the status matters.
_ANSWER_BYTES = 4 * 1024
_ANSWER_SECONDS = 1.0
_HEADERS = {"User-Agent": "Quarterdeck-Webhooks/1", "Content-Type": "application/json"}


class Answered(Struct, frozen=True):
    status: int
    retry_after: str | None


class Sender:
    def __init__(
        self, settings: WebhookSettings, *, resolve: Resolve | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        self._client = OutboundClient(
            address_policy(settings),
            settings.timeout_seconds,
            threads=settings.concurrency,
            resolve=resolve,
            tls=tls,
        )
        self.close = self._client.close

    async def post(self, workspace_id: UUID, url: str, headers: dict[str, str], body: bytes) -> Answered:
        """Raises OutboundError."""
        try:
            async with self._client.post(workspace_id, url, _HEADERS | headers, body) as response:
                # A short body is read to its end, so that the receiver sees no broken connection.
                with suppress(TimeoutError, *NETWORK_ERRORS):
                    async with asyncio.timeout(_ANSWER_SECONDS):
                        await read_body(response, _ANSWER_BYTES)
                found = (value.decode("latin-1") for name, value in response.headers if name.lower() == b"retry-after")
                return Answered(response.status, next(found, None))
        except ServiceError as fault:
            # The settings changed after the URL was stored.
            raise UnreachableError(fault.message) from None
