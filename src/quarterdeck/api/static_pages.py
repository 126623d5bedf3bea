"""Serves the web console and the API reference, each a page with files of one folder. The URL of the files contains a
hash of all of them, so browsers may cache them for ever and still load a new release at once."""

import gzip
import hashlib
from collections.abc import Iterator
from functools import cached_property
from importlib.resources import files
from importlib.resources.abc import Traversable

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Receive, Scope

from quarterdeck import __version__
from quarterdeck.core import errors
from quarterdeck.core.call import parse_tags, tags_match_weakly
from quarterdeck.http.content_negotiation import accepts_encoding

_TYPES = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}
_INDEX = "index.html"
_FIRST_STYLE = "style/base.css"
# No other origins, no inline scripts or styles.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
)
# Only DOMPurify may parse text as HTML (Trusted Types). Images of a session's files are fetched with the credential, so
# their addresses are `blob:`.
_CONSOLE_POLICY = "img-src 'self' blob:; require-trusted-types-for 'script'; trusted-types dompurify"
# The stylesheet of Swagger UI contains its icons.
_REFERENCE_POLICY = "img-src data:"
_ANY = {"X-Content-Type-Options": "nosniff", "Cross-Origin-Resource-Policy": "same-origin", "Vary": "Accept-Encoding"}
_PAGE = {
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    # Revalidated each time, because it names the files of the release.
    "Cache-Control": "no-cache",
}
_IMMUTABLE = {"Cache-Control": "public, max-age=31536000, immutable"}


class _File:
    def __init__(self, media_type: str, plain: bytes) -> None:
        self.media_type = media_type
        self.plain = plain

    @cached_property
    def compressed(self) -> bytes:
        return gzip.compress(self.plain, mtime=0)


class StaticPage:
    def __init__(self, folder: str, address: str, policy: str) -> None:
        """`address` is that of the files, relative to that of the page."""
        found = dict(_read(files("quarterdeck") / folder))
        index = found.pop(_INDEX).decode()
        self.hash = _hash_of(found)
        self._files = {name: _File(_TYPES[name.rpartition(".")[2]], data) for name, data in found.items()}
        self._page = _File("text/html; charset=utf-8", _fill_in(index, f"{address}/{self.hash}", found).encode())
        # Weak, because it stands for the compressed and the plain page.
        self._page_tag = f'W/"{hashlib.sha256(self._page.plain).hexdigest()[:32]}"'
        self._headers = _PAGE | {"Content-Security-Policy": _POLICY + policy, "ETag": self._page_tag}

    async def page(self, scope: Scope, _: Receive) -> Response:
        held = _header(scope, "if-none-match")
        if tags_match_weakly(parse_tags(held) or frozenset(), self._page_tag):
            return Response(status_code=304, headers=_ANY | self._headers)
        return _response(scope, self._page, self._headers)

    async def asset(self, scope: Scope, _: Receive) -> Response:
        given = scope["path_params"]
        found = self._files.get(given["name"])
        # A URL of another release must not return a file of this one: it would be cached for ever.
        if given["hash"] != self.hash or found is None:
            raise errors.not_found("path")
        return _response(scope, found, _IMMUTABLE)


def console() -> StaticPage:
    return StaticPage("console", "assets", _CONSOLE_POLICY)


def api_reference() -> StaticPage:
    return StaticPage("api_reference", "docs/assets", _REFERENCE_POLICY)


def _read(folder: Traversable, before: str = "") -> Iterator[tuple[str, bytes]]:
    for entry in sorted(folder.iterdir(), key=lambda one: one.name):
        if entry.is_dir():
            yield from _read(entry, f"{before}{entry.name}/")
        else:
            yield f"{before}{entry.name}", entry.read_bytes()


def _hash_of(found: dict[str, bytes]) -> str:
    whole = hashlib.sha256()
    for name, data in found.items():
        whole.update(b"%b\0%d\0%b" % (name.encode(), len(data), data))
    return whole.hexdigest()[:20]


def _fill_in(index: str, assets: str, found: dict[str, bytes]) -> str:
    """Preload all modules, so that the browser need not discover them import by import."""
    # base.css first: of two rules with the same specificity the later one wins.
    sheets = sorted((name for name in found if name.endswith(".css")), key=lambda name: (name != _FIRST_STYLE, name))
    styles = [f'<link rel="stylesheet" href="{assets}/{name}">' for name in sheets]
    modules = [f'<link rel="modulepreload" href="{assets}/{name}">' for name in found if name.endswith(".js")]
    parts = {
        "{styles}": "\n  ".join(styles),
        "{modules}": "\n  ".join(modules),
        "{assets}": assets,
        "{version}": __version__,
    }
    for mark, text in parts.items():
        index = index.replace(mark, text)
    return index


def _response(scope: Scope, file: _File, headers: dict[str, str]) -> Response:
    if accepts_encoding(_header(scope, "accept-encoding"), "gzip"):
        return Response(
            file.compressed, media_type=file.media_type, headers=_ANY | headers | {"Content-Encoding": "gzip"}
        )
    return Response(file.plain, media_type=file.media_type, headers=_ANY | headers)


def _header(scope: Scope, name: str) -> str:
    return ", ".join(Headers(scope=scope).getlist(name))
