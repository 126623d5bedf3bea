"""Wrong and hostile tokens and keys are refused for good."""

import asyncio
import hmac
import zlib
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from joserfc.jwk import ECKey, OKPKey, RSAKey

from quarterdeck.openid.model import OpenIdError
from tests.openid.clients import SECRET
from tests.openid.hostile_provider import (
    ACCESS_TOKEN,
    NOW,
    SKEW_SECONDS,
    SUBJECT,
    HostileProvider,
    access_token_hash,
    basic,
    encode,
    redeem,
    relying,
    rsa_key,
    signed,
)

Change = Callable[[HostileProvider], object]
_DISCOVERY = "/.well-known/openid-configuration"
_PATHS = (_DISCOVERY, "/keys", "/token", "/userinfo")
# Made once: it takes a while.
_OTHER_RSA = rsa_key("key-1")


class Clock:
    def __init__(self) -> None:
        self.time = NOW

    def __call__(self) -> float:
        return self.time


async def test_nothing_wrong(hostile: HostileProvider) -> None:
    """Otherwise the refusals below would prove nothing."""
    hostile.claims = {"at_hash": access_token_hash(ACCESS_TOKEN), "sid": "session-1", "azp": "quarterdeck"}
    async with relying(hostile) as provider:
        found = await redeem(provider)
        await redeem(provider, hostile.issuer)
    assert (found.subject, found.email, found.sid) == (SUBJECT, "ada@example.com", "session-1")
    assert found.groups == {"engineering"}
    # Kept for the second sign-in, and userinfo is not needed.
    assert [hostile.asked(path) for path in _PATHS] == [1, 1, 2, 0]
    sent = hostile.received[1]
    assert sent.headers["authorization"] == basic("quarterdeck", SECRET.replace(" ", "+").replace(",", "%2C"))
    assert b"client_secret" not in sent.body


# --- ID tokens ---


def payload(**changes: Any) -> Change:
    def change(hostile: HostileProvider) -> None:
        hostile.claims = changes

    return change


def token(make: Callable[[HostileProvider], str]) -> Change:
    def change(hostile: HostileProvider) -> None:
        hostile.id_token = make(hostile)

    return change


def header(**fields: Any) -> Change:
    return token(lambda hostile: signed(hostile.key, "RS256", hostile.usual_claims, **fields))


def unsigned(hostile: HostileProvider) -> str:
    return f"{encode({'alg': 'none', 'kid': 'key-1'})}.{encode(hostile.usual_claims)}."


def signed_with_the_public_key(form: Callable[[RSAKey], bytes]) -> Callable[[HostileProvider], str]:
    """HMAC with bytes that everybody knows: accepted by whoever lets the token choose the algorithm."""

    def make(hostile: HostileProvider) -> str:
        text = f"{encode({'alg': 'HS256', 'kid': 'key-1'})}.{encode(hostile.usual_claims)}"
        return f"{text}.{encode(hmac.digest(form(hostile.key), text.encode(), 'sha256'))}"

    return make


def encrypted(hostile: HostileProvider) -> str:
    """Would inflate to a hundred megabytes."""
    packer = zlib.compressobj(wbits=-15)
    bomb = packer.compress(b" " * 10**8) + packer.flush()
    head = {"alg": "dir", "enc": "A256GCM", "zip": "DEF", "kid": "key-1"}
    return ".".join([encode(head), "", encode(bytes(12)), encode(bomb[:30_000]), encode(bytes(16))])


def deep(hostile: HostileProvider) -> str:
    text = msgspec.json.encode(hostile.usual_claims)[:-1] + b',"deep":' + b"[" * 15_000 + b"]" * 15_000 + b"}"
    return signed(hostile.key, "RS256", text)


def deep_header(hostile: HostileProvider) -> str:
    text = b'{"alg":"RS256","kid":"key-1","deep":' + b"[" * 2500 + b"]" * 2500 + b"}"
    return f"{encode(text)}.{encode(hostile.usual_claims)}.{encode(bytes(256))}"


def nested(hostile: HostileProvider) -> str:
    inner = signed(hostile.key, "RS256", hostile.usual_claims)
    return signed(hostile.key, "RS256", inner.encode(), cty="JWT")


def changed_payload(hostile: HostileProvider) -> str:
    head, _, signature = signed(hostile.key, "RS256", hostile.usual_claims).split(".")
    return f"{head}.{encode(hostile.usual_claims | {'sub': 'admin'})}.{signature}"


