"""Arrays in PostgreSQL's own binary form: nothing to quote for us, nothing to parse for it."""

from collections.abc import Sequence
from enum import IntEnum
from struct import Struct


class Of(IntEnum):
    """What the items are, by PostgreSQL's numbers for its own types."""

    BOOLEAN = 16
    BYTEA = 17
    TEXT = 25
    UUID = 2950


# Dimensions, whether there may be NULLs, the type, how many, and the number of the first.
_HEAD = Struct(">5i")
_NULL = (-1).to_bytes(4, signed=True)


def binary_array(of: Of, items: Sequence[bytes | None]) -> bytes:
    """`items` are in PostgreSQL's binary form, None for NULL."""
    written = [_NULL if item is None else len(item).to_bytes(4) + item for item in items]
    return b"".join([_HEAD.pack(1, 1, of, len(written), 1), *written])
