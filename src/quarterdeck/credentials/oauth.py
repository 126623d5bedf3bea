"""Access tokens of OAuth client credentials (RFC 6749, section 4.4)."""

from quarterdeck.core.setting_types import AddressExceptions
from quarterdeck.core.settings import CredentialSettings
from quarterdeck.credentials.model import StoredCredential


class OAuthTokens:
    """The tokens of one process."""

    def __init__(self, settings: CredentialSettings, exceptions: AddressExceptions | None) -> None:
        self._settings = settings
        self._exceptions = exceptions

    def check_url(self, url: str) -> None:
        """Raises ServiceError."""


class OAuthAuthorization:
    def __init__(self, tokens: OAuthTokens, credential: StoredCredential, secret: str) -> None:
        self._tokens = tokens

    async def headers(self) -> dict[str, str]:
        raise NotImplementedError

    async def renew(self, refused: dict[str, str]) -> bool:
        raise NotImplementedError

    def redact(self, text: str) -> str:
        raise NotImplementedError