def own_key(hostile: HostileProvider) -> str:
    """With the key to be used in the header of the token."""
    return signed(_OTHER_RSA, "RS256", hostile.usual_claims, jwk=HostileProvider.public(_OTHER_RSA))


_TOKENS: dict[str, tuple[Change, str]] = {
    "none": (token(unsigned), "not a signed token"),
    "none with a signature": (token(lambda one: f"{unsigned(one)}AAAA"), "algorithm that is not accepted"),
    "hmac with the PEM": (token(signed_with_the_public_key(lambda key: key.as_pem(private=False))), "algorithm"),
    "hmac with the modulus": (
        token(signed_with_the_public_key(lambda key: str(key.as_dict(private=False)["n"]).encode())),
        "algorithm that is not accepted",
    ),
    "hmac with the client secret": (token(signed_with_the_public_key(lambda _: SECRET.encode())), "algorithm"),
    "another key with the same name": (
        token(lambda one: signed(_OTHER_RSA, "RS256", one.usual_claims)),
        "signature or the content",
    ),
    "its own key": (token(own_key), "signature or the content"),
    "changed": (token(changed_payload), "signature or the content"),
    "encrypted zip bomb": (token(encrypted), "not a signed token"),
    "nested deep": (token(deep), "signature or the content"),
    "header nested deep": (token(deep_header), "not a signed token"),
    "token in a token": (token(nested), "signature or the content"),
    "huge": (payload(filler="x" * 70_000), "not usable|not a signed token"),
    "no token": (token(lambda _: "x"), "not a signed token"),
    "critical header": (header(crit=["exp"], exp=1), "header that is not accepted"),
    "access token": (header(typ="at+jwt"), "of another type"),
    "logout token": (header(typ="logout+jwt"), "of another type"),
    "wrong issuer": (payload(iss="https://login.example.com"), "from another issuer"),
    "no issuer": (payload(iss=None), "from another issuer"),
    "wrong audience": (payload(aud="another"), "for another client"),
    "no audience": (payload(aud=None), "for whom"),
    "audience that is no text": (payload(aud=[{"quarterdeck": 1}]), "for whom"),
    "several audiences without azp": (payload(aud=["quarterdeck", "another"]), "for several clients"),
    "several audiences, issued for another": (
        payload(aud=["quarterdeck", "another"], azp="another"),
        "issued for another client",
    ),
    "one audience, issued for another": (payload(azp="another"), "issued for another client"),
    "wrong nonce": (payload(nonce="nonce-of-another-sign-in"), "another sign-in"),
    "nonce that is not ASCII": (payload(nonce="nönce"), "another sign-in"),
    "no nonce": (payload(nonce=None), "another sign-in"),
    "expired": (payload(exp=NOW - SKEW_SECONDS - 1), "has expired"),
    "from the future": (payload(iat=NOW + SKEW_SECONDS + 1), "from the future"),
    "not yet valid": (payload(nbf=NOW + SKEW_SECONDS + 1), "from the future"),
    "without an end": (payload(exp=None), "does not say when"),
    "without a beginning": (payload(iat=None), "does not say when"),
    "end that is a text": (payload(exp="2100000000"), "no number"),
    "end that is true": (payload(exp=True), "no number"),
    "wrong at_hash": (payload(at_hash=access_token_hash("another")), "access token"),
    "no subject": (payload(sub=None), "who signed in"),
    "empty subject": (payload(sub=""), "who signed in"),
    "subject with a zero": (payload(sub="a\0b"), "who signed in"),
    "groups that are no names": (payload(groups=[{"name": "admins"}]), "no list of names"),
    "groups left out": (
        lambda one: (payload(groups=None, _claim_names={"groups": "src1"})(one), one.userinfo.update(groups=None)),
        "too many",
    ),
}


@pytest.mark.parametrize("name", _TOKENS)
async def test_id_token_is_refused(hostile: HostileProvider, name: str) -> None:
    change, message = _TOKENS[name]
    change(hostile)
    async with relying(hostile) as provider:
        with pytest.raises(OpenIdError, match=message) as refused:
            await redeem(provider)
    assert not refused.value.is_temporary


