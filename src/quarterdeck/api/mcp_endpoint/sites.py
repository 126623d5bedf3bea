"""Which hosts and origins requests to /mcp may name. Against DNS rebinding: a web page whose name is pointed to this
server after it was loaded could otherwise talk to it from the browser of somebody in its network."""

from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import Scope

from quarterdeck.core import errors
from quarterdeck.core.settings import HttpSettings, ServerSettings

_FOREIGN_HOST = (
    "The Host header of this request is not a name of this server. An operator can list names in "
    "QUARTERDECK_HTTP_PUBLIC_HOSTS."
)
_FOREIGN_ORIGIN = "Web pages of this origin may not use /mcp. An operator can list it in QUARTERDECK_HTTP_CORS_ORIGINS."


class Sites:
    def __init__(self, server: ServerSettings, http: HttpSettings) -> None:
        self._names: frozenset[str] = http.public_hosts or frozenset()
        self._origins: frozenset[str] = http.cors_origins or frozenset()
        # A server that can be reached from elsewhere gains nothing for a page that can send requests to it anyway. Its
        # names are only known if the operator lists them.
        self._only_known = http.public_hosts is not None or (http.trusted_proxies is None and _is_loopback(server.host))

    def check(self, scope: Scope) -> None:
        """Raises ServiceError."""
        headers = Headers(scope=scope)
        host = _name(headers.get("host", ""))
        if self._only_known and not self._is_own(host):
            raise errors.exceeds_caller(_FOREIGN_HOST)
        for origin in headers.getlist("origin"):
            name = _name(urlsplit(origin).netloc) if origin != "null" else ""
            is_own = name == host or _is_loopback(name) or name in self._names
            if origin not in self._origins and not is_own:
                raise errors.exceeds_caller(_FOREIGN_ORIGIN)

    def _is_own(self, name: str) -> bool:
        """Addresses are own: nobody can point them elsewhere."""
        return name in self._names or _is_loopback(name) or _is_address(name)


def _name(authority: str) -> str:
    """Without the port. Of an IPv6 address without the brackets."""
    try:
        return urlsplit(f"//{authority}").hostname or ""
    except ValueError:
        return ""


def _is_loopback(name: str) -> bool:
    if _is_address(name):
        return ip_address(name).is_loopback
    return name == "localhost" or name.endswith(".localhost")


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
