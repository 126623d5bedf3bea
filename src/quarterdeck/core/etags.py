"""Entity tags: built from the revision of a record, compared as in RFC 9110."""

import re

ANY = "*"
_TAG = re.compile(r'(?:W/)?"[\x21\x23-\x7e\x80-\xff]*"')
_LIST = re.compile(rf"\s*{_TAG.pattern}\s*(?:,\s*{_TAG.pattern}\s*)*")
# For the OpenAPI document: `*` or a list of tags.
HEADER_PATTERN = rf"^(?:\s*\*\s*|{_LIST.pattern})$"


def etag(revision: int) -> str:
    return f'"{revision}"'


def parse_tags(text: str) -> frozenset[str] | None:
    """The tags of an If-Match or If-None-Match header, or None if it is malformed."""
    if text.strip() == ANY:
        return frozenset({ANY})
    return frozenset(_TAG.findall(text)) if _LIST.fullmatch(text) else None


def matches(tags: frozenset[str], current: str) -> bool:
    """Strong comparison: a weak tag never matches."""
    return ANY in tags or current in tags


def matches_weakly(tags: frozenset[str], current: str) -> bool:
    return ANY in tags or current.removeprefix("W/") in {tag.removeprefix("W/") for tag in tags}
