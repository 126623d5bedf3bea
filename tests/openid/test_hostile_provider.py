"""What a wrong or hostile provider sends is refused for good. Only trouble with the network is temporary."""

import asyncio
import hmac
import socket
import zlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest
from joserfc.jwk import ECKey, OKPKey, RSAKey

from quarterdeck.openid.model import OpenIdError, SignedIn
from quarterdeck.openid.provider import Provider
from quarterdeck.outbound.http_client import OutboundClient
from quarterdeck.outbound.rules import AddressPolicy
from tests.openid.clients import CODE_VERIFIER, REDIRECT_URI, SECRET, provider_settings, relying_party
from tests.openid.hostile_provider import (
    ACCESS_TOKEN,
    NONCE,
    NOW,
    SUBJECT,
    HostileProvider,
    access_token_hash,
    basic,
    encode,
    hostile_provider,
    json_answer,
    rsa_key,
    signed,
)
from tests.receivers import Behaviour, answering, babbling, flooding, hanging, resetting

Hostile = HostileProvider
Change = Callable[[Hostile], object]
_DISCOVERY = "/.well-known/openid-configuration"
_PATHS = (_DISCOVERY, "/keys", "/token", "/userinfo")
_SKEW = 60.0
# Made once: it takes a while.
_OTHER_RSA = rsa_key("key-1")


@pytest.fixture
async def hostile() -> AsyncIterator[Hostile]:
    async with hostile_provider() as provider:
        yield provider


class Clock:
    def __init__(self) -> None:
        self.time = NOW

    def __call__(self) -> float:
        return self.time


def relying(hostile: Hostile, now: Callable[[], float] = lambda: NOW, **fields: Any) -> Any:
    return relying_party(provider_settings(hostile.issuer, clock_skew_seconds=_SKEW, **fields), now=now)


async def redeem(provider: Provider, iss: str | None = None) -> SignedIn:
    return await provider.redeem("code", CODE_VERIFIER, REDIRECT_URI, NONCE, iss)


async def test_nothing_wrong(hostile: Hostile) -> None:
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
    def change(hostile: Hostile) -> None:
        hostile.claims = changes

    return change


def token(make: Callable[[Hostile], str]) -> Change:
    def change(hostile: Hostile) -> None:
        hostile.id_token = make(hostile)

    return change


def header(**fields: Any) -> Change:
    return token(lambda hostile: signed(hostile.key, "RS256", hostile.usual_claims, **fields))


def unsigned(hostile: Hostile) -> str:
    return f"{encode({'alg': 'none', 'kid': 'key-1'})}.{encode(hostile.usual_claims)}."


def signed_with_the_public_key(form: Callable[[RSAKey], bytes]) -> Callable[[Hostile], str]:
    """HMAC with bytes that everybody knows: accepted by whoever lets the token choose the algorithm."""

    def make(hostile: Hostile) -> str:
        text = f"{encode({'alg': 'HS256', 'kid': 'key-1'})}.{encode(hostile.usual_claims)}"
        return f"{text}.{encode(hmac.digest(form(hostile.key), text.encode(), 'sha256'))}"

    return make


def encrypted(hostile: Hostile) -> str:
    """Would inflate to a hundred megabytes."""
    packer = zlib.compressobj(wbits=-15)
    bomb = packer.compress(b" " * 10**8) + packer.flush()
    head = {"alg": "dir", "enc": "A256GCM", "zip": "DEF", "kid": "key-1"}
    return ".".join([encode(head), "", encode(bytes(12)), encode(bomb[:30_000]), encode(bytes(16))])


def deep(hostile: Hostile) -> str:
    text = msgspec.json.encode(hostile.usual_claims)[:-1] + b',"deep":' + b"[" * 15_000 + b"]" * 15_000 + b"}"
    return signed(hostile.key, "RS256", text)


