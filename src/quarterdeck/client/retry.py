"""Whether a request is sent again, and after which pause. Pure functions: clock and randomness are parameters."""

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from msgspec import Struct

# Full jitter: the pause is a random part of a time that doubles up to the maximum, so that clients spread out.
_FIRST_SECONDS = 0.25
_MAX_SECONDS = 8.0


class Policy(Struct, frozen=True):
    # Attempts after the first.
    retries: int = 5
    # No attempt starts later than this after the start of the first.
    total_seconds: float = 60.0


class Outcome(Struct, frozen=True):
    """The result of one attempt. `status` is None if no complete response arrived; `sent` then says whether the request
    may have reached the server."""

    status: int | None = None
    sent: bool = True
    retry_after: float | None = None


def may_repeat(method: str, has_idempotency_key: bool, outcome: Outcome) -> bool:
    """Whether sending the request again may help and cannot take effect twice."""
    is_repeatable = has_idempotency_key or method in ("GET", "DELETE")
    if outcome.status is None:
        return is_repeatable or not outcome.sent
    if outcome.status == 429:
        return True
    if outcome.status == 409:
        # Only a contended request gets a 409 with Retry-After. Nothing of it was stored.
        return outcome.retry_after is not None
    # 408: the body did not arrive in time, for example because the network failed for a while.
    return (outcome.status >= 500 or outcome.status == 408) and is_repeatable


def wait_seconds(
    policy: Policy, *, attempts: int, elapsed: float, retry_after: float | None, jitter: float
) -> float | None:
    """The pause after so many attempts. None: give up. `jitter` is between 0 and 1."""
    if attempts > policy.retries:
        return None
    wait = (retry_after or 0.0) + jitter * backoff_seconds(attempts)
    return wait if elapsed + wait <= policy.total_seconds else None


def backoff_seconds(attempts: int) -> float:
    # The exponent is bounded because 2.0 ** 1024 overflows.
    return min(_MAX_SECONDS, _FIRST_SECONDS * 2.0 ** min(attempts - 1, 32))


def retry_after_seconds(text: str | None, date: str | None, now: datetime | None = None) -> float | None:
    """Retry-After in seconds. A date is compared with the response's `Date` header, because clocks differ."""
    if text is None:
        return None
    if text.strip().isascii() and text.strip().isdigit():
        return float(text.strip()[:9])
    until = _parse_date(text)
    if until is None:
        return None
    since = (_parse_date(date) if date else None) or now or datetime.now(UTC)
    return max(0.0, (until - since).total_seconds())


def _parse_date(text: str) -> datetime | None:
    try:
        found = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError):
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