_ACCEPTED: dict[str, Change] = {
    "just expired": payload(exp=NOW - SKEW_SECONDS + 1),
    "clock ahead": payload(iat=NOW + SKEW_SECONDS - 1),
    "several audiences": payload(aud=["quarterdeck", "another"], azp="quarterdeck"),
    "unknown header": header(x5t="AAAA", other={"nested": 1}),
    "type in capitals": header(typ="JWT"),
    "one group": payload(groups="engineering"),
    "fractions": payload(exp=NOW + 0.5, iat=NOW - 0.5),
}


@pytest.mark.parametrize("name", _ACCEPTED)
async def test_id_token_is_accepted(hostile: HostileProvider, name: str) -> None:
    _ACCEPTED[name](hostile)
    async with relying(hostile) as provider:
        assert (await redeem(provider)).groups == {"engineering"}


@pytest.mark.parametrize(
    ("key", "alg", "digest"),
    [
        (ECKey.generate_key("P-384", {"kid": "k"}), "ES384", "sha384"),
        (OKPKey.generate_key("Ed25519", {"kid": "k"}), "EdDSA", "sha512"),
        (OKPKey.generate_key("Ed25519", {"kid": "k"}), "Ed25519", "sha512"),
    ],
    ids=["ES384", "EdDSA", "Ed25519"],
)
async def test_at_hash_of_other_algorithms(hostile: HostileProvider, key: Any, alg: str, digest: str) -> None:
    hostile.keys = [hostile.public(key)]
    async with relying(hostile) as provider:
        claims = hostile.usual_claims | {"at_hash": access_token_hash(ACCESS_TOKEN, digest)}
        hostile.id_token = signed(key, alg, claims)
        assert (await redeem(provider)).subject == SUBJECT
        hostile.id_token = signed(key, alg, claims | {"at_hash": access_token_hash("another", digest)})
        with pytest.raises(OpenIdError, match="access token"):
            await redeem(provider)


@pytest.mark.parametrize("missing", ["id_token", "access_token"])
async def test_token_answer_without(hostile: HostileProvider, missing: str) -> None:
    hostile.token_answer = {missing: None}
    # The access token is for the userinfo endpoint.
    hostile.claims = {"groups": None}
    async with relying(hostile) as provider:
        with pytest.raises(OpenIdError, match="sent no") as refused:
            await redeem(provider)
    assert not refused.value.is_temporary


@pytest.mark.parametrize("name", ["access_token", "refresh_token", "id_token"])
@pytest.mark.parametrize("value", ["two\r\nlines", "", 5, {}, "ü"], ids=["lines", "empty", "number", "object", "ü"])
async def test_unusable_tokens(hostile: HostileProvider, name: str, value: Any) -> None:
    hostile.token_answer = {name: value}
    async with relying(hostile) as provider:
        with pytest.raises(OpenIdError, match=f"not usable \\({name}\\)"):
            await redeem(provider)


# --- keys ---


def published(*keys: Any) -> Callable[[HostileProvider], list[Any]]:
    return lambda _: list(keys)


def changed_key(**fields: Any) -> Callable[[HostileProvider], list[Any]]:
    return lambda hostile: [hostile.public(hostile.key) | fields]


_KEYS: dict[str, tuple[Callable[[HostileProvider], list[Any]], str]] = {
    "for encryption": (changed_key(use="enc"), "does not publish"),
    "for another algorithm": (changed_key(alg="RS512"), "does not publish"),
    "for HMAC": (changed_key(alg="HS256"), "does not publish"),
    "for signing": (changed_key(key_ops=["sign"]), "does not publish"),
    "symmetric": (published({"kty": "oct", "kid": "key-1", "k": "AAAA"}), "does not publish"),
    "of another type": (published({"kty": "EC", "kid": "key-1", "crv": "P-256", "x": "AA", "y": "AA"}), "not publish"),
    "two with one name": (
        lambda hostile: [hostile.public(hostile.key), hostile.public(_OTHER_RSA)],
        "does not publish",
    ),
    "without a modulus": (changed_key(n=None), "not usable"),
    "with an even modulus": (changed_key(n=encode(b"\xff" * 256)[:-1] + "A", e="Ag"), "not usable"),
    "with a huge exponent": (changed_key(e=encode(b"\x01" * 256)), "not usable"),
    "with a small modulus": (changed_key(n=encode(b"\x81" * 128)), "not usable"),
    "with a huge modulus": (changed_key(n=encode(b"\x81" * 4096)), "not usable"),
    "none": (published(), "does not publish"),
    "no objects": (published(1, None, [], "key", {"kty": 1}), "does not publish"),
    "too many": (published(*[{"kty": "RSA"}] * 65), "does not publish a list"),
}


