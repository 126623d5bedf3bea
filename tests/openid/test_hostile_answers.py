"""Wrong and hostile answers are refused for good. Only trouble with the network is temporary."""

import asyncio
import socket
from typing import Any

import pytest

from quarterdeck.openid.model import OpenIdError
from quarterdeck.openid.provider import Provider
from quarterdeck.outbound.http_client import OutboundClient
from quarterdeck.outbound.rules import AddressPolicy
from tests.openid.clients import CODE_VERIFIER, REDIRECT_URI, provider_settings, relying_party
from tests.openid.hostile_provider import (
    ACCESS_TOKEN,
    NONCE,
    NOW,
    SUBJECT,
    HostileProvider,
    json_answer,
    redeem,
    relying,
    signed,
)
from tests.receivers import Behaviour, answering, babbling, flooding, hanging, resetting

_DISCOVERY = "/.well-known/openid-configuration"
_PATHS = (_DISCOVERY, "/keys", "/token", "/userinfo")


# --- the discovery document and the callback ---


_URL_FIELDS = ["jwks_uri", "authorization_endpoint", "token_endpoint", "userinfo_endpoint", "end_session_endpoint"]


@pytest.mark.parametrize("field", _URL_FIELDS)
@pytest.mark.parametrize("url", ["javascript:alert(1)", "http://10.0.0.1/x", "http://example.com/x", "file:///x", 5])
async def test_urls_of_the_discovery_document(hostile: HostileProvider, field: str, url: Any) -> None:
    hostile.metadata = {field: url}
    async with relying(hostile) as provider:
        with pytest.raises(OpenIdError, match="discovery document") as refused:
            await provider.authorization_url(REDIRECT_URI, "state", NONCE, CODE_VERIFIER)
    assert not refused.value.is_temporary


@pytest.mark.parametrize("issuer", ["https://login.example.com", "/", "", None])
async def test_the_discovery_document_of_another_issuer(hostile: HostileProvider, issuer: str | None) -> None:
    hostile.metadata = {"issuer": f"{hostile.issuer}/" if issuer == "/" else issuer}
    async with relying(hostile) as provider:
        with pytest.raises(OpenIdError, match="discovery document") as refused:
            await redeem(provider)
    assert not refused.value.is_temporary
    assert hostile.asked("/token") == 0


async def test_the_callback_of_another_provider(hostile: HostileProvider) -> None:
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


async def test_parameters_of_the_authorization(hostile: HostileProvider) -> None:
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


async def test_what_a_provider_does_not_have(hostile: HostileProvider) -> None:
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


async def test_a_client_secret_that_the_provider_does_not_take(hostile: HostileProvider) -> None:
    hostile.metadata = {"token_endpoint_auth_methods_supported": ["private_key_jwt"]}
    async with relying(hostile) as provider:
        with pytest.raises(OpenIdError, match="takes no client secret"):
            await redeem(provider)
    hostile.metadata = {"token_endpoint_auth_methods_supported": ["client_secret_post"]}
    async with relying(hostile) as provider:
        await redeem(provider)
    assert b"&client_id=quarterdeck&client_secret=secret+of+the" in hostile.received[-2].body


# --- userinfo ---


async def test_userinfo_of_another_person(hostile: HostileProvider) -> None:
    hostile.claims = {"groups": None}
    hostile.userinfo = {"sub": "subject-2"}
    async with relying(hostile) as provider:
        with pytest.raises(OpenIdError, match="about another person") as refused:
            await redeem(provider)
        assert not refused.value.is_temporary
        hostile.userinfo = {"sub": None}
        with pytest.raises(OpenIdError, match="who signed in"):
            await redeem(provider)


async def test_the_id_token_comes_first(hostile: HostileProvider) -> None:
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
    hostile: HostileProvider, claims: Any, userinfo: Any, expected: tuple[str | None, bool]
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
async def test_answers(hostile: HostileProvider, path: str, name: str) -> None:
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
async def test_a_provider_that_never_answers(hostile: HostileProvider, path: str) -> None:
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


async def test_an_address_that_is_not_allowed(hostile: HostileProvider) -> None:
    client = OutboundClient(AddressPolicy(), 60)
    with pytest.raises(OpenIdError, match="must start with https") as refused:
        await redeem(Provider(provider_settings(hostile.issuer), client))
    client.close()
    assert not refused.value.is_temporary
    assert hostile.received == []


async def test_texts_of_a_provider_are_not_repeated(hostile: HostileProvider) -> None:
    async with relying(hostile) as provider:
        for code in ("<script>", "x" * 41, {"a": 1}, "Line\nbreak"):
            hostile.behaviours["/token"] = json_answer({"error": code, "error_description": "<script>"}, 400)
            with pytest.raises(OpenIdError) as refused:
                await redeem(provider)
            assert str(refused.value) == "The token endpoint of the provider answered 400."
            assert refused.value.detail == str(refused.value)


async def test_a_caller_that_gives_up_takes_nothing_from_the_others(hostile: HostileProvider) -> None:
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


async def test_an_ended_grant_is_refused_for_good(hostile: HostileProvider) -> None:
    hostile.behaviours["/token"] = json_answer({"error": "invalid_grant"}, 400)
    async with relying(hostile) as provider:
        with pytest.raises(OpenIdError, match=r"\(invalid_grant\)") as refused:
            await provider.refresh("refresh-1", SUBJECT)
    assert not refused.value.is_temporary


@pytest.mark.parametrize("name", _TEMPORARY)
async def test_a_refresh_may_be_tried_again(hostile: HostileProvider, name: str) -> None:
    hostile.behaviours["/token"] = _TEMPORARY[name]
    async with relying(hostile) as provider:
        with pytest.raises(OpenIdError) as refused:
            await provider.refresh("refresh-1", SUBJECT)
    assert refused.value.is_temporary


async def test_a_refresh(hostile: HostileProvider) -> None:
    hostile.claims = {"nonce": None, "groups": ["sales"]}
    async with relying(hostile) as provider:
        found = await provider.refresh("refresh 1&x", SUBJECT)
        assert (found.groups, found.refresh_token) == ({"sales"}, "refresh 1&x")
        assert hostile.received[1].body == b"grant_type=refresh_token&refresh_token=refresh+1%26x"
        hostile.token_answer = {"refresh_token": "refresh-2"}
        assert (await provider.refresh("refresh-1", SUBJECT)).refresh_token == "refresh-2"


async def test_a_refresh_without_an_id_token(hostile: HostileProvider) -> None:
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
async def test_a_refresh_checks_the_id_token(hostile: HostileProvider, changes: dict[str, Any]) -> None:
    hostile.claims = changes
    async with relying(hostile) as provider:
        with pytest.raises(OpenIdError) as refused:
            await provider.refresh("refresh-1", SUBJECT)
    assert not refused.value.is_temporary
