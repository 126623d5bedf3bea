"""Bounds on the number of values in the messages of servers. A short message can have very many: as Python objects
they take fifty times the memory, and the SDK describes every invalid one in an error."""

from typing import Any

import mcp_types as types

# In JSON, of one message or one response. Characters inside of texts are counted too: telling them apart is slow.
MAX_SEPARATORS = 1_000_000
# Of what the SDK validates.
_MAX_VALUES = 50_000
# Parts of the result of a call. The SDK compares each with all kinds of parts.
_MAX_PARTS = 1_000
# The SDK does not look inside.
_NOT_VALIDATED = "structuredContent"


def separators(data: bytes) -> int:
    """At least the number of values in the JSON, or in this piece of it."""
    return data.count(b",") + data.count(b"[") + data.count(b"{")


def has_too_many_values(message: types.JSONRPCMessage) -> bool:
    if isinstance(message, types.JSONRPCResponse):
        content = message.result.get("content")
        if isinstance(content, list) and len(content) > _MAX_PARTS:
            return True
        return _exceeds([value for name, value in message.result.items() if name != _NOT_VALIDATED])
    if isinstance(message, types.JSONRPCError):
        return False
    return _exceeds([message.params])


def _exceeds(values: list[Any]) -> bool:
    found = 0
    while values:
        value = values.pop()
        parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        found += len(parts)
        if found > _MAX_VALUES:
            return True
        values.extend(parts)
    return False
