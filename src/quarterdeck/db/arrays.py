"""PostgreSQL array literals written by hand: psycopg's list dumper costs more than the statement at 64 items."""

from collections.abc import Iterable
from uuid import UUID


def text_array(items: Iterable[str | None]) -> str:
    return "{" + ",".join("NULL" if item is None else _quoted(item) for item in items) + "}"


def uuid_array(items: Iterable[UUID | None]) -> str:
    return "{" + ",".join("NULL" if item is None else f"{item.int:032x}" for item in items) + "}"


def bytea_array(items: Iterable[bytes | None]) -> str:
    # Inside an array literal a backslash is written twice.
    return "{" + ",".join("NULL" if item is None else f'"\\\\x{item.hex()}"' for item in items) + "}"


def _quoted(item: str) -> str:
    return '"' + item.replace("\\", "\\\\").replace('"', '\\"') + '"'
