"""What kind of answer a caller would rather have, by the rules of RFC 9110, 12.5."""

import re

_QUALITY = re.compile(r"q=([01](?:\.[0-9]{0,3})?)", re.IGNORECASE | re.ASCII)


def prefers(accept: str, wanted: str, usual: str) -> bool:
    """Whether `wanted` is liked better than `usual`. When both are liked the same, the one that is named wins over the
    one that a wildcard covers; else it stays with the usual."""
    liking = _liking(accept, wanted)
    return liking[0] > 0 and liking > _liking(accept, usual)


def takes(accepted: str, coding: str) -> bool:
    """Whether a content coding is named and not refused. Who says nothing is sent the plain bytes, always right."""
    for entry in accepted.split(","):
        name, *parameters = (part.strip().lower() for part in entry.split(";"))
        if name == coding:
            return _quality(parameters) > 0
    return False


def _liking(accept: str, media_type: str) -> tuple[float, int]:
    ranges = ["*/*", f"{media_type.partition('/')[0]}/*", media_type]
    # The most specific range that covers the type decides.
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
