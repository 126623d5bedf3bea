"""JSON of any shape in requests: arguments, results, schemas."""

from typing import Any

from quarterdeck.core import errors

# More than people nest, and less than makes any part of the service fail.
_MAX_DEPTH = 100


def check_storable(name: str, value: Any) -> None:
    """To be called before anything else is done with the value: encoding what is nested deeply fails."""
    _check(name, value, 1)


def _check(name: str, value: Any, depth: int) -> None:
    if depth > _MAX_DEPTH:
        raise errors.invalid(f"{name} is nested too deeply. {_MAX_DEPTH} levels are allowed.")
    if isinstance(value, str) and "\0" in value:
        # PostgreSQL cannot store it.
        raise errors.invalid(f"{name} must not contain U+0000.")
    if isinstance(value, dict):
        for part in (*value, *value.values()):
            _check(name, part, depth + 1)
    if isinstance(value, list):
        for part in value:
            _check(name, part, depth + 1)
