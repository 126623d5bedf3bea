"""Choosing a representation by `Accept` and `Accept-Encoding` (RFC 9110, section 12.5)."""

import re

_QUALITY = re.compile(r"q=([01](?:\.[0-9]{0,3})?)", re.IGNORECASE | re.ASCII)


def prefers(accept: str, wanted: str, default: str) -> bool:
    """Whether the client prefers `wanted` to `default`. With equal quality, a type that is named wins over a type that
    a wildcard covers, and otherwise the default wins."""
    rank = _rank(accept, wanted)
    return rank[0] > 0 and rank > _rank(accept, default)


def accepts_encoding(accept_encoding: str, coding: str) -> bool:
    """Whether a content coding is named and not refused. Without the header the client gets the plain bytes."""
    for entry in accept_encoding.split(","):
        name, *parameters = (part.strip().lower() for part in entry.split(";"))
        if name == coding:
            return _quality(parameters) > 0
    return False


def _rank(accept: str, media_type: str) -> tuple[float, int]:
    """Quality, then precision of the range that covers the type."""
    ranges = ["*/*", f"{media_type.partition('/')[0]}/*", media_type]
    # The most specific range decides.
    precision, quality = -1, 0.0
    for entry in accept.split(","):
        name, *parameters = (part.strip().lower() for part in entry.split(";"))
        if name in ranges and ranges.index(name) > precision:
            precision, quality = ranges.index(name), _quality(parameters)
    return quality, precision


def _quality(parameters: list[str]) -> float:
    for parameter in parameters:
        if match := _QUALITY.fullmatch(parameter):
            return min(float(match[1]), 1.0)
    return 1.0
