"""The cookie with the credential of a browser's device. Scripts cannot read it, and no other site's requests carry it
(SameSite). A request with the cookie must have a header that forms and other sites' scripts cannot set, and a change
must come from this site by its Origin: a page of another port or of a subdomain counts as the same site for cookies.
"""

from starlette.datastructures import Headers
from starlette.requests import cookie_parser

from quarterdeck.core import errors
from quarterdeck.http.cors import CLIENT

_NAME = "quarterdeck"
# Of a browser that was sent to an OpenID provider. It comes back from another site, so the cookie is not `Strict`.
_ATTEMPT_NAME = "quarterdeck-sign-in"
# Browsers accept such a name only with TLS and only for this host, so no subdomain can set it.
_SECURE = "__Host-"
_SAFE = {"GET", "HEAD"}


def sent_secret(method: str, headers: Headers) -> str | None:
    """None: no cookie, or the request may have been made by another site."""
    if "cookie" not in headers or CLIENT not in headers:
        return None
    if method not in _SAFE and not is_same_site(headers):
        return None
    return _read(headers, _NAME)


def sent_attempt(headers: Headers) -> str | None:
    return _read(headers, _ATTEMPT_NAME)


def _read(headers: Headers, name: str) -> str | None:
    sent = cookie_parser("; ".join(headers.getlist("cookie")))
    return sent.get(_SECURE + name) or sent.get(name)


def is_same_site(headers: Headers) -> bool:
    origins, hosts = headers.getlist("origin"), headers.getlist("host")
    # Not urlsplit(): it raises on hosts that are malformed.
    return len(origins) == 1 and [origins[0].partition("://")[2].lower()] == [host.strip().lower() for host in hosts]


def check_same_site(headers: Headers) -> None:
    """Before a browser is signed in: another site must not sign it in as somebody else."""
    if not is_same_site(headers):
        raise errors.other_site()


def origin_of(headers: Headers) -> str:
    """After `check_same_site`."""
    return f"{'https' if _is_secure(headers['origin']) else 'http'}://{headers['host'].strip().lower()}"


def set_cookie(headers: Headers, secret: str, seconds: int) -> dict[str, str]:
    """The header of the response. `headers`: those of the request."""
    return {"Set-Cookie": _cookie(_NAME, secret, seconds, "Strict", _is_secure(headers.get("origin", "")))}


def set_attempt_cookie(headers: Headers, secret: str, seconds: int) -> dict[str, str]:
    return {"Set-Cookie": _cookie(_ATTEMPT_NAME, secret, seconds, "Lax", _is_secure(headers.get("origin", "")))}


def after_attempt(origin: str, secret: str, seconds: int) -> list[str]:
    """Values of Set-Cookie. `origin`: of the page where the attempt began. The request itself has none."""
    is_secure = _is_secure(origin)
    return [_cookie(_NAME, secret, seconds, "Strict", is_secure), _cookie(_ATTEMPT_NAME, "", 0, "Lax", is_secure)]


def _cookie(name: str, value: str, seconds: int, same_site: str, is_secure: bool) -> str:
    name, secure = (_SECURE + name, "; Secure") if is_secure else (name, "")
    return f"{name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite={same_site}{secure}"


def _is_secure(origin: str) -> bool:
    return origin.startswith("https://")
