"""The Python client. It speaks the public HTTP API only and needs httpx and msgspec, nothing else of the server's."""

from quarterdeck.client.client import AsyncClient, Client
from quarterdeck.client.errors import (
    ApiError,
    ClientOutdated,
    Conflict,
    ConnectionFailed,
    Forbidden,
    Internal,
    InvalidArgument,
    InvalidBundle,
    InvalidRequest,
    NotFound,
    PreconditionFailed,
    QuarterdeckError,
    SecretLost,
    TooManyRequests,
    Unauthorized,
    UnexpectedAnswer,
)
from quarterdeck.client.model import Delta, Event

__all__ = [
    "ApiError",
    "AsyncClient",
    "Client",
    "ClientOutdated",
    "Conflict",
    "ConnectionFailed",
    "Delta",
    "Event",
    "Forbidden",
    "Internal",
    "InvalidArgument",
    "InvalidBundle",
    "InvalidRequest",
    "NotFound",
    "PreconditionFailed",
    "QuarterdeckError",
    "SecretLost",
    "TooManyRequests",
    "Unauthorized",
    "UnexpectedAnswer",
]
