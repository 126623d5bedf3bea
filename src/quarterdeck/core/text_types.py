"""Types of text and time fields. Text excludes U+0000, which PostgreSQL cannot store in text or jsonb."""

import re
from datetime import datetime
from typing import Annotated, Any
from unicodedata import normalize

import msgspec
from msgspec import Meta

from quarterdeck.core import errors

Text = Annotated[str, Meta(pattern=r"^[^\u0000]*$", description="Text without U+0000.")]
MAX_LINE_LENGTH = 200
MAX_URL_CHARACTERS = 2000
# `$` alone would also match before a final newline.
Line = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=MAX_LINE_LENGTH,
        # C0 and C1 controls, line and paragraph separators, bidirectional formatting characters.
        pattern=r"^[^\u0000-\u001f\u007f-\u009f\u2028\u2029\u202a-\u202e\u2066-\u2069]*(?![\s\S])",
        description="One line of text without control characters.",
    ),
]

# Characters without a shape of their own: soft hyphen, fillers, zero-width characters, line separators, variation
# selectors, tags and the like (Default_Ignorable_Code_Point of Unicode, U+2028, U+2029 and the empty Braille pattern).
# For a class of a regular expression.
HIDDEN = (
    r"\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164"
    r"\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_CONTROLS = r"\u0000-\u001f\u007f-\u009f"
_SYMBOLS = r"\u00a9\u00ae\u203c\u2049\u2100-\u27bf\u2900-\u2bff\u3030\u303d\u3297\u3299" + "\U0001f000-\U0001faff"
# Unseen parts of emoji.
_IN_EMOJI = rf"(?<=[{_SYMBOLS}])\ufe0f|(?<=[0-9#*])\ufe0f(?=\u20e3)|(?<=[{_SYMBOLS}\ufe0f])\u200d(?=[{_SYMBOLS}])"
# U+061C marks a direction.
_UNSEEN_CHARACTER = rf"(?!{_IN_EMOJI})[{_CONTROLS}\u061c{HIDDEN}]"
# The name of an object, which tells it apart from others. The pattern is for the OpenAPI document: `plain_name` checks
# it, with a message that says what is wrong.
Name = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=MAX_LINE_LENGTH,
        description="One line of text without control characters and others that cannot be seen. It is stored in the "
        "Unicode form NFC, without blanks at its ends and with single blanks inside.",
        extra_json_schema={
            "pattern": rf"^(?!\s*(?![\s\S]))(?![\s\S]*{_UNSEEN_CHARACTER})[^{_CONTROLS}]*(?![\s\S])",
        },
    ),
]

# One account must not look like another. As for `Name`, `check_email` checks it.
_EMAIL_CHARACTER = rf"[^@\s{_CONTROLS}\u061c{HIDDEN}]"
Email = Annotated[
    str,
    Meta(
        max_length=254,
        description="An email address, without characters that cannot be seen.",
        extra_json_schema={"pattern": rf"^{_EMAIL_CHARACTER}+@{_EMAIL_CHARACTER}+(?![\s\S])"},
    ),
]

_UNSEEN = re.compile(_UNSEEN_CHARACTER)
_LIKE_AN_EMAIL = re.compile(r"[^@\s]+@[^@\s]+")
_PLAIN_EMAIL = re.compile(rf"{_EMAIL_CHARACTER}+@{_EMAIL_CHARACTER}+")

Moment = Annotated[datetime, Meta(tz=True)]


def plain_name(name: str) -> str:
    """The one spelling of a `Name` that is stored. Raises ValueError, which msgspec reports as a fault of the body."""
    if unseen := _UNSEEN.search(name):
        raise ValueError(f"name has a character that cannot be seen, U+{ord(unseen[0]):04X}")
    if not name.strip():
        raise ValueError("name is blank")
    return " ".join(normalize("NFC", name).split())


def check_email(email: str) -> None:
    """Raises ValueError, as `plain_name`."""
    if not _LIKE_AN_EMAIL.fullmatch(email):
        raise ValueError("email is not an email address, such as ann@example.com")
    if not _PLAIN_EMAIL.fullmatch(email):
        raise ValueError("email has a character that cannot be seen")


def storable(text: str) -> str:
    """Foreign text with characters replaced that PostgreSQL or UTF-8 cannot represent."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


# JSON of any shape in requests: arguments, results, schemas.

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
