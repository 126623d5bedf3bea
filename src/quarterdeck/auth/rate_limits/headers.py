"""What a caller has left, in the header fields of draft-ietf-httpapi-ratelimit-headers-11."""

from quarterdeck.auth.rate_limits import rules
from quarterdeck.auth.rate_limits.allowance import Allowance
from quarterdeck.auth.rate_limits.model import Rate, Standing

POLICY = "RateLimit-Policy"
STANDING = "RateLimit"


def rate_limit_headers(allowance: Allowance) -> dict[str, str]:
    """Empty for a request that was not charged to anyone."""
    if not allowance.rates:
        return {}
    headers = {POLICY: ", ".join(map(_policy, allowance.rates))}
    if allowance.standings:
        headers[STANDING] = ", ".join(map(_standing, allowance.standings))
    return headers


def _policy(rate: Rate) -> str:
    requests, seconds = rules.quota(rate)
    return f'"{rate.name}";q={requests};w={seconds}'


def _standing(standing: Standing) -> str:
    seconds = rules.rounded_up(rules.until_more_us(standing), rules.SECOND_US)
    return f'"{standing.rate.name}";r={rules.remaining(standing)};t={seconds}'
