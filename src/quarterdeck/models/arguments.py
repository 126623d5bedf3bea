"""Arguments of tool calls, as models write them."""

from collections.abc import Mapping
from typing import Any

import msgspec

from quarterdeck.core.json_values import is_deeper
from quarterdeck.core.text_types import storable
from quarterdeck.models.model import MALFORMED_ARGUMENTS

_MALFORMED_CHARACTERS = 2000
# JSON is decoded recursively, and the possible depth depends on the stack: a document that a worker can decode may be
# too deep for an API process. No tool needs arguments this deep.
MAX_LEVELS = 100


def read_arguments(written: str | Mapping[str, Any] | None) -> dict[str, Any]:
    if not written:
        return {}
    try:
        # Nearly all providers send text. The round trip turns other mappings into plain JSON.
        text = written if isinstance(written, str) else msgspec.json.encode(written)
        arguments = msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError, OverflowError):
        arguments = None
    if not isinstance(arguments, dict) or is_deeper(arguments, MAX_LEVELS) or "\\u0000" in str(written):
        return {MALFORMED_ARGUMENTS: storable(str(written)[:_MALFORMED_CHARACTERS])}
    return arguments
