"""The authorizations that credentials give. Access tokens of OAuth client credentials are kept in memory until shortly
before they expire."""

import asyncio
import time
from collections import OrderedDict, deque
from typing import TYPE_CHECKING
from uuid import UUID

from quarterdeck.connections.credentials import redaction
from quarterdeck.connections.credentials.model import (
    Authorization,
    AuthorizationError,
    CredentialType,
    StoredCredential,
)
from quarterdeck.core.logging import fields, log
from quarterdeck.core.setting_types import AddressExceptions
from quarterdeck.core.settings import CredentialSettings
from quarterdeck.outbound.rules import AddressPolicy, read_url

if TYPE_CHECKING:
    from quarterdeck.connections.credentials.token_endpoint import IssuedToken
    from quarterdeck.outbound.http_client import OutboundClient

# A token is not used in the last part of its life: the request must still arrive in time.
_MARGIN_SECONDS = 30.0
_MARGIN_SHARE = 0.25
_KEPT_CREDENTIALS = 1000
# Earlier tokens that are still redacted.
_REMEMBERED_TOKENS = 8


class OAuthTokens:
    """One for a process, so that all connections with one credential share its token."""

    def __init__(self, settings: CredentialSettings, exceptions: AddressExceptions | None) -> None:
        self._settings = settings
        self._policy = AddressPolicy(exceptions=exceptions)
        # Created on first use.
        self._client: OutboundClient | None = None
        # By credential and revision: a rotated secret gets a token of its own.
        self._held: OrderedDict[tuple[UUID, int], OAuthAuthorization] = OrderedDict()

    def check_url(self, url: str) -> None:
        """Raises ServiceError."""
        read_url(url, self._policy, field="token_url")

    def of(self, credential: StoredCredential, secret: str) -> "OAuthAuthorization":
        key = (credential.id, credential.revision)
        if self._client is None:
            from quarterdeck.outbound.http_client import OutboundClient

            self._client = OutboundClient(self._policy, self._settings.token_seconds)
        if key not in self._held:
            self._held[key] = OAuthAuthorization(self._client, credential, secret)
        self._held.move_to_end(key)
        if len(self._held) > _KEPT_CREDENTIALS:
            self._held.popitem(last=False)
        return self._held[key]

    def close(self) -> None:
        if self._client is not None:
            self._client.close()


class OAuthAuthorization:
    """With the token of one credential."""

    def __init__(self, client: "OutboundClient", credential: StoredCredential, secret: str) -> None:
        self._client = client
        self._credential = credential
        self._secret = secret
        self._token: IssuedToken | None = None
        # A time of time.monotonic().
        self._use_until = 0.0
        self._fetching: asyncio.Task[IssuedToken] | None = None
        self._forms = redaction.forms(secret)
        self._token_forms: deque[set[str]] = deque(maxlen=_REMEMBERED_TOKENS)

    async def headers(self) -> dict[str, str]:
        token = self._token
        if token is None or time.monotonic() >= self._use_until:
            if self._fetching is None:
                self._fetching = asyncio.create_task(self._fetch())
                self._fetching.add_done_callback(self._fetched)
            # A caller that is cancelled leaves the others their token.
            token = await asyncio.shield(self._fetching)
        return _bearer(token.text)

    async def renew(self, refused: dict[str, str]) -> bool:
        """Another token has replaced it already, or the next caller fetches one."""
        if self._token is not None and refused == _bearer(self._token.text):
            self._token = None
        return True

    def redact(self, text: str) -> str:
        return redaction.redact(text, self._forms.union(*self._token_forms))

    async def _fetch(self) -> "IssuedToken":
        from quarterdeck.connections.credentials.token_endpoint import fetch_token

        credential = self._credential
        try:
            token = await fetch_token(self._client, credential.workspace_id, credential.parameters, self._secret)
        except AuthorizationError as fault:
            detail = redaction.redact(fault.detail, self._forms)
            log.warning("no access token", extra=fields(credential_id=credential.id, reason=detail))
            raise
        margin = min(_MARGIN_SECONDS, token.valid_seconds * _MARGIN_SHARE)
        self._token, self._use_until = token, time.monotonic() + token.valid_seconds - margin
        self._token_forms.append(redaction.forms(token.text))
        return token

    def _fetched(self, task: "asyncio.Task[IssuedToken]") -> None:
        self._fetching = None
        if not task.cancelled():
            # Read here, in case every caller was cancelled.
            task.exception()


class StaticAuthorization:
    """The secret is in the value of a header."""

    def __init__(self, headers: dict[str, str], secret: str) -> None:
        self._headers = headers
        self._secret_forms = redaction.forms(secret)

    async def headers(self) -> dict[str, str]:
        return dict(self._headers)

    async def renew(self, refused: dict[str, str]) -> bool:
        return False

    def redact(self, text: str) -> str:
        return redaction.redact(text, self._secret_forms)


class UnusableAuthorization:
    """Of a credential whose secret cannot be decrypted. Only the operator is told why."""

    def __init__(self, credential_id: UUID, reason: str) -> None:
        self._credential_id = credential_id
        self._reason = reason

    async def headers(self) -> dict[str, str]:
        problem = fields(credential_id=self._credential_id, reason=self._reason)
        log.error("the secret of a credential cannot be decrypted", extra=problem)
        raise AuthorizationError("The secret of the credential cannot be decrypted. The server's log has the reason.")

    async def renew(self, refused: dict[str, str]) -> bool:
        return False

    def redact(self, text: str) -> str:
        return text


def authorization_of(credential: StoredCredential, secret: str, tokens: OAuthTokens) -> Authorization:
    if credential.kind is CredentialType.BEARER:
        return StaticAuthorization(_bearer(secret), secret)
    if credential.kind is CredentialType.HEADER:
        assert credential.parameters.header is not None
        return StaticAuthorization({credential.parameters.header: secret}, secret)
    return tokens.of(credential, secret)


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}