def deep_header(hostile: Hostile) -> str:
    text = b'{"alg":"RS256","kid":"key-1","deep":' + b"[" * 2500 + b"]" * 2500 + b"}"
    return f"{encode(text)}.{encode(hostile.usual_claims)}.{encode(bytes(256))}"


def nested(hostile: Hostile) -> str:
    inner = signed(hostile.key, "RS256", hostile.usual_claims)
    return signed(hostile.key, "RS256", inner.encode(), cty="JWT")


def changed_payload(hostile: Hostile) -> str:
    head, _, signature = signed(hostile.key, "RS256", hostile.usual_claims).split(".")
    return f"{head}.{encode(hostile.usual_claims | {'sub': 'admin'})}.{signature}"


def own_key(hostile: Hostile) -> str:
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
    "expired": (payload(exp=NOW - _SKEW - 1), "has expired"),
    "from the future": (payload(iat=NOW + _SKEW + 1), "from the future"),
    "not yet valid": (payload(nbf=NOW + _SKEW + 1), "from the future"),
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
async def test_id_token_is_refused(hostile: Hostile, name: str) -> None:
    change, message = _TOKENS[name]
    change(hostile)
    async with relying(hostile) as provider:
        with pytest.raises(OpenIdError, match=message) as refused:
            await redeem(provider)
    assert not refused.value.is_temporary


_ACCEPTED: dict[str, Change] = {
    "just expired": payload(exp=NOW - _SKEW + 1),
    "clock ahead": payload(iat=NOW + _SKEW - 1),
    "several audiences": payload(aud=["quarterdeck", "another"], azp="quarterdeck"),
    "unknown header": header(x5t="AAAA", other={"nested": 1}),
    "type in capitals": header(typ="JWT"),
    "one group": payload(groups="engineering"),
    "fractions": payload(exp=NOW + 0.5, iat=NOW - 0.5),
}


@pytest.mark.parametrize("name", _ACCEPTED)
async def test_id_token_is_accepted(hostile: Hostile, name: str) -> None:
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
async def test_at_hash_of_other_algorithms(hostile: Hostile, key: Any, alg: str, digest: str) -> None:
    hostile.keys = [hostile.public(key)]
    async with relying(hostile) as provider:
        claims = hostile.usual_claims | {"at_hash": access_token_hash(ACCESS_TOKEN, digest)}
        hostile.id_token = signed(key, alg, claims)
        assert (await redeem(provider)).subject == SUBJECT
        hostile.id_token = signed(key, alg, claims | {"at_hash": access_token_hash("another", digest)})
        with pytest.raises(OpenIdError, match="access token"):
            await redeem(provider)


@pytest.mark.parametrize("missing", ["id_token", "access_token"])
async def test_token_answer_without(hostile: Hostile, missing: str) -> None:
    hostile.token_answer = {missing: None}
    # The access token is for the userinfo endpoint.
    hostile.claims = {"groups": None}
    async with relying(hostile) as provider:
        with pytest.raises(OpenIdError, match="sent no") as refused:
            await redeem(provider)
    assert not refused.value.is_temporary


@pytest.mark.parametrize("name", ["access_token", "refresh_token", "id_token"])
@pytest.mark.parametrize("value", ["two\r\nlines", "", 5, {}, "ü"], ids=["lines", "empty", "number", "object", "ü"])
async def test_unusable_tokens(hostile: Hostile, name: str, value: Any) -> None:
    hostile.token_answer = {name: value}
    async with relying(hostile) as provider:
        with pytest.raises(OpenIdError, match=f"not usable \\({name}\\)"):
            await redeem(provider)


# --- keys ---


def published(*keys: Any) -> Callable[[Hostile], list[Any]]:
    return lambda _: list(keys)


def changed_key(**fields: Any) -> Callable[[Hostile], list[Any]]:
    return lambda hostile: [hostile.public(hostile.key) | fields]


