"""Asks a token endpoint for an access token (RFC 6749, section 4.4). The text of its response is not repeated."""

import base64
import re
from typing import Any
from urllib.parse import quote_plus, urlencode
from uuid import UUID

import msgspec
from msgspec import Struct

from quarterdeck.connections.credentials.model import (
    MAX_SECRET_CHARACTERS,
    MIN_SECRET_CHARACTERS,
    AuthorizationError,
    Parameters,
)
from quarterdeck.core.errors import ServiceError
from quarterdeck.outbound.http_client import OutboundClient, OutboundError, read_body

_ANSWER_BYTES = 64 * 1024
# Shorter ones could not be redacted: they occur in ordinary text.
_TOKEN = re.compile(rf"[\x21-\x7e]{{{MIN_SECRET_CHARACTERS},{MAX_SECRET_CHARACTERS}}}", re.ASCII)
_ERROR_CODE = re.compile(r"[a-z_]{1,40}", re.ASCII)
# If the endpoint does not say how long the token is valid.
_USUAL_SECONDS = 300.0
_LONGEST_SECONDS = 24 * 3600.0
_HEADERS = {
    "User-Agent": "Quarterdeck/1",
    "Accept": "application/json",
    "Content-Type": "application/x-www-form-urlencoded",
}

Json = dict[str, Any]


class IssuedToken(Struct, frozen=True):
    text: str
    valid_seconds: float

    def __repr__(self) -> str:
        return f"IssuedToken(valid_seconds={self.valid_seconds})"


async def fetch_token(client: OutboundClient, workspace_id: UUID, parameters: Parameters, secret: str) -> IssuedToken:
    """Raises AuthorizationError."""
    try:
        return _read_token(*await _ask(client, workspace_id, parameters, secret))
    except ServiceError as fault:
        # The settings changed after the URL was stored.
        raise AuthorizationError(fault.message) from None
    except OutboundError as fault:
        raise AuthorizationError(f"No token: {fault}", fault.detail) from None


async def _ask(
    client: OutboundClient, workspace_id: UUID, parameters: Parameters, secret: str
) -> tuple[int, Json | None]:
    """Our client is named in a header, which every endpoint must support, or else in the form."""
    form = {"grant_type": "client_credentials", "scope": parameters.scope, "audience": parameters.audience}
    form = {name: value for name, value in form.items() if value is not None}
    client_id = parameters.client_id or ""
    url = parameters.token_url
    assert url is not None
    status, answer = await _exchange(client, workspace_id, url, form, {"Authorization": _basic(client_id, secret)})
    if status != 200 and answer is not None and answer.get("error") == "invalid_client":
        form |= {"client_id": client_id, "client_secret": secret}
        status, answer = await _exchange(client, workspace_id, url, form, {})
    return status, answer


async def _exchange(
    client: OutboundClient, workspace_id: UUID, url: str, form: dict[str, str | None], headers: dict[str, str]
) -> tuple[int, Json | None]:
    """Without the answer if it is too long, or no JSON object."""
    body = urlencode(form).encode()
    async with client.post(workspace_id, url, _HEADERS | headers, body, field="token_url") as response:
        found = await read_body(response, _ANSWER_BYTES)
    try:
        return response.status, msgspec.json.decode(found or b"", type=Json)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return response.status, None


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
