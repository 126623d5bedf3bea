"""JSON of any shape in requests: arguments, results, schemas."""

from typing import Any

import msgspec

from quarterdeck.core import errors

# More than people nest, and less than makes any part of the service fail.
_MAX_DEPTH = 100
_NUL = b"\\u0000"


def check_storable(name: str, value: Any) -> None:
    """To be called before anything else is done with the value: encoding what is nested deeply fails."""
    if is_deeper(value, _MAX_DEPTH):
        raise errors.invalid(f"{name} is nested too deeply. {_MAX_DEPTH} levels are allowed.")
    # PostgreSQL cannot store it. A backslash that is part of the text is doubled.
    if _NUL in msgspec.json.encode(value).replace(b"\\\\", b""):
        raise errors.invalid(f"{name} must not contain U+0000.")


def is_deeper(value: Any, levels: int) -> bool:
    """Whether decoded JSON is nested deeper than `levels`. A level at a time and by exact types, which is several times
    faster than recursion: a megabyte has hundreds of thousands of parts."""
    level = [value] if type(value) is dict or type(value) is list else []
    for _ in range(levels):
        level = [
            part
            for one in level
            for part in (one.values() if type(one) is dict else one)
            if type(part) is dict or type(part) is list
        ]
        if not level:
            return False
    return bool(level)
