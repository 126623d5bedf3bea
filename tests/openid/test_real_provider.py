"""Sign-in, refresh and sign-out at oidc-provider."""

import asyncio
import secrets
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from quarterdeck.openid.model import Claims, OpenIdError
from quarterdeck.openid.provider import Provider
from tests.openid.clients import REDIRECT_URI, SECRET, provider_settings, relying_party
from tests.openid.real_provider import RealProvider, account, client, real_provider

pytestmark = pytest.mark.long

_SIGNED_OUT = "http://127.0.0.1:1/signed-out"
_ALGORITHMS = ("RS256", "PS256", "ES256", "EdDSA")
# By id: how the client is registered, and what our settings say.
_AUTHENTICATIONS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "basic": ({"secret": "with spaces: and % + & more/"}, {"client_secret": "with spaces: and % + & more/"}),
    "post": ({"method": "client_secret_post"}, {"client_authentication": "client_secret_post"}),
    "public": ({"secret": None}, {"client_secret": None}),
}


@pytest.fixture(scope="module")
def real() -> Iterator[RealProvider]:
    clients = [client("quarterdeck", REDIRECT_URI, secret=SECRET)]
    clients += [client(f"with-{alg}", REDIRECT_URI, secret=SECRET, algorithm=alg) for alg in _ALGORITHMS]
    clients += [client(name, REDIRECT_URI, **registered) for name, (registered, _) in _AUTHENTICATIONS.items()]
    with real_provider(*clients, accounts={"ada": account("ada", "engineering", "staff")}) as provider:
        yield provider


async def signed_in(real: RealProvider, provider: Provider, name: str = "ada") -> Claims:
    """Through the login page."""
    state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
    url = await provider.authorization_url(REDIRECT_URI, state, nonce, verifier)
    callback = await asyncio.to_thread(real.sign_in, url, name)
    assert callback["state"] == state
    return await provider.redeem(callback["code"], verifier, REDIRECT_URI, nonce, callback["iss"])


async def test_a_person_signs_in(real: RealProvider) -> None:
    async with relying_party(provider_settings(real.issuer)) as provider:
        found = await signed_in(real, provider)
    assert (found.issuer, found.subject) == (real.issuer, "ada")
    assert (found.email, found.is_email_verified, found.name) == ("ada@example.com", True, "Ada")
    assert found.groups == {"engineering", "staff"}
    assert found.refresh_token is not None
    assert found.id_token is not None
    assert found.sid is None
    assert found.refresh_token not in repr(found)
    assert found.id_token not in repr(found)


async def test_claims_of_the_userinfo_endpoint() -> None:
    clients = client("quarterdeck", REDIRECT_URI, secret=SECRET)
    accounts = {"ada": account("ada", "engineering")}
    without = {"claims_in_id_token": False, "refresh_tokens": False, "logout": False}
    with real_provider(clients, accounts=accounts, **without) as real:
        async with relying_party(provider_settings(real.issuer)) as provider:
            found = await signed_in(real, provider)
            assert await provider.end_session_url(found.id_token, _SIGNED_OUT) is None
    assert (found.email, found.name, sorted(found.groups)) == ("ada@example.com", "Ada", ["engineering"])
    assert found.refresh_token is None


@pytest.mark.parametrize("algorithm", _ALGORITHMS)
async def test_every_algorithm(real: RealProvider, algorithm: str) -> None:
    async with relying_party(provider_settings(real.issuer, client_id=f"with-{algorithm}")) as provider:
        assert (await signed_in(real, provider)).subject == "ada"


@pytest.mark.parametrize("name", _AUTHENTICATIONS)
async def test_client_authentication(real: RealProvider, name: str) -> None:
    _, ours = _AUTHENTICATIONS[name]
    async with relying_party(provider_settings(real.issuer, client_id=name, **ours)) as provider:
        assert (await signed_in(real, provider)).subject == "ada"


