"""The cookie with the credential of a browser's device. Scripts cannot read it, and no other site's requests carry it
(SameSite). A request with the cookie must have a header that forms and other sites' scripts cannot set, and a change
must come from this site by its Origin: a page of another port or of a subdomain counts as the same site for cookies.
"""

from starlette.datastructures import Headers
from starlette.requests import cookie_parser

from quarterdeck.core import errors
from quarterdeck.http.cors import CLIENT

_NAME = "quarterdeck"
# Browsers accept this name only with TLS and only for this host, so no subdomain can set it.
_SECURE_NAME = f"__Host-{_NAME}"
_SAFE = {"GET", "HEAD"}


def sent_secret(method: str, headers: Headers) -> str | None:
    """None: no cookie, or the request may have been made by another site."""
    if "cookie" not in headers or CLIENT not in headers:
        return None
    if method not in _SAFE and not is_same_site(headers):
        return None
    sent = cookie_parser("; ".join(headers.getlist("cookie")))
    return sent.get(_SECURE_NAME) or sent.get(_NAME)


def is_same_site(headers: Headers) -> bool:
    origins, hosts = headers.getlist("origin"), headers.getlist("host")
    # Not urlsplit(): it raises on hosts that are malformed.
    return len(origins) == 1 and [origins[0].partition("://")[2].lower()] == [host.strip().lower() for host in hosts]


def check_same_site(headers: Headers) -> None:
    """Before a browser is signed in: another site must not sign it in as somebody else."""
    if not is_same_site(headers):
        raise errors.other_site()


def set_cookie(headers: Headers, secret: str, seconds: int) -> dict[str, str]:
    """The header of the response. `headers`: those of the request."""
    is_secure = headers.get("origin", "").startswith("https://")
    name, secure = (_SECURE_NAME, "; Secure") if is_secure else (_NAME, "")
    return {"Set-Cookie": f"{name}={secret}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}"}
