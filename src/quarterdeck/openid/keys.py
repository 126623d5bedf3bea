"""The discovery document and the keys of a provider: fetched when they are needed, by one request for all who wait, and
kept for a while. A token with an unknown key causes one more request for keys, not more often than the settings say.
"""

import asyncio
import base64
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

import msgspec
from joserfc.errors import JoseError
from joserfc.jwk import Key, import_key
from msgspec import Struct

from quarterdeck.core.errors import ServiceError
from quarterdeck.openid.exchange import Exchange
from quarterdeck.openid.model import OpenIdError, ProviderSettings
from quarterdeck.outbound.rules import read_url

# A provider has one key for each algorithm, and some more while keys are rotated.
_MAX_KEYS = 64
# Verification gets slower with the size of a key and of its exponent.
_RSA_BITS = range(2048, 8193)
_RSA_EXPONENT_BITS = 32

# What a key must be for an algorithm: its type and its curve. HMAC and `none` are not among them.
ALGORITHMS: dict[str, tuple[str, str | None]] = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), ("RSA", None)),
    "ES256": ("EC", "P-256"),
    "ES384": ("EC", "P-384"),
    "ES512": ("EC", "P-521"),
    # Two names of the same algorithm: RFC 8037 and RFC 9864.
    "EdDSA": ("OKP", "Ed25519"),
    "Ed25519": ("OKP", "Ed25519"),
}

T = TypeVar("T")


class Metadata(Struct, frozen=True):
    """The part of a discovery document that is used. Issuers of tokens for CI jobs have only the first two fields."""

    issuer: str
    jwks_uri: str
    authorization_endpoint: str | None = None
    token_endpoint: str | None = None
    userinfo_endpoint: str | None = None
    end_session_endpoint: str | None = None
    token_endpoint_auth_methods_supported: tuple[str, ...] = ("client_secret_basic",)
    authorization_response_iss_parameter_supported: bool = False


class _Jwk(Struct, frozen=True):
    kty: str
    kid: str | None = None
    use: str | None = None
    key_ops: tuple[str, ...] | None = None
    alg: str | None = None
    crv: str | None = None
    n: str | None = None
    e: str | None = None
    x: str | None = None
    y: str | None = None

    def fits(self, alg: str) -> bool:
        kty, curve = ALGORITHMS[alg]
        return (
            self.kty == kty
            and (curve is None or self.crv == curve)
            and self.use in (None, "sig")
            and (self.key_ops is None or "verify" in self.key_ops)
            and (self.alg in (None, alg) or {self.alg, alg} == {"EdDSA", "Ed25519"})
        )


class Discovery:
    """What is known of one provider. All methods raise OpenIdError."""

    def __init__(self, settings: ProviderSettings, exchange: Exchange, now: Callable[[], float]) -> None:
        self._settings = settings
        self._exchange = exchange
        self._now = now
        self._metadata = _Kept(self._fetch_metadata, settings.discovery_seconds, now)
        self._keys = _Kept(self._fetch_keys, settings.discovery_seconds, now)
        # When keys were last fetched because of an unknown one.
        self._looked_at: float | None = None

    async def metadata(self) -> Metadata:
        return await self._metadata.get()

    async def key(self, kid: str | None, alg: str) -> Key:
        """The key of a token with this header."""
        found = _find(await self._keys.get(), kid, alg)
        if found is None and (self._keys.is_on_the_way or self._may_look_again()):
            found = _find(await self._keys.fetch(), kid, alg)
        if found is None:
            raise OpenIdError("The token is signed with a key that the provider does not publish.", is_temporary=False)
        return _import(found)

    def _may_look_again(self) -> bool:
        now = self._now()
        # A clock that was set back must not end the requests.
        if self._looked_at is not None and 0 <= now - self._looked_at < self._settings.key_pause_seconds:
            return False
        self._looked_at = now
        return True

    async def _fetch_metadata(self) -> Metadata:
        issuer = self._settings.issuer
        url = f"{issuer.removesuffix('/')}/.well-known/openid-configuration"
        document = await self._exchange.get(url, "discovery document")
        try:
            metadata = msgspec.convert(document, Metadata)
        except msgspec.ValidationError as fault:
            message = "The discovery document of the provider is not valid."
            raise OpenIdError(message, is_temporary=False, detail=str(fault)) from None
        # Otherwise a provider could speak for another one.
        if metadata.issuer != issuer:
            raise OpenIdError("The discovery document is that of another issuer.", is_temporary=False)
        # Browsers are sent to some of the URLs: they must not be `javascript:…`.
        for field in msgspec.structs.fields(Metadata):
            value = getattr(metadata, field.name)
            if value is not None and field.name.endswith(("_endpoint", "_uri")):
                self._check_url(value, field.name)
        return metadata

    def _check_url(self, url: str, field: str) -> None:
        try:
            read_url(url, self._exchange.policy, field=field)
        except ServiceError as fault:
            raise OpenIdError(f"The discovery document: {fault.message}", is_temporary=False) from None

    async def _fetch_keys(self) -> tuple[_Jwk, ...]:
        """Without those that are no public keys as we know them."""
        document = await self._exchange.get((await self.metadata()).jwks_uri, "key endpoint")
        entries = document.get("keys")
        if not isinstance(entries, list) or len(entries) > _MAX_KEYS:
            raise OpenIdError(f"The provider does not publish a list of 1 to {_MAX_KEYS} keys.", is_temporary=False)
        return tuple(jwk for jwk in map(_read_key, entries) if jwk is not None)


