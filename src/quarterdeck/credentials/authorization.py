"""What requests to a server carry to be let in."""

from typing import Protocol


class Authorization(Protocol):
    async def headers(self) -> dict[str, str]:
        """For one request. Fetches or refreshes a token first if that is needed. Raises AuthorizationError."""

    def redact(self, text: str) -> str:
        """The text without the secrets: a server may send back what it was sent."""


class AuthorizationError(Exception):
    """The text is for people: without secrets."""
