"""Our own clients say which they are; those that are too old for this server are told so before anything else."""

import re

from starlette.types import Scope

from quarterdeck.core import errors
from quarterdeck.core.settings import HttpSettings
from quarterdeck.http.headers import headers_of

CLIENT = "Quarterdeck-Client"
_HEADER = CLIENT.lower().encode()
# What follows the numbers, as in 0.2.0rc1, counts for nothing. Other clients, and what is malformed, are left alone.
_OURS = re.compile(r"quarterdeck-[a-z0-9-]+/([0-9]{1,9}(?:\.[0-9]{1,9}){0,3})(?:[^0-9].*)?", re.ASCII)
_PLACES = 4


def check_client(scope: Scope, settings: HttpSettings) -> None:
    headers = headers_of(scope)
    if _HEADER not in headers:
        return
    given = headers.all(_HEADER)
    match = _OURS.fullmatch(given[0].decode("latin-1")) if len(given) == 1 else None
    if match is not None and _numbers(match[1]) < _numbers(settings.min_client_version):
        raise errors.outdated(settings.min_client_version)


def _numbers(version: str) -> list[int]:
    numbers = [int(number) for number in version.split(".")]
    return numbers + [0] * (_PLACES - len(numbers))