@pytest.mark.parametrize("name", _KEYS)
async def test_key_is_not_used(hostile: HostileProvider, name: str) -> None:
    make, message = _KEYS[name]
    hostile.keys = make(hostile)
    async with relying(hostile) as provider:
        with pytest.raises(OpenIdError, match=message) as refused:
            await redeem(provider)
    assert not refused.value.is_temporary


async def test_odd_keys_beside_ours(hostile: HostileProvider) -> None:
    """A key type of next year, for example. A private key is used as a public one."""
    private = dict(hostile.key.as_dict(private=True))
    hostile.keys = [{"kty": "AKP", "kid": "key-1", "pub": "AAAA"}, 1, {"kty": "EC", "kid": 5}, private]
    async with relying(hostile) as provider:
        assert (await redeem(provider)).subject == SUBJECT


async def test_a_token_that_names_no_key(hostile: HostileProvider) -> None:
    hostile.id_token = signed(hostile.key, "RS256", hostile.usual_claims, kid=None)
    async with relying(hostile) as provider:
        assert (await redeem(provider)).subject == SUBJECT
    hostile.keys.append(hostile.public(rsa_key("key-2")))
    async with relying(hostile) as provider:
        with pytest.raises(OpenIdError, match="does not publish"):
            await redeem(provider)


async def test_a_flood_of_unknown_keys(hostile: HostileProvider) -> None:
    clock = Clock()
    async with relying(hostile, clock, key_pause_seconds=10.0) as provider:
        await redeem(provider)

        async def refuse(number: int) -> None:
            unknown = signed(_OTHER_RSA, "RS256", hostile.usual_claims, kid=f"unknown-{number}")
            with pytest.raises(OpenIdError, match="does not publish"):
                await provider.verify_token(unknown, "quarterdeck")

        for number in range(20):
            await refuse(number)
        await asyncio.gather(*map(refuse, range(20, 40)))
        assert hostile.asked("/keys") == 2
        clock.time += 11
        await asyncio.gather(*map(refuse, range(40, 60)))
        assert hostile.asked("/keys") == 3
        # Those with known keys are not held up.
        assert (await redeem(provider)).subject == SUBJECT


async def test_a_new_key_is_found_at_once(hostile: HostileProvider) -> None:
    async with relying(hostile) as provider:
        await redeem(provider)
        new = rsa_key("key-2")
        hostile.keys = [hostile.public(new)]
        hostile.id_token = signed(new, "RS256", hostile.usual_claims)
        # Both wait for the same answer.
        assert {one.subject for one in await asyncio.gather(redeem(provider), redeem(provider))} == {SUBJECT}
        assert hostile.asked("/keys") == 2
        # The replaced key is no longer known.
        hostile.id_token = None
        with pytest.raises(OpenIdError, match="does not publish"):
            await redeem(provider)


async def test_a_withdrawn_key_is_forgotten(hostile: HostileProvider) -> None:
    clock = Clock()
    async with relying(hostile, clock, discovery_seconds=300.0) as provider:
        await redeem(provider)
        hostile.keys = []
        clock.time += 299
        await redeem(provider)
        clock.time += 2
        with pytest.raises(OpenIdError, match="does not publish"):
            await redeem(provider)
        assert hostile.asked(_DISCOVERY) == 2


# --- tokens for others ---


@pytest.mark.parametrize("name", ["none with a signature", "hmac with the PEM", "wrong issuer", "expired", "changed"])
async def test_a_token_of_a_job_is_refused(hostile: HostileProvider, name: str) -> None:
    _TOKENS[name][0](hostile)
    given = hostile.id_token or signed(hostile.key, "RS256", hostile.usual_claims)
    async with relying(hostile) as provider:
        with pytest.raises(OpenIdError) as refused:
            await provider.verify_token(given, "quarterdeck")
    assert not refused.value.is_temporary


@pytest.mark.parametrize("text", ["", ".", "..", "a.b", "é.b.c", "a.b.c", "a.b.c.d.e", "x" * 10**6, "\0", "a.b.c\n"])
async def test_a_text_that_is_no_token(hostile: HostileProvider, text: str) -> None:
    async with relying(hostile) as provider:
        with pytest.raises(OpenIdError, match="not a signed token") as refused:
            await provider.verify_token(text, "quarterdeck")
    assert not refused.value.is_temporary
    assert hostile.received == []
