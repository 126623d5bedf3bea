"""The response headers of draft-ietf-httpapi-ratelimit-headers-11."""

from collections.abc import Sequence

from quarterdeck.auth.rate_limits import rules
from quarterdeck.auth.rate_limits.limiter import RequestLimit
from quarterdeck.auth.rate_limits.model import Rate, RateState

_REMAINING = b"ratelimit"


class RateLimitHeaders:
    """Headers as ASGI sends them. Every response has them, so the constant one is encoded once."""

    def __init__(self, rates: Sequence[Rate]) -> None:
        self._policy = (b"ratelimit-policy", ", ".join(map(_policy, rates)).encode())

    def of(self, limit: RequestLimit) -> list[tuple[bytes, bytes]]:
        """Empty if the request was not charged."""
        if not limit.is_charged:
            return []
        if not limit.states:
            return [self._policy]
        return [self._policy, (_REMAINING, ", ".join(map(_remaining, limit.states)).encode())]


def _policy(rate: Rate) -> str:
    requests, seconds = rules.quota(rate)
    return f'"{rate.name}";q={requests};w={seconds}'


def _remaining(state: RateState) -> str:
    seconds = rules.rounded_up(rules.until_more_us(state), rules.SECOND_US)
    return f'"{state.rate.name}";r={rules.remaining(state)};t={seconds}'
