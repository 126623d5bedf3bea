"""Signs people in at one provider: authorization code with PKCE, state and nonce (OpenID Connect Core, RFC 7636,
RFC 9207), refresh, sign-out at the provider, and tokens that the provider signed for others. Imported late: its
libraries are slow to import.
"""

import base64
import hashlib
import re
import time
from collections.abc import Callable
from urllib.parse import quote_plus, urlencode

from msgspec.structs import replace

from quarterdeck.openid import tokens
from quarterdeck.openid.exchange import Exchange, Json
from quarterdeck.openid.keys import Discovery, Metadata
from quarterdeck.openid.model import Claims, OpenIdError, ProviderSettings
from quarterdeck.openid.tokens import Times, Verified, refused
from quarterdeck.outbound.http_client import OutboundClient

# As headers and databases can hold it.
_TOKEN = re.compile(r"[\x21-\x7e]{1,65536}", re.ASCII)
_MAX_TEXT_CHARACTERS = 255
_MAX_EMAIL_CHARACTERS = 320


class Provider:
    """All methods raise OpenIdError. One for a process and provider: it keeps the discovery document and the keys."""

    def __init__(
        self, settings: ProviderSettings, client: OutboundClient, *, now: Callable[[], float] = time.time
    ) -> None:
        """`now` is for tests."""
        self.settings = settings
        self._now = now
        self._exchange = Exchange(client, settings.issuer)
        self._discovery = Discovery(settings, self._exchange, now)

    async def authorization_url(self, redirect_uri: str, state: str, nonce: str, code_verifier: str) -> str:
        """Where the browser is sent. `code_verifier`: 43 to 128 letters and digits (RFC 7636)."""
        metadata = await self._discovery.metadata()
        challenge = base64.urlsafe_b64encode(hashlib.sha256(code_verifier.encode()).digest()).rstrip(b"=").decode()
        parameters = self.settings.authorization_parameters | {
            "response_type": "code",
            "client_id": self.settings.client_id,
            "redirect_uri": redirect_uri,
            "scope": " ".join(self.settings.scopes),
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        return _with_query(_endpoint(metadata.authorization_endpoint, "authorization endpoint"), parameters)

    async def redeem(
        self, code: str, code_verifier: str, redirect_uri: str, nonce: str, iss: str | None = None
    ) -> Claims:
        """Ends a sign-in with the parameters of the callback. `iss` is None if the callback had none."""
        metadata = await self._discovery.metadata()
        # Before the code is sent anywhere: it may be that of another provider (RFC 9207).
        if iss is None and metadata.authorization_response_iss_parameter_supported:
            raise refused("The provider did not say that the answer is from it.")
        if iss is not None and iss != self.settings.issuer:
            raise refused("The answer is from another provider.")
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "code_verifier": code_verifier,
        }
        answer = await self._ask_for_tokens(metadata, form)
        id_token = _token(answer, "id_token")
        if id_token is None:
            raise refused("The provider sent no ID token.")
        verified = await self._verify_id_token(id_token, answer)
        tokens.check_nonce(verified.claims, nonce)
        return await self._signed_in(metadata, answer, verified.claims, tokens.subject(verified.claims))

    async def refresh(self, refresh_token: str, subject: str) -> Claims:
        """What the provider says about the person now. A grant that has ended is an error with the code invalid_grant.
        An error after the provider has issued tokens has the refresh token that is in force."""
        metadata = await self._discovery.metadata()
        answer = await self._ask_for_tokens(metadata, {"grant_type": "refresh_token", "refresh_token": refresh_token})
        # A provider that sends no new one leaves the old one in force.
        in_force = _token(answer, "refresh_token") or refresh_token
        try:
            id_token = _token(answer, "id_token")
            claims: Json = {}
            if id_token is not None:
                claims = (await self._verify_id_token(id_token, answer)).claims
                _check_subject(claims, subject)
            return replace(await self._signed_in(metadata, answer, claims, subject), refresh_token=in_force)
        except OpenIdError as fault:
            fault.refresh_token = in_force
            raise

    async def end_session_url(self, id_token: str | None, post_logout_redirect_uri: str) -> str | None:
        """Where the browser is sent to sign out at the provider too. None: the provider has no such page."""
        endpoint = (await self._discovery.metadata()).end_session_endpoint
        if endpoint is None:
            return None
        hint = {} if id_token is None else {"id_token_hint": id_token}
        parameters = {"client_id": self.settings.client_id, "post_logout_redirect_uri": post_logout_redirect_uri}
        return _with_query(endpoint, hint | parameters)

    async def verify_token(self, token: str, audience: str) -> Json:
        """The claims of a token that the issuer signed for `audience`, such as that of a CI job. The caller decides who
        the subject is and what it may do."""
        claims = (await self._verify(token)).claims
        if audience not in tokens.audiences(claims):
            raise refused("The token is for another audience.")
        return claims

    async def _verify(self, token: str) -> Verified:
        verified = await tokens.verify_signature(token, self._discovery)
        tokens.check_issuer(verified.claims, self.settings.issuer)
        tokens.check_times(verified.claims, Times(self._now(), self.settings.clock_skew_seconds))
        return verified

    async def _verify_id_token(self, id_token: str, answer: Json) -> Verified:
        verified = await self._verify(id_token)
        tokens.check_client(verified.claims, self.settings.client_id)
        access_token = _token(answer, "access_token")
        if access_token is not None:
            tokens.check_access_token(verified.claims, verified.alg, access_token)
        return verified

    async def _ask_for_tokens(self, metadata: Metadata, form: dict[str, str]) -> Json:
        url = _endpoint(metadata.token_endpoint, "token endpoint")
        client_id, secret = self.settings.client_id, self.settings.client_secret
        chosen = self.settings.client_authentication
        methods = metadata.token_endpoint_auth_methods_supported if chosen is None else (chosen,)
        headers: dict[str, str] = {}
        if secret is None:
            form |= {"client_id": client_id}
        elif "client_secret_basic" in methods:
            headers = {"Authorization": _basic(client_id, secret)}
        elif "client_secret_post" in methods:
            form |= {"client_id": client_id, "client_secret": secret}
        else:
            raise refused("The token endpoint of the provider takes no client secret.")
        return await self._exchange.post(url, "token endpoint", form, headers)

    async def _signed_in(self, metadata: Metadata, answer: Json, claims: Json, subject: str) -> Claims:
        """`claims`: those of the ID token. What they lack is asked for."""
        wants_groups = self.settings.groups_claim is not None and self.settings.groups_claim not in claims
        wants_email = "email" not in claims and "email" in self.settings.scopes
        if metadata.userinfo_endpoint is not None and (wants_groups or wants_email or not claims):
            claims = await self._with_userinfo(metadata.userinfo_endpoint, answer, claims, subject)
        if not claims:
            raise refused("The provider says nothing about the person any more.")
        email = _text(claims, "email", _MAX_EMAIL_CHARACTERS)
        # Some providers send a text.
        is_verified = claims.get("email_verified") in ("true", True)
        name = _text(claims, "name", _MAX_TEXT_CHARACTERS)
        return Claims(
            issuer=self.settings.issuer,
            subject=subject,
            email=email,
            is_email_verified=email is not None and is_verified,
            name=name or _text(claims, "preferred_username", _MAX_TEXT_CHARACTERS),
            groups=_groups(claims, self.settings.groups_claim),
            refresh_token=_token(answer, "refresh_token"),
            id_token=_token(answer, "id_token"),
            sid=_text(claims, "sid", _MAX_TEXT_CHARACTERS),
        )

    async def _with_userinfo(self, url: str, answer: Json, claims: Json, subject: str) -> Json:
        access_token = _token(answer, "access_token")
        if access_token is None or str(answer.get("token_type", "")).lower() != "bearer":
            raise refused("The provider sent no bearer token.")
        found = await self._exchange.get(url, "userinfo endpoint", access_token)
        _check_subject(found, subject)
        if "email" in claims:
            # Whether it is verified is said by who names the address.
            found.pop("email_verified", None)
        elif "email" in found:
            claims = {name: value for name, value in claims.items() if name != "email_verified"}
        return found | claims


