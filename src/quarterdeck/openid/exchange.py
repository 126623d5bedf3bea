"""Requests to a provider, and their answers: JSON objects of limited size. Texts of a provider are not repeated in
messages, except for codes of errors.
"""

import re
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode
from uuid import NAMESPACE_URL, uuid5

import httpcore2
import msgspec

from quarterdeck.core.errors import ServiceError
from quarterdeck.openid.model import OpenIdError
from quarterdeck.outbound.http_client import OutboundClient, OutboundError, read_body

Json = dict[str, Any]

# Discovery documents and keys have some kilobytes, tokens with hundreds of groups some tens.
_ANSWER_BYTES = 256 * 1024
# About as many values as it has commas and brackets. Decoding 256 KiB of empty lists takes 60 ms, so many of them 2 ms.
_MAX_VALUES = 20_000
_ERROR_CODE = re.compile(r"[a-z_]{1,40}", re.ASCII)
_HEADERS = {"User-Agent": "Quarterdeck/1", "Accept": "application/json"}
_FORM = {"Content-Type": "application/x-www-form-urlencoded"}
# Errors that OAuth names so (RFC 6749, section 4.1.2.1), and refusals because of load.
_TEMPORARY_CODES = ("server_error", "temporarily_unavailable", "slow_down")
_TEMPORARY_STATUSES = (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS)


class Exchange:
    """With one provider."""

    def __init__(self, client: OutboundClient, issuer: str) -> None:
        self.policy = client.policy
        self._client = client
        # Lookups of names are shared fairly by this id. No provider can hold up another one.
        self._owner = uuid5(NAMESPACE_URL, issuer)

    async def get(self, url: str, what: str, access_token: str | None = None) -> Json:
        """`what` names the endpoint in messages. Raises OpenIdError."""
        authorization = {} if access_token is None else {"Authorization": f"Bearer {access_token}"}
        return await _answer(self._client.get(self._owner, url, _HEADERS | authorization, field=what), what)

    async def post(self, url: str, what: str, form: Mapping[str, str], headers: dict[str, str]) -> Json:
        """Raises OpenIdError."""
        body = urlencode(form).encode()
        sent = _HEADERS | _FORM | headers
        return await _answer(self._client.post(self._owner, url, sent, body, field=what), what)


async def _answer(request: AbstractAsyncContextManager[httpcore2.Response], what: str) -> Json:
    try:
        async with request as response:
            body = await read_body(response, _ANSWER_BYTES)
    except ServiceError as fault:
        raise OpenIdError(fault.message, is_temporary=False) from None
    except OutboundError as fault:
        raise OpenIdError(f"The {what} of the provider: {fault}", is_temporary=True, detail=fault.detail) from None
    if response.status != 200:
        raise _refusal(response.status, what, body)
    if body is None:
        raise OpenIdError(f"The {what} of the provider sent more than {_ANSWER_BYTES} bytes.", is_temporary=False)
    try:
        return read_object(body)
    except ValueError:
        raise OpenIdError(f"The {what} of the provider sent no JSON object.", is_temporary=False) from None


def _refusal(status: int, what: str, body: bytes | None) -> OpenIdError:
    try:
        code = read_object(body or b"").get("error")
    except ValueError:
        code = None
    known = code if isinstance(code, str) and _ERROR_CODE.fullmatch(code) else None
    is_temporary = status >= 500 or status in _TEMPORARY_STATUSES or known in _TEMPORARY_CODES
    reason = "" if known is None else f" ({known})"
    return OpenIdError(f"The {what} of the provider answered {status}{reason}.", is_temporary, code=known)


def read_object(text: bytes) -> Json:
    """Raises ValueError, also for JSON that is nested too deep or would hold up the event loop for long."""
    if sum(map(text.count, (b",", b"[", b"{"))) > _MAX_VALUES:
        raise ValueError("too many values")
    try:
        return msgspec.json.decode(text, type=Json)
    except RecursionError:
        raise ValueError("nested too deep") from None
