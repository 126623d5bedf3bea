"""The response headers of draft-ietf-httpapi-ratelimit-headers-11."""

from quarterdeck.auth.rate_limits import rules
from quarterdeck.auth.rate_limits.limiter import RequestLimit
from quarterdeck.auth.rate_limits.model import Rate, RateState

POLICY = "RateLimit-Policy"
REMAINING = "RateLimit"


def rate_limit_headers(limit: RequestLimit) -> dict[str, str]:
    """Empty if the request was not charged."""
    if not limit.rates:
        return {}
    headers = {POLICY: ", ".join(map(_policy, limit.rates))}
    if limit.states:
        headers[REMAINING] = ", ".join(map(_remaining, limit.states))
    return headers


def _policy(rate: Rate) -> str:
    requests, seconds = rules.quota(rate)
    return f'"{rate.name}";q={requests};w={seconds}'


def _remaining(state: RateState) -> str:
    seconds = rules.rounded_up(rules.until_more_us(state), rules.SECOND_US)
    return f'"{state.rate.name}";r={rules.remaining(state)};t={seconds}'