class _Kept(Generic[T]):
    """A value that is fetched once for all who wait for it, and is kept for some time."""

    def __init__(self, fetch: Callable[[], Awaitable[T]], keep_seconds: float, now: Callable[[], float]) -> None:
        self._fetch = fetch
        self._keep_seconds = keep_seconds
        self._now = now
        self._value: tuple[T, float] | None = None
        self._fetching: asyncio.Task[T] | None = None

    @property
    def is_on_the_way(self) -> bool:
        return self._fetching is not None

    async def get(self) -> T:
        if self._value is not None and 0 <= self._now() - self._value[1] < self._keep_seconds:
            return self._value[0]
        return await self.fetch()

    async def fetch(self) -> T:
        if self._fetching is None:
            self._fetching = asyncio.create_task(self._run())
            self._fetching.add_done_callback(self._ended)
        # A caller that is cancelled leaves the others their value.
        return await asyncio.shield(self._fetching)

    async def _run(self) -> T:
        value = await self._fetch()
        self._value = value, self._now()
        return value

    def _ended(self, task: "asyncio.Task[T]") -> None:
        self._fetching = None
        if not task.cancelled():
            # Read here, in case every caller was cancelled.
            task.exception()


def _read_key(entry: Any) -> _Jwk | None:
    try:
        return msgspec.convert(entry, _Jwk)
    except msgspec.ValidationError:
        return None


def _find(keys: tuple[_Jwk, ...], kid: str | None, alg: str) -> _Jwk | None:
    """Without a `kid` there must be no choice."""
    found = [key for key in keys if key.fits(alg) and kid in (None, key.kid)]
    return found[0] if len(found) == 1 else None


def _import(jwk: _Jwk) -> Key:
    # Only the fields of a public key, whatever else the provider published.
    names = {"RSA": ("kty", "n", "e"), "EC": ("kty", "crv", "x", "y"), "OKP": ("kty", "crv", "x")}[jwk.kty]
    fields = {name: getattr(jwk, name) or "" for name in names}
    try:
        if jwk.kty == "RSA":
            _check_rsa(_bits(fields["n"]), _bits(fields["e"]))
        return import_key(fields)
    except (JoseError, ValueError, TypeError) as fault:
        message = "The key of the token is not usable."
        raise OpenIdError(message, is_temporary=False, detail=f"{message} {type(fault).__name__}: {fault}") from None


def _check_rsa(modulus_bits: int, exponent_bits: int) -> None:
    if modulus_bits not in _RSA_BITS or not 2 <= exponent_bits <= _RSA_EXPONENT_BITS:
        raise ValueError(f"an RSA key of {modulus_bits} bits with an exponent of {exponent_bits} bits")


def _bits(number: str) -> int:
    return int.from_bytes(base64.urlsafe_b64decode(number + "=" * (-len(number) % 4))).bit_length()
