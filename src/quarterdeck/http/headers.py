"""The headers of a request, put in order once: a dozen checks of every request ask for one of them."""

import re
from collections.abc import Sequence

from starlette.types import Scope

# Under this name the edge leaves them in the request's scope.
_STATE = "quarterdeck.headers"
# int() also takes signs, underscores, blanks and the digits of other scripts.
_DIGITS = re.compile(rb"[0-9]{1,19}")


class Headers(dict[bytes, bytes]):
    """By their names, in lower case, each with the last value that was sent under it."""

    def __init__(self, given: Sequence[tuple[bytes, bytes]]) -> None:
        super().__init__(given)
        self._given = given
        self._no_name_twice = len(self) == len(given)

    def all(self, name: bytes) -> list[bytes]:
        """Every value that was sent under this name."""
        if name not in self:
            return []
        return [self[name]] if self._no_name_twice else [value for key, value in self._given if key == name]

    @property
    def content_length(self) -> int | None:
        given = self.all(b"content-length")
        return int(given[0]) if given and _DIGITS.fullmatch(given[0]) else None


def note_headers(scope: Scope) -> Headers:
    headers = scope[_STATE] = Headers(scope["headers"])
    return headers


def headers_of(scope: Scope) -> Headers:
    headers: Headers = scope[_STATE]
    return headers
