"""The authorizations that credentials give. See the protocol in authorization.py."""

from uuid import UUID

from quarterdeck.connections.credentials import redaction
from quarterdeck.connections.credentials.model import (
    Authorization,
    AuthorizationError,
    CredentialType,
    StoredCredential,
)
from quarterdeck.connections.credentials.oauth import OAuthAuthorization, OAuthTokens
from quarterdeck.core.logging import fields, log


class StaticAuthorization:
    """The secret is the value of a header."""

    def __init__(self, header: str, value: str, secret: str) -> None:
        self._headers = {header: value}
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
        return StaticAuthorization("Authorization", f"Bearer {secret}", secret)
    if credential.kind is CredentialType.HEADER:
        assert credential.parameters.header is not None
        return StaticAuthorization(credential.parameters.header, secret, secret)
    return OAuthAuthorization(tokens.of(credential, secret))