_KEYS: dict[str, tuple[Callable[[Hostile], list[Any]], str]] = {
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
async def test_key_is_not_used(hostile: Hostile, name: str) -> None:
    make, message = _KEYS[name]
    hostile.keys = make(hostile)
    async with relying(hostile) as provider:
        with pytest.raises(OpenIdError, match=message) as refused:
            await redeem(provider)
    assert not refused.value.is_temporary


async def test_odd_keys_beside_ours(hostile: Hostile) -> None:
    """A key type of next year, for example. A private key is used as a public one."""
    private = dict(hostile.key.as_dict(private=True))
    hostile.keys = [{"kty": "AKP", "kid": "key-1", "pub": "AAAA"}, 1, {"kty": "EC", "kid": 5}, private]
    async with relying(hostile) as provider:
        assert (await redeem(provider)).subject == SUBJECT


async def test_a_token_that_names_no_key(hostile: Hostile) -> None:
    hostile.id_token = signed(hostile.key, "RS256", hostile.usual_claims, kid=None)
    async with relying(hostile) as provider:
        assert (await redeem(provider)).subject == SUBJECT
    hostile.keys.append(hostile.public(rsa_key("key-2")))
    async with relying(hostile) as provider:
        with pytest.raises(OpenIdError, match="does not publish"):
            await redeem(provider)


async def test_a_flood_of_unknown_keys(hostile: Hostile) -> None:
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


async def test_a_new_key_is_found_at_once(hostile: Hostile) -> None:
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


async def test_a_withdrawn_key_is_forgotten(hostile: Hostile) -> None:
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


# --- the discovery document and the callback ---


_URL_FIELDS = ["jwks_uri", "authorization_endpoint", "token_endpoint", "userinfo_endpoint", "end_session_endpoint"]


@pytest.mark.parametrize("field", _URL_FIELDS)
@pytest.mark.parametrize("url", ["javascript:alert(1)", "http://10.0.0.1/x", "http://example.com/x", "file:///x", 5])
async def test_urls_of_the_discovery_document(hostile: Hostile, field: str, url: Any) -> None:
    hostile.metadata = {field: url}
    async with relying(hostile) as provider:
        with pytest.raises(OpenIdError, match="discovery document") as refused:
            await provider.authorization_url(REDIRECT_URI, "state", NONCE, CODE_VERIFIER)
    assert not refused.value.is_temporary


@pytest.mark.parametrize("issuer", ["https://login.example.com", "/", "", None])
async def test_the_discovery_document_of_another_issuer(hostile: Hostile, issuer: str | None) -> None:
    hostile.metadata = {"issuer": f"{hostile.issuer}/" if issuer == "/" else issuer}
    async with relying(hostile) as provider:
        with pytest.raises(OpenIdError, match="discovery document") as refused:
            await redeem(provider)
    assert not refused.value.is_temporary
    assert hostile.asked("/token") == 0


async def test_the_callback_of_another_provider(hostile: Hostile) -> None:
    """The code is not sent."""
    async with relying(hostile) as provider:
        with pytest.raises(OpenIdError, match="from another provider") as refused:
            await redeem(provider, "https://login.example.com")
    assert not refused.value.is_temporary
    hostile.metadata = {"authorization_response_iss_parameter_supported": True}
    async with relying(hostile) as provider:
        with pytest.raises(OpenIdError, match="did not say that the answer is from it"):
            await redeem(provider)
        assert hostile.asked("/token") == 0
        assert (await redeem(provider, hostile.issuer)).subject == SUBJECT


async def test_parameters_of_the_authorization(hostile: Hostile) -> None:
    hostile.metadata = {"authorization_endpoint": f"{hostile.issuer}/authorize?tenant=1"}
    # The example of RFC 7636, appendix B.
    verifier, challenge = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk", "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
    async with relying(hostile, authorization_parameters={"prompt": "consent"}) as provider:
        url = await provider.authorization_url("https://qd.example.com/cb?a=b", "st&te", NONCE, verifier)
    assert url == (
        f"{hostile.issuer}/authorize?tenant=1&prompt=consent&response_type=code&client_id=quarterdeck"
        "&redirect_uri=https%3A%2F%2Fqd.example.com%2Fcb%3Fa%3Db&scope=openid+profile+email+groups&state=st%26te"
        f"&nonce={NONCE}&code_challenge={challenge}&code_challenge_method=S256"
    )


async def test_what_a_provider_does_not_have(hostile: Hostile) -> None:
    """An issuer of tokens for CI jobs has keys only."""
    hostile.metadata = dict.fromkeys(_URL_FIELDS[1:])
    async with relying(hostile) as provider:
        assert await provider.end_session_url("hint", REDIRECT_URI) is None
        with pytest.raises(OpenIdError, match="no authorization endpoint"):
            await provider.authorization_url(REDIRECT_URI, "state", NONCE, CODE_VERIFIER)
        with pytest.raises(OpenIdError, match="no token endpoint"):
            await redeem(provider)
        job = signed(hostile.key, "RS256", hostile.usual_claims | {"aud": ["quarterdeck-ci"], "sub": "repo:a/b"})
        assert (await provider.verify_token(job, "quarterdeck-ci"))["sub"] == "repo:a/b"


async def test_a_client_secret_that_the_provider_does_not_take(hostile: Hostile) -> None:
    hostile.metadata = {"token_endpoint_auth_methods_supported": ["private_key_jwt"]}
    async with relying(hostile) as provider:
        with pytest.raises(OpenIdError, match="takes no client secret"):
            await redeem(provider)
    hostile.metadata = {"token_endpoint_auth_methods_supported": ["client_secret_post"]}
    async with relying(hostile) as provider:
        await redeem(provider)
    assert b"&client_id=quarterdeck&client_secret=secret+of+the" in hostile.received[-2].body


# --- userinfo ---


async def test_userinfo_of_another_person(hostile: Hostile) -> None:
    hostile.claims = {"groups": None}
    hostile.userinfo = {"sub": "subject-2"}
    async with relying(hostile) as provider:
        with pytest.raises(OpenIdError, match="about another person") as refused:
            await redeem(provider)
        assert not refused.value.is_temporary
        hostile.userinfo = {"sub": None}
        with pytest.raises(OpenIdError, match="who signed in"):
            await redeem(provider)


async def test_the_id_token_comes_first(hostile: Hostile) -> None:
    hostile.claims = {"groups": None}
    hostile.userinfo = {"email": "other@example.com"}
    async with relying(hostile) as provider:
        found = await redeem(provider)
    assert (found.email, sorted(found.groups)) == ("ada@example.com", ["of-userinfo"])
    assert hostile.received[-1].headers["authorization"] == f"Bearer {ACCESS_TOKEN}"


@pytest.mark.parametrize(
    ("claims", "userinfo", "expected"),
    [
        ({"email": None, "email_verified": True}, {}, ("of-userinfo@example.com", False)),
        ({"email": None}, {"email_verified": "true"}, ("of-userinfo@example.com", True)),
        ({"email": None}, {"email_verified": "yes"}, ("of-userinfo@example.com", False)),
        ({"email_verified": None, "groups": None}, {"email_verified": True}, ("ada@example.com", False)),
        ({"email": None, "email_verified": True}, {"email": None}, (None, False)),
        ({"email": "a\nb"}, {}, (None, False)),
    ],
)
async def test_who_says_that_an_address_is_verified(
    hostile: Hostile, claims: Any, userinfo: Any, expected: tuple[str | None, bool]
) -> None:
    hostile.claims, hostile.userinfo = claims, userinfo
    async with relying(hostile) as provider:
        found = await redeem(provider)
    assert (found.email, found.is_email_verified) == expected


# --- answers ---


_MOVED = "Location: http://127.0.0.1:1/elsewhere\r\n"
_REFUSED: dict[str, Behaviour] = {
    "huge": flooding,
    "redirect": answering(302, _MOVED),
    "redirect that keeps the method": answering(307, _MOVED),
    "text": answering(200, "", b"<html>Sign in</html>"),
    "empty": answering(200),
    "list": json_answer([1]),
    "not UTF-8": answering(200, "", b'{"a":"\xff"}'),
    "nested deep": answering(200, "", b'{"a":' + b"[" * 100_000),
    "many values": answering(200, "", b'{"sub":"' + SUBJECT.encode() + b'","a":[' + b"[]," * 20_000 + b"0]}"),
    "not found": answering(404),
    "forbidden": json_answer({"error": "access_denied"}, 403),
}
_TEMPORARY: dict[str, Behaviour] = {
    "overloaded": answering(503),
    "error of the server": json_answer({"error": "server_error"}, 400),
    "too many requests": answering(429),
    "proxy": answering(502, "", b"<html>Bad gateway</html>"),
    "reset": resetting,
    "cut off": answering(200, "Transfer-Encoding: chunked\r\n"),
    "another protocol": babbling,
}


@pytest.mark.parametrize("path", _PATHS)
@pytest.mark.parametrize("name", [*_REFUSED, *_TEMPORARY])
async def test_answers(hostile: Hostile, path: str, name: str) -> None:
    # So that userinfo is needed.
    hostile.claims = {"groups": None}
    hostile.behaviours[path] = (_REFUSED | _TEMPORARY)[name]
    async with relying(hostile) as provider:
        with pytest.raises(OpenIdError) as refused:
            await redeem(provider)
        assert refused.value.is_temporary == (name in _TEMPORARY), str(refused.value)
        # An error is not kept.
        del hostile.behaviours[path]
        assert (await redeem(provider)).subject == SUBJECT
    assert hostile.asked("/elsewhere") == 0


@pytest.mark.parametrize("path", _PATHS)
async def test_a_provider_that_never_answers(hostile: Hostile, path: str) -> None:
    """On a slow machine an earlier request or the connection times out, with the same result."""
    hostile.claims = {"groups": None}
    hostile.behaviours[path] = hanging
    settings = provider_settings(hostile.issuer)
    async with relying_party(settings, seconds=0.5, now=lambda: NOW) as provider:
        with pytest.raises(OpenIdError) as refused:
            await redeem(provider)
    assert refused.value.is_temporary


async def test_a_provider_that_is_not_there() -> None:
    # Nobody listens.
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        async with relying_party(provider_settings(f"http://127.0.0.1:{bound.getsockname()[1]}")) as provider:
            with pytest.raises(OpenIdError, match="could not be reached") as refused:
                await redeem(provider)
    assert refused.value.is_temporary


async def test_an_address_that_is_not_allowed(hostile: Hostile) -> None:
    client = OutboundClient(AddressPolicy(), 60)
    with pytest.raises(OpenIdError, match="must start with https") as refused:
        await redeem(Provider(provider_settings(hostile.issuer), client))
    client.close()
    assert not refused.value.is_temporary
    assert hostile.received == []


async def test_texts_of_a_provider_are_not_repeated(hostile: Hostile) -> None:
    async with relying(hostile) as provider:
        for code in ("<script>", "x" * 41, {"a": 1}, "Line\nbreak"):
            hostile.behaviours["/token"] = json_answer({"error": code, "error_description": "<script>"}, 400)
            with pytest.raises(OpenIdError) as refused:
                await redeem(provider)
            assert str(refused.value) == "The token endpoint of the provider answered 400."
            assert refused.value.detail == str(refused.value)


async def test_a_caller_that_gives_up_takes_nothing_from_the_others(hostile: Hostile) -> None:
    go = asyncio.Event()

    async def wait(writer: asyncio.StreamWriter) -> None:
        await go.wait()
        await json_answer(hostile.answer(_DISCOVERY))(writer)

    hostile.behaviours[_DISCOVERY] = wait
    async with relying(hostile) as provider:
        first, second = asyncio.create_task(redeem(provider)), asyncio.create_task(redeem(provider))
        while not hostile.received:
            await asyncio.sleep(0)
        first.cancel()
        go.set()
        assert (await second).subject == SUBJECT
    assert hostile.asked(_DISCOVERY) == 1


# --- refresh ---


async def test_an_ended_grant_is_refused_for_good(hostile: Hostile) -> None:
    hostile.behaviours["/token"] = json_answer({"error": "invalid_grant"}, 400)
    async with relying(hostile) as provider:
        with pytest.raises(OpenIdError, match=r"\(invalid_grant\)") as refused:
            await provider.refresh("refresh-1", SUBJECT)
    assert not refused.value.is_temporary


@pytest.mark.parametrize("name", _TEMPORARY)
async def test_a_refresh_may_be_tried_again(hostile: Hostile, name: str) -> None:
    hostile.behaviours["/token"] = _TEMPORARY[name]
    async with relying(hostile) as provider:
        with pytest.raises(OpenIdError) as refused:
            await provider.refresh("refresh-1", SUBJECT)
    assert refused.value.is_temporary


async def test_a_refresh(hostile: Hostile) -> None:
    hostile.claims = {"nonce": None, "groups": ["sales"]}
    async with relying(hostile) as provider:
        found = await provider.refresh("refresh 1&x", SUBJECT)
        assert (found.groups, found.refresh_token) == ({"sales"}, "refresh 1&x")
        assert hostile.received[1].body == b"grant_type=refresh_token&refresh_token=refresh+1%26x"
        hostile.token_answer = {"refresh_token": "refresh-2"}
        assert (await provider.refresh("refresh-1", SUBJECT)).refresh_token == "refresh-2"


async def test_a_refresh_without_an_id_token(hostile: Hostile) -> None:
    hostile.token_answer = {"id_token": None}
    async with relying(hostile) as provider:
        found = await provider.refresh("refresh-1", SUBJECT)
        assert (found.groups, found.id_token) == ({"of-userinfo"}, None)
        hostile.userinfo = {"sub": "subject-2"}
        with pytest.raises(OpenIdError, match="another person"):
            await provider.refresh("refresh-1", SUBJECT)
    hostile.metadata = {"userinfo_endpoint": None}
    async with relying(hostile) as provider:
        with pytest.raises(OpenIdError, match="says nothing about the person"):
            await provider.refresh("refresh-1", SUBJECT)


@pytest.mark.parametrize("changes", [{"sub": "subject-2"}, {"iss": "https://other"}, {"aud": "x"}, {"exp": NOW - 999}])
async def test_a_refresh_checks_the_id_token(hostile: Hostile, changes: dict[str, Any]) -> None:
    hostile.claims = changes
    async with relying(hostile) as provider:
        with pytest.raises(OpenIdError) as refused:
            await provider.refresh("refresh-1", SUBJECT)
    assert not refused.value.is_temporary


# --- tokens for others ---


@pytest.mark.parametrize("name", ["none with a signature", "hmac with the PEM", "wrong issuer", "expired", "changed"])
async def test_a_token_of_a_job_is_refused(hostile: Hostile, name: str) -> None:
    _TOKENS[name][0](hostile)
    given = hostile.id_token or signed(hostile.key, "RS256", hostile.usual_claims)
    async with relying(hostile) as provider:
        with pytest.raises(OpenIdError) as refused:
            await provider.verify_token(given, "quarterdeck")
    assert not refused.value.is_temporary


@pytest.mark.parametrize("text", ["", ".", "..", "a.b", "é.b.c", "a.b.c", "a.b.c.d.e", "x" * 10**6, "\0", "a.b.c\n"])
async def test_a_text_that_is_no_token(hostile: Hostile, text: str) -> None:
    async with relying(hostile) as provider:
        with pytest.raises(OpenIdError, match="not a signed token") as refused:
            await provider.verify_token(text, "quarterdeck")
    assert not refused.value.is_temporary
    assert hostile.received == []
