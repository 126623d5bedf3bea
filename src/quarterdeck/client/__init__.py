"""The Python client for the public HTTP API. It imports nothing of the server and can be installed without it."""

from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from quarterdeck.client.async_client import AsyncClient

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


def __getattr__(name: str) -> Any:
    """Imports `AsyncClient` when it is used: most programs use one of the two clients."""
    if name != "AsyncClient":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from quarterdeck.client.async_client import AsyncClient

    return AsyncClient
