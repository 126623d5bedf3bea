"""What requests to a server carry to be let in."""

from typing import Protocol


class Authorization(Protocol):
    async def headers(self) -> dict[str, str]:
        """For one request. Fetches or refreshes a token first if that is needed. Raises AuthorizationError."""

    async def renew(self, refused: dict[str, str]) -> bool:
        """A request with the headers `refused` was answered 401. True: `headers` will give others, so the request can
        be repeated, once. False: the secret is not accepted. Many callers with the same headers cause one refresh."""

    def redact(self, text: str) -> str:
        """The text without the secrets: a server may send back what it was sent."""


class AuthorizationError(Exception):
    """The text is for people: without secrets. The detail goes to the operator's log."""

    def __init__(self, message: str, detail: str | None = None) -> None:
        super().__init__(message)
        self.detail = detail or message
