"""Limits that a provider announces in the headers of its answers.

OpenAI and compatible servers send `x-ratelimit-remaining-requests` with `x-ratelimit-reset-requests` (such as `6m0s` or
`20ms`), and the same for tokens. Anthropic sends `anthropic-ratelimit-requests-remaining` with
`anthropic-ratelimit-requests-reset` (a moment), and the same for several kinds of tokens.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime

_KINDS = ("requests", "tokens", "input-tokens", "output-tokens")
_NAMES = [(f"x-ratelimit-remaining-{kind}", f"x-ratelimit-reset-{kind}") for kind in _KINDS] + [
    (f"anthropic-ratelimit-{kind}-remaining", f"anthropic-ratelimit-{kind}-reset") for kind in _KINDS
]
_UNIT_SECONDS = {"d": 86_400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|[dhms]))+")
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|[dhms])")


def used_up_seconds(headers: Mapping[str, str]) -> float:
    """For how long the provider will answer no more requests. 0: it did not announce that."""
    return max(
        (_seconds(headers.get(reset, "")) for remaining, reset in _NAMES if headers.get(remaining, "").strip() == "0"),
        default=0.0,
    )


def _seconds(reset: str) -> float:
    """0 if it cannot be read."""
    reset = reset.strip()[:50]
    if _DURATION.fullmatch(reset):
        return sum(float(number) * _UNIT_SECONDS[unit] for number, unit in _PART.findall(reset))
    try:
        return max(float(reset), 0.0) if reset.replace(".", "", 1).isdecimal() else _until(reset)
    except ValueError:
        return 0.0


def _until(moment: str) -> float:
    reset = datetime.fromisoformat(moment)
    reset = reset if reset.tzinfo is not None else reset.replace(tzinfo=UTC)
    return max((reset - datetime.now(UTC)).total_seconds(), 0.0)
