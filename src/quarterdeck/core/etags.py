"""Entity tags of records that people change: made of the record's revision, compared as RFC 9110 says."""

import re

ANY = "*"
_TAG = re.compile(r'(?:W/)?"[\x21\x23-\x7e\x80-\xff]*"')
_LIST = re.compile(rf"\s*{_TAG.pattern}\s*(?:,\s*{_TAG.pattern}\s*)*")


def etag(revision: int) -> str:
    return f'"{revision}"'


def parse_tags(text: str) -> frozenset[str] | None:
    """The tags of an If-Match or If-None-Match; None when it is malformed."""
    if text.strip() == ANY:
        return frozenset({ANY})
    return frozenset(_TAG.findall(text)) if _LIST.fullmatch(text) else None


def matches(tags: frozenset[str], current: str) -> bool:
    """Strongly: a weak tag matches nothing."""
    return ANY in tags or current in tags


def matches_weakly(tags: frozenset[str], current: str) -> bool:
    return ANY in tags or current.removeprefix("W/") in {tag.removeprefix("W/") for tag in tags}
