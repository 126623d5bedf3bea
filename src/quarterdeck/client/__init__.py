"""The Python client for the public HTTP API. It imports nothing of the server and can be installed without it."""

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
from quarterdeck.client.models import Delta, Event

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
