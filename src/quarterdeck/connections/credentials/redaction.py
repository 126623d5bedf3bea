"""Finds a secret in text that comes from a server: as it is, and in the encodings in which servers repeat requests."""

import base64
import json
from collections.abc import Iterable
from urllib.parse import quote, quote_plus

from quarterdeck.connections.credentials.model import MAX_SECRET_CHARACTERS, MIN_SECRET_CHARACTERS

REPLACEMENT = "[redacted]"
# Secrets are printable ASCII. Percent-encoding makes three characters of one.
MAX_FORM_CHARACTERS = 3 * MAX_SECRET_CHARACTERS
# What libraries leave as it is when they percent-encode: nothing, a path, and encodeURIComponent of JavaScript.
_UNQUOTED = ("", "/", "!*'()")


def forms(secret: str) -> set[str]:
    """The secret and its encodings. Of `Basic dXNlcjpwYXNz` also the part after the space."""
    found: set[str] = set()
    parts = [part for part in secret.split(" ") if len(part) >= MIN_SECRET_CHARACTERS]
    for text in {secret, *parts}:
        raw = text.encode()
        found |= {text, json.dumps(text)[1:-1], raw.hex(), raw.hex().upper(), quote_plus(text)}
        found |= {quote(text, safe=unquoted) for unquoted in _UNQUOTED}
        for encoded in _in_base64(raw):
            found |= {encoded, encoded.replace("+", "-").replace("/", "_")}
    return found


def redact(text: str, secret_forms: Iterable[str]) -> str:
    # The longest first: a shorter form may be a part of it.
    for form in sorted(secret_forms, key=len, reverse=True):
        text = text.replace(form, REPLACEMENT)
    return text


def _in_base64(raw: bytes) -> list[str]:
    """What base64 makes of these bytes inside a longer text, such as `id:secret`: one form for each of the three
    positions, without the characters at the ends that also depend on the neighbouring bytes."""
    encoded = []
    for before in range(3):
        text = base64.b64encode(bytes(before) + raw).decode().rstrip("=")
        shared_end = (before + len(raw)) % 3 != 0
        encoded.append(text[(0, 2, 3)[before] : -1 if shared_end else None])
    return encoded
