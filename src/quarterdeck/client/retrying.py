"""Whether a call is sent again, and after how long. Pure: time and chance are given."""

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from msgspec import Struct

# A wait doubles from the first to the cap; where in it a try falls is left to chance, so that clients do not march.
_FIRST_SECONDS = 0.25
_CAP_SECONDS = 8.0


class Policy(Struct, frozen=True):
    # Tries after the first.
    retries: int = 5
    # No try begins later than this after the first began.
    total_seconds: float = 60.0


class Outcome(Struct, frozen=True):
    """What became of one try. Without a status no whole answer came, and `sent` says whether the request may have
    reached the server all the same."""

    status: int | None = None
    sent: bool = True
    retry_after: float | None = None


def may_repeat(method: str, keyed: bool, outcome: Outcome) -> bool:
    """Whether sending it again can help and cannot do anything twice."""
    # Reading changes nothing; a key makes a change take effect once; what is deleted cannot be deleted again.
    harmless = keyed or method in ("GET", "DELETE")
    if outcome.status is None:
        return harmless or not outcome.sent
    if outcome.status == 429:
        return True
    if outcome.status == 409:
        # The one conflict that says so kept nothing of the request.
        return outcome.retry_after is not None
    return outcome.status >= 500 and harmless


def wait_seconds(
    policy: Policy, *, tried: int, elapsed: float, retry_after: float | None, chance: float
) -> float | None:
    """How long to wait after `tried` tries; None: give up. `chance` is from 0 to 1."""
    if tried > policy.retries:
        return None
    wait = (retry_after or 0.0) + chance * backoff_seconds(tried)
    return wait if elapsed + wait <= policy.total_seconds else None


def backoff_seconds(tried: int) -> float:
    # The exponent is bounded: 2.0 ** 1024 is an error.
    return min(_CAP_SECONDS, _FIRST_SECONDS * 2.0 ** min(tried - 1, 32))


def retry_after_seconds(text: str | None, date: str | None, now: datetime | None = None) -> float | None:
    """Retry-After as seconds. A time of day is taken against the server's own clock, where it tells it by `Date`."""
    if text is None:
        return None
    if text.strip().isascii() and text.strip().isdigit():
        return float(text.strip()[:9])
    until = _moment(text)
    if until is None:
        return None
    since = (_moment(date) if date else None) or now or datetime.now(UTC)
    return max(0.0, (until - since).total_seconds())


def _moment(text: str) -> datetime | None:
    try:
        found = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError):
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
