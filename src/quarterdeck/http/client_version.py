"""Our own clients send their version. A version that is too old is answered 426 before any other check."""

import re

from starlette.datastructures import Headers
from starlette.types import Scope

from quarterdeck.core import errors
from quarterdeck.core.settings import HttpSettings

CLIENT = "Quarterdeck-Client"
# A suffix behind the numbers, as in 0.2.0rc1, is ignored. Other clients and malformed values are let through.
_OURS = re.compile(r"quarterdeck-[a-z0-9-]+/([0-9]{1,9}(?:\.[0-9]{1,9}){0,3})(?:[^0-9].*)?", re.ASCII)
_PLACES = 4


def check_client(scope: Scope, settings: HttpSettings) -> None:
    given = Headers(scope=scope).getlist(CLIENT)
    match = _OURS.fullmatch(given[0]) if len(given) == 1 else None
    if match is not None and _numbers(match[1]) < _numbers(settings.min_client_version):
        raise errors.outdated(settings.min_client_version)


def _numbers(version: str) -> list[int]:
    numbers = [int(number) for number in version.split(".")]
    return numbers + [0] * (_PLACES - len(numbers))
