"""A real OpenID provider: oidc-provider from npm, in a process of its own. Its login page takes any password.

`with real_provider(client("quarterdeck", callback), accounts={"ada": account("ada")}) as real:` starts it at
`real.issuer`.
"""

import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urljoin, urlsplit

import httpx
import msgspec
import pytest

from quarterdeck.core.setting_types import AddressExceptions

HERE = Path(__file__).parent
# For OidcSettings.allowed_addresses.
LOCAL = AddressExceptions.parse("127.0.0.1/32")
_SECONDS = 120.0
_MOST_PAGES = 20
_FORM = re.compile(r'<form[^>]*action="([^"]+)"[^>]*>(.*?)</form>', re.DOTALL)
_HIDDEN = re.compile(r'<input type="hidden" name="([^"]+)" value="([^"]*)"')


def client(
    client_id: str,
    *redirect_uris: str,
    secret: str | None = "secret of the client, which is long",
    signed_out: str = "http://127.0.0.1:1/signed-out",
    algorithm: str = "RS256",
    method: str = "client_secret_basic",
) -> dict[str, Any]:
    """Registered at the provider. Without a secret it is a public client."""
    registered = {
        "client_id": client_id,
        "redirect_uris": list(redirect_uris),
        "post_logout_redirect_uris": [signed_out],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "id_token_signed_response_alg": algorithm,
        "token_endpoint_auth_method": "none" if secret is None else method,
    }
    return registered if secret is None else registered | {"client_secret": secret}


def account(name: str, *groups: str) -> dict[str, Any]:
    """Claims of the account. Its subject is its name."""
    return {
        "email": f"{name}@example.com",
        "email_verified": True,
        "name": name.capitalize(),
        "groups": list(groups),
    }


class RealProvider:
    def __init__(self, issuer: str) -> None:
        self.issuer = issuer

    def set_account(self, name: str, claims: Mapping[str, Any]) -> None:
        """Adds it, or changes what the provider says about it from now on."""
        self._change("PUT", f"accounts/{name}", claims)

    def remove_account(self, name: str) -> None:
        self._change("DELETE", f"accounts/{name}", {})

    def rotate_keys(self, *, withdraw: bool = False) -> None:
        """Signs with new keys. `withdraw`: the old ones are no longer published."""
        self._change("POST", "rotate-keys", {"withdraw": withdraw})

    def sign_in(self, authorization_url: str, name: str) -> dict[str, str]:
        """What a person does in the browser. The parameters of the callback."""
        return dict(parse_qsl(urlsplit(self._browse(authorization_url, name)).query))

    def sign_out(self, end_session_url: str) -> str:
        """Where the browser is sent at the end."""
        return self._browse(end_session_url)

    def _browse(self, url: str, name: str = "") -> str:
        """Submits forms and follows redirects until one leads away from the provider."""
        with httpx.Client(timeout=_SECONDS) as browser:
            page = browser.get(url)
            for _ in range(_MOST_PAGES):
                if page.is_redirect:
                    url = urljoin(str(page.url), page.headers["location"])
                    if not url.startswith(self.issuer):
                        return url
                    page = browser.get(url)
                    continue
                form = _FORM.search(page.text)
                assert form is not None, f"{page.status_code}: {page.text[:500]}"
                fields = {key: unescape(value) for key, value in _HIDDEN.findall(form[2])}
                if 'name="login"' in form[2]:
                    fields |= {"login": name, "password": "any"}
                page = browser.post(urljoin(str(page.url), unescape(form[1])), data=fields)
        raise AssertionError("the provider did not send the browser back")

    def _change(self, method: str, path: str, body: Mapping[str, Any]) -> None:
        httpx.request(method, f"{self.issuer}/-/{path}", json=body, timeout=_SECONDS).raise_for_status()


@contextmanager
def real_provider(
    *clients: dict[str, Any],
    accounts: Mapping[str, Mapping[str, Any]],
    claims_in_id_token: bool = True,
    refresh_tokens: bool = True,
    logout: bool = True,
) -> Iterator[RealProvider]:
    """`claims_in_id_token`: otherwise e-mail address, name and groups are at the userinfo endpoint only."""
    configuration = {
        "clients": clients,
        "accounts": accounts,
        "claimsInIdToken": claims_in_id_token,
        "refreshTokens": refresh_tokens,
        "logout": logout,
    }
    # The provider needs Node 22, which npm installs on Linux.
    node = _packages() / ".bin" / "node"
    command = [node if node.exists() else "node", HERE / "provider_server.mjs"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(msgspec.json.encode(configuration) + b"\n")
            process.stdin.flush()
            word, _, issuer = process.stdout.readline().decode().strip().partition(" ")
            assert word == "issuer", "the provider did not start"
            yield RealProvider(issuer)
        finally:
            # Connections that browsers keep open do not hold it up.
            process.kill()


def _packages() -> Path:
    """Skips the test if the provider is not installed, unless it must be."""
    folder = HERE / "node_modules"
    if not (folder / ".installed").exists():
        reason = "the OpenID provider from npm is not installed; `make openid-provider` does it"
        if os.environ.get("QUARTERDECK_TEST_BROWSER") == "required":
            pytest.fail(reason)
        pytest.skip(reason)
    return folder
