"""Makes the text of MCP servers fit to be stored, shown to people and given to models."""

import re
from typing import Any

from quarterdeck.core.text_types import storable

# C0 and C1 controls except tab and newline, line separators, marks that change the direction of text, and tag
# characters, which are invisible.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\U000e0000-\U000e007f]")
_MAX_DEPTH = 50


def clean_text(text: str) -> str:
    return _CONTROL.sub("", storable(text))


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
