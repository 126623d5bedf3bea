"""Types of text and time fields. Text excludes U+0000, which PostgreSQL cannot store in text or jsonb."""

from datetime import datetime
from typing import Annotated

from msgspec import Meta

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

Moment = Annotated[datetime, Meta(tz=True)]


def storable(text: str) -> str:
    """Foreign text with characters replaced that PostgreSQL or UTF-8 cannot represent."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()