def _check_subject(claims: Json, subject: str) -> None:
    if tokens.subject(claims) != subject:
        raise refused("The provider answered about another person.")


def _endpoint(url: str | None, what: str) -> str:
    if url is None:
        raise refused(f"The provider has no {what}.")
    return url


def _with_query(url: str, parameters: dict[str, str]) -> str:
    return f"{url}{'&' if '?' in url else '?'}{urlencode(parameters)}"


def _basic(client_id: str, secret: str) -> str:
    """Both are form-encoded first (RFC 6749, section 2.3.1)."""
    pair = f"{quote_plus(client_id)}:{quote_plus(secret)}"
    return f"Basic {base64.b64encode(pair.encode()).decode()}"


def _token(answer: Json, name: str) -> str | None:
    found = answer.get(name)
    if found is None:
        return None
    if not isinstance(found, str) or not _TOKEN.fullmatch(found):
        raise refused(f"The provider sent a token that is not usable ({name}).")
    return found


def _text(claims: Json, name: str, max_characters: int) -> str | None:
    """None also if it is no line of text: it is shown, not compared."""
    found = claims.get(name)
    is_line = isinstance(found, str) and 1 <= len(found) <= max_characters and found.isprintable()
    return found if is_line else None


def _groups(claims: Json, name: str | None) -> frozenset[str]:
    if name is None:
        return frozenset()
    sources = claims.get("_claim_names")
    if name not in claims and isinstance(sources, dict) and name in sources:
        # Otherwise people with many groups would seem to have none.
        raise refused("The provider leaves out the groups of this person because they are too many.")
    found = claims.get(name)
    if found is None:
        return frozenset()
    groups = [found] if isinstance(found, str) else found
    if not isinstance(groups, list) or not all(isinstance(one, str) and one.isprintable() for one in groups):
        raise refused(f"The claim {name} is no list of names.")
    return frozenset(groups)
