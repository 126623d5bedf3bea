"""Asks a token endpoint for an access token (RFC 6749, section 4.4). No redirects, no proxies, no decompression; the
response is bounded, and nothing of its text is repeated. Imported with the first such credential.
"""

import asyncio
import base64
import re
import ssl
from contextlib import aclosing
from typing import Any
from urllib.parse import quote_plus, urlencode
from uuid import UUID

import httpcore2
import msgspec
from msgspec import Struct

from quarterdeck.connections.credentials.model import (
    MAX_SECRET_CHARACTERS,
    MIN_SECRET_CHARACTERS,
    AuthorizationError,
    Parameters,
)
from quarterdeck.core.errors import ServiceError
from quarterdeck.outbound.network_backend import CheckedBackend, UnreachableError
from quarterdeck.outbound.resolver import Resolve, ResolveFor, Resolver
from quarterdeck.outbound.rules import AddressPolicy, OutboundTarget, read_url

_ANSWER_BYTES = 64 * 1024
# Shorter ones could not be redacted: they occur in ordinary text.
_TOKEN = re.compile(rf"[\x21-\x7e]{{{MIN_SECRET_CHARACTERS},{MAX_SECRET_CHARACTERS}}}", re.ASCII)
_ERROR_CODE = re.compile(r"[a-z_]{1,40}", re.ASCII)
# If the endpoint does not say how long the token is valid.
_USUAL_SECONDS = 300.0
_LONGEST_SECONDS = 24 * 3600.0
_RESOLVER_THREADS = 4
_AGENT = "Quarterdeck/1"

Json = dict[str, Any]


class IssuedToken(Struct, frozen=True):
    text: str
    valid_seconds: float

    def __repr__(self) -> str:
        return f"IssuedToken(valid_seconds={self.valid_seconds})"


class TokenEndpoint:
    """The client for all token endpoints."""

    def __init__(
        self,
        timeout_seconds: float,
        policy: AddressPolicy,
        *,
        resolve: Resolve | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._timeout_seconds = timeout_seconds
        self._policy = policy
        self._resolver = Resolver(_RESOLVER_THREADS)
        self._resolve_for: ResolveFor = self._resolver.for_workspace if resolve is None else lambda _: resolve
        self._tls = tls

    async def fetch(self, workspace_id: UUID, parameters: Parameters, secret: str) -> IssuedToken:
        """Raises AuthorizationError."""
        assert parameters.token_url is not None
        try:
            target = read_url(parameters.token_url, self._policy, field="token_url")
            backend = CheckedBackend(
                self._policy, self._resolve_for(workspace_id), timeout_seconds=self._timeout_seconds
            )
            async with asyncio.timeout(self._timeout_seconds):
                status, answer = await self._ask(backend, target, parameters, secret)
        except ServiceError as fault:
            # The settings changed after the URL was stored.
            raise AuthorizationError(fault.message) from None
        except UnreachableError as fault:
            raise AuthorizationError(f"No token: {fault}", fault.detail) from None
        except TimeoutError:
            raise AuthorizationError(
                f"The token endpoint did not answer within {self._timeout_seconds:g} seconds."
            ) from None
        except (httpcore2.TimeoutException, httpcore2.NetworkError, httpcore2.ProtocolError, OSError) as fault:
            detail = f"{type(fault).__name__}: {fault}"
            raise AuthorizationError("The connection to the token endpoint failed.", detail) from None
        return _read_token(status, answer)

    async def _ask(
        self, backend: CheckedBackend, target: OutboundTarget, parameters: Parameters, secret: str
    ) -> tuple[int, Json | None]:
        """The client is named in a header, which every endpoint must support, or else in the form."""
        form = {"grant_type": "client_credentials", "scope": parameters.scope, "audience": parameters.audience}
        form = {name: value for name, value in form.items() if value is not None}
        client = (parameters.client_id or "", secret)
        status, answer = await self._exchange(backend, target, form, {"Authorization": _basic(*client)})
        if status != 200 and answer is not None and answer.get("error") == "invalid_client":
            form |= {"client_id": client[0], "client_secret": client[1]}
            status, answer = await self._exchange(backend, target, form, {})
        return status, answer

    async def _exchange(
        self, backend: CheckedBackend, target: OutboundTarget, form: dict[str, str | None], headers: dict[str, str]
    ) -> tuple[int, Json | None]:
        origin = httpcore2.Origin(target.scheme.encode(), target.host.encode(), target.port)
        url = httpcore2.URL(scheme=target.scheme, host=target.host, port=target.port, target=target.path)
        own = {"Host": target.authority, "User-Agent": _AGENT, "Accept": "application/json", "Connection": "close"}
        own["Content-Type"] = "application/x-www-form-urlencoded"
        sent: list[tuple[bytes | str, bytes | str]] = [*own.items(), *headers.items()]
        body = urlencode(form).encode()
        async with (
            httpcore2.AsyncHTTPConnection(origin, self._trust(target), network_backend=backend) as connection,
            connection.stream("POST", url, headers=sent, content=body) as response,
        ):
            return response.status, await _read_json(response)

    def _trust(self, target: OutboundTarget) -> ssl.SSLContext | None:
        """Created on first use: loading the CA certificates is slow, and most processes never need them."""
        if self._tls is None and target.scheme == "https":
            self._tls = httpcore2.default_ssl_context()
        return self._tls

    def close(self) -> None:
        self._resolver.close()


async def _read_json(response: httpcore2.Response) -> Json | None:
    """None: the body is too long, or no JSON object."""
    body = b""
    async with aclosing(response.aiter_stream()) as chunks:
        async for chunk in chunks:
            body += chunk
            if len(body) > _ANSWER_BYTES:
                return None
    try:
        return msgspec.json.decode(body, type=Json)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _read_token(status: int, answer: Json | None) -> IssuedToken:
    if status != 200:
        code = answer.get("error") if answer is not None else None
        reason = f" ({code})" if isinstance(code, str) and _ERROR_CODE.fullmatch(code) else ""
        raise AuthorizationError(f"The token endpoint answered {status}{reason}.")
    token = answer.get("access_token") if answer is not None else None
    if answer is None or not isinstance(token, str) or not _TOKEN.fullmatch(token):
        raise AuthorizationError("The response of the token endpoint has no usable access_token.")
    if str(answer.get("token_type", "bearer")).lower() != "bearer":
        raise AuthorizationError("The token endpoint gave a token that is not a bearer token.")
    return IssuedToken(token, _valid_seconds(answer.get("expires_in")))


def _valid_seconds(expires_in: object) -> float:
    """Some endpoints send a text instead of a number."""
    try:
        seconds = float(expires_in) if isinstance(expires_in, (int, float, str)) else _USUAL_SECONDS
    except (ValueError, OverflowError):
        seconds = _USUAL_SECONDS
    # Also for NaN.
    return seconds if 0 <= seconds <= _LONGEST_SECONDS else _LONGEST_SECONDS if seconds > 0 else 0.0


def _basic(client_id: str, secret: str) -> str:
    """Both are form-encoded first (RFC 6749, section 2.3.1)."""
    pair = f"{quote_plus(client_id)}:{quote_plus(secret)}"
    return f"Basic {base64.b64encode(pair.encode()).decode()}"
