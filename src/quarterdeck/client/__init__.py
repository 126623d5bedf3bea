"""The Python client for the public HTTP API. It imports nothing of the server and can be installed without it."""

from quarterdeck.client.async_client import AsyncClient
from quarterdeck.client.client import Client
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
from quarterdeck.client.models import Delta, Event, ModelRetry

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
    "ModelRetry",
    "NotFound",
    "PreconditionFailed",
    "QuarterdeckError",
    "SecretLost",
    "TooManyRequests",
    "Unauthorized",
    "UnexpectedAnswer",
]
