"""Kinds of text that records are made of. PostgreSQL cannot hold U+0000 in text or jsonb, so none may."""

from typing import Annotated

from msgspec import Meta

Text = Annotated[str, Meta(pattern=r"^[^\u0000]*$")]
# One line that people read: a title, a label, a name.
Line = Annotated[str, Meta(min_length=1, max_length=200, pattern=r"^[^\u0000-\u001f\u007f]*$")]
