"""Checks signed tokens. joserfc verifies the signature. Which algorithms and claims are accepted is decided here."""

import base64
import hashlib
import hmac
import re
from typing import Any

from joserfc.errors import JoseError
from joserfc.jws import JWSRegistry, deserialize_compact
from msgspec import Struct

from quarterdeck.openid.exchange import Json, read_object
from quarterdeck.openid.keys import ALGORITHMS, Discovery
from quarterdeck.openid.model import OpenIdError

# Of a whole token. Web servers refuse longer headers much earlier; hundreds of groups fit in.
_MAX_CHARACTERS = 64 * 1024
_MAX_HEADER_CHARACTERS = 8 * 1024
_SIGNED = re.compile(r"([A-Za-z0-9_-]+)\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+", re.ASCII)
# The hash of at_hash. That of Ed25519 is part of the algorithm.
_HASHES = {"256": hashlib.sha256, "384": hashlib.sha384, "512": hashlib.sha512}
# Tokens of other kinds, such as access tokens (at+jwt) and logout tokens (logout+jwt), are not for us.
_TYPES = ("jwt", "application/jwt")
_MAX_SUBJECT_CHARACTERS = 255


class _Registry(JWSRegistry):
    # Some providers put their certificates into the header.
    max_header_length = _MAX_HEADER_CHARACTERS
    max_payload_length = _MAX_CHARACTERS
    max_signature_length = 2048
    # EdDSA is accepted with the curve Ed25519 only, and without a warning each time that its name is old.
    algorithms = {**JWSRegistry.algorithms, "EdDSA": JWSRegistry.algorithms["Ed25519"]}  # noqa: RUF012 (the library's)


# Header fields that we do not know are ignored, as RFC 7515 wants it.
_REGISTRY = _Registry(algorithms=list(ALGORITHMS), strict_check_header=False)


class Times(Struct, frozen=True):
    now: float
    skew_seconds: float


class Verified(Struct, frozen=True):
    claims: Json
    alg: str


async def verify_signature(token: str, discovery: Discovery) -> Verified:
    """Raises OpenIdError."""
    header = _read_header(token)
    alg, kid, kind = header.get("alg"), header.get("kid"), header.get("typ")
    if not isinstance(alg, str) or alg not in ALGORITHMS:
        raise refused("The token has an algorithm that is not accepted.")
    # `crit` and `b64` change what is signed.
    if not isinstance(kid, str | None) or "crit" in header or "b64" in header:
        raise refused("The token has a header that is not accepted.")
    if kind is not None and (not isinstance(kind, str) or kind.lower() not in _TYPES):
        raise refused("The token is of another type.")
    key = await discovery.key(kid, alg)
    try:
        signed = deserialize_compact(token, key, registry=_REGISTRY)
        assert signed.payload is not None
        return Verified(read_object(signed.payload), alg)
    except (JoseError, ValueError, TypeError, RecursionError) as fault:
        message = "The signature or the content of the token is not valid."
        raise OpenIdError(message, is_temporary=False, detail=f"{message} {type(fault).__name__}: {fault}") from None


def _read_header(token: str) -> Json:
    # Five parts are an encrypted token. Decryption may inflate it, and we have no key for any.
    parts = _SIGNED.fullmatch(token) if len(token) <= _MAX_CHARACTERS else None
    if parts is None or len(parts[1]) > _MAX_HEADER_CHARACTERS:
        raise refused("The token is not a signed token.")
    try:
        return read_object(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except ValueError:
        raise refused("The token is not a signed token.") from None


def check_times(claims: Json, times: Times) -> None:
    """Raises OpenIdError."""
    expires, issued, begins = _time(claims, "exp"), _time(claims, "iat"), _time(claims, "nbf")
    if expires is None or issued is None:
        raise refused("The token does not say when it was issued and when it expires.")
    if expires + times.skew_seconds <= times.now:
        raise refused("The token has expired.")
    if max(issued, begins or issued) - times.skew_seconds > times.now:
        raise refused("The token is from the future. The clocks of the provider and of this server differ.")


def check_issuer(claims: Json, issuer: str) -> None:
    if claims.get("iss") != issuer:
        raise refused("The token is from another issuer.")


def audiences(claims: Json) -> list[str]:
    found = claims.get("aud")
    if isinstance(found, str):
        return [found]
    if isinstance(found, list) and all(isinstance(one, str) for one in found):
        return found
    raise refused("The token does not say for whom it is.")


def check_client(claims: Json, client_id: str) -> None:
    """As OpenID Connect Core 3.1.3.7 wants it for ID tokens."""
    named = audiences(claims)
    if client_id not in named:
        raise refused("The token is for another client.")
    party = claims.get("azp")
    if party is None and len(named) > 1:
        raise refused("The token is for several clients and does not say for which it was issued.")
    if party is not None and party != client_id:
        raise refused("The token was issued for another client.")


def check_nonce(claims: Json, nonce: str) -> None:
    found = claims.get("nonce")
    if not isinstance(found, str) or not hmac.compare_digest(found.encode(), nonce.encode()):
        raise refused("The token belongs to another sign-in.")


def check_access_token(claims: Json, alg: str, access_token: str) -> None:
    """Providers may leave `at_hash` out."""
    found = claims.get("at_hash")
    if found is None:
        return
    digest = _HASHES.get(alg[2:], hashlib.sha512)(access_token.encode()).digest()
    expected = base64.urlsafe_b64encode(digest[: len(digest) // 2]).rstrip(b"=")
    if not isinstance(found, str) or not hmac.compare_digest(found.encode(), expected):
        raise refused("The access token is not the one of the ID token.")


def subject(claims: Json) -> str:
    found = claims.get("sub")
    if not isinstance(found, str) or not 1 <= len(found) <= _MAX_SUBJECT_CHARACTERS or not found.isprintable():
        raise refused("The provider does not say who signed in.")
    return found


def refused(message: str) -> OpenIdError:
    return OpenIdError(message, is_temporary=False)


def _time(claims: Json, name: str) -> float | None:
    found: Any = claims.get(name)
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise refused("The token has a time that is no number.")
    return float(found)
