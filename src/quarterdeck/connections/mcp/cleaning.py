"""Makes the text of MCP servers fit to be stored, shown to people and given to models. Text is cut before it is
cleaned: cleaning takes up to 0.2 µs for each character, and nothing else goes on in the process meanwhile."""

import re
from collections.abc import Callable
from typing import Any

from quarterdeck.connections.credentials.redaction import MAX_FORM_CHARACTERS
from quarterdeck.core.text_types import storable

# C0 and C1 controls except tab and newline, line separators, marks that change the direction of text, and tag
# characters, which are invisible.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\U000e0000-\U000e007f]+")
_MAX_DEPTH = 50
# In a thread, long text lets the event loop go on between two pieces.
_PIECE_CHARACTERS = 16 * 1024


def clean_text(text: str) -> str:
    pieces = range(0, len(text), _PIECE_CHARACTERS)
    return "".join(_CONTROL.sub("", storable(text[start : start + _PIECE_CHARACTERS])) for start in pieces)


def clean_start(text: str, max_characters: int, redact: Callable[[str], str]) -> str:
    """The beginning of a text of any length, without secrets."""
    start = text[: max_characters + MAX_FORM_CHARACTERS]
    # Redacted before and after: a secret may hold what is cleaned away, and what is cleaned may form a secret.
    cleaned = redact(clean_text(redact(start)))
    if len(start) < len(text):
        # It may end with a part of a secret, which was not recognised.
        cleaned = cleaned[:-MAX_FORM_CHARACTERS]
    return cleaned[:max_characters]


def clean_line(text: str, max_characters: int) -> str:
    """Of a name or of an error."""
    # A bound first: the text may be long.
    line = " ".join(clean_text(text[: max_characters * 4]).split())
    return line if len(line) <= max_characters else f"{line[: max_characters - 1]}…"


def clean_json(value: Any, depth: int = 1) -> Any:
    """Raises ValueError if the value is nested too deeply."""
    if depth > _MAX_DEPTH:
        raise ValueError("nested too deeply")
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, dict):
        return {clean_text(name): clean_json(part, depth + 1) for name, part in value.items()}
    if isinstance(value, list):
        return [clean_json(part, depth + 1) for part in value]
    return value
