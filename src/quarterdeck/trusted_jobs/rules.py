"""Which tokens a trusted job stands for."""

import glob
import re
from collections.abc import Mapping
from fnmatch import fnmatchcase

from quarterdeck.core import errors
from quarterdeck.core.actors import Permission, Principal

NEEDED = (Permission.WORKSPACE_READ, Permission.SKILL_MANAGE)
# They are always checked, or say nothing about the job.
_NOT_OF_A_JOB = frozenset(("aud", "exp", "iat", "iss", "jti", "nbf"))
_SEPARATORS = re.compile(r"([/:])")


def check_claims(claims: Mapping[str, str]) -> None:
    if found := sorted(_NOT_OF_A_JOB & claims.keys()):
        raise errors.invalid(f"claims: {', '.join(found)} cannot tell one job from another.")
    if all("*" in value for value in claims.values()):
        raise errors.invalid("claims: at least one value must be without *.")


def check_caller(principal: Principal) -> None:
    lacking = [permission for permission in NEEDED if not principal.may(permission)]
    if lacking:
        raise errors.exceeds_caller(f"This credential cannot give a job what it lacks: {', '.join(lacking)}.")
    if principal.expires_at is not None:
        raise errors.exceeds_caller("A key that expires cannot trust a job, which would outlive it.")


def unfit_claim(wanted: Mapping[str, str], found: Mapping[str, object]) -> str | None:
    """The name of the first claim that does not fit."""
    return next((name for name, pattern in wanted.items() if not _fits(pattern, found.get(name))), None)


def _fits(pattern: str, value: object) -> bool:
    if isinstance(value, bool):
        text = str(value).lower()
    elif isinstance(value, str | int):
        text = str(value)
    else:
        return False
    parts, patterns = _SEPARATORS.split(text), _SEPARATORS.split(pattern)
    return len(parts) == len(patterns) and all(map(_matches, parts, patterns))


def _matches(part: str, pattern: str) -> bool:
    return fnmatchcase(part, glob.escape(pattern).replace("[*]", "*"))