async def test_a_wrong_secret_is_refused(real: RealProvider) -> None:
    async with relying_party(provider_settings(real.issuer, client_secret="another")) as provider:
        with pytest.raises(OpenIdError, match=r"answered 401 \(invalid_client\)") as refused:
            await signed_in(real, provider)
    assert not refused.value.is_temporary


async def test_a_code_needs_its_verifier_and_is_used_once(real: RealProvider) -> None:
    async with relying_party(provider_settings(real.issuer)) as provider:
        url = await provider.authorization_url(REDIRECT_URI, "state", "nonce", "v" * 43)
        code = (await asyncio.to_thread(real.sign_in, url, "ada"))["code"]
        with pytest.raises(OpenIdError, match="invalid_grant"):
            await provider.redeem(code, "w" * 43, REDIRECT_URI, "nonce", real.issuer)
        url = await provider.authorization_url(REDIRECT_URI, "state", "nonce", "v" * 43)
        code = (await asyncio.to_thread(real.sign_in, url, "ada"))["code"]
        await provider.redeem(code, "v" * 43, REDIRECT_URI, "nonce", real.issuer)
        with pytest.raises(OpenIdError, match="invalid_grant"):
            await provider.redeem(code, "v" * 43, REDIRECT_URI, "nonce", real.issuer)


async def test_a_refresh_tells_what_is_so_now(real: RealProvider) -> None:
    real.set_account("bob", account("bob", "engineering"))
    async with relying_party(provider_settings(real.issuer)) as provider:
        first = await signed_in(real, provider, "bob")
        assert first.refresh_token is not None
        real.set_account("bob", account("bob", "sales") | {"email": "robert@example.com"})
        second = await provider.refresh(first.refresh_token, "bob")
        assert (second.subject, second.email, sorted(second.groups)) == ("bob", "robert@example.com", ["sales"])
        assert second.refresh_token is not None
        with pytest.raises(OpenIdError, match="another person"):
            await provider.refresh(second.refresh_token, "ada")
        real.remove_account("bob")
        with pytest.raises(OpenIdError, match="invalid_grant") as ended:
            await provider.refresh(second.refresh_token, "bob")
    assert not ended.value.is_temporary


async def test_keys_are_rotated() -> None:
    clients = client("quarterdeck", REDIRECT_URI, secret=SECRET)
    with real_provider(clients, accounts={"ada": account("ada")}) as real:
        async with relying_party(provider_settings(real.issuer)) as provider:
            first = await signed_in(real, provider)
            assert first.id_token is not None
            real.rotate_keys()
            # Its key is not known yet.
            second = await signed_in(real, provider)
            assert second.id_token is not None
            for id_token in (first.id_token, second.id_token):
                assert (await provider.verify_token(id_token, "quarterdeck"))["sub"] == "ada"
        real.rotate_keys(withdraw=True)
        async with relying_party(provider_settings(real.issuer)) as provider:
            assert (await signed_in(real, provider)).subject == "ada"
            with pytest.raises(OpenIdError, match="a key that the provider does not publish"):
                await provider.verify_token(second.id_token, "quarterdeck")


async def test_sign_out_at_the_provider(real: RealProvider) -> None:
    async with relying_party(provider_settings(real.issuer)) as provider:
        found = await signed_in(real, provider)
        url = await provider.end_session_url(found.id_token, _SIGNED_OUT)
    assert url is not None
    assert parse_qs(urlsplit(url).query)["post_logout_redirect_uri"] == [_SIGNED_OUT]
    assert await asyncio.to_thread(real.sign_out, url) == _SIGNED_OUT


async def test_a_token_for_another_audience(real: RealProvider) -> None:
    async with relying_party(provider_settings(real.issuer)) as provider:
        id_token = (await signed_in(real, provider)).id_token
        assert id_token is not None
        with pytest.raises(OpenIdError, match="another audience"):
            await provider.verify_token(id_token, "another")
