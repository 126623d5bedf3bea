"""Rules of webhooks: which addresses may be posted to, and when a failed attempt is repeated."""

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

from quarterdeck.core.settings import WebhookSettings
from quarterdeck.outbound.rules import AddressPolicy
from quarterdeck.webhooks.model import WebhookEvent

_RETRY_AFTER_SECONDS = re.compile(r"[0-9]{1,9}", re.ASCII)
_LONGEST_RETRY_AFTER = timedelta(days=1)
_JITTER = 0.1


def address_policy(settings: WebhookSettings) -> AddressPolicy:
    return AddressPolicy(allow_http=settings.allow_http, allow_private=settings.allow_private_addresses)


def ordered(events: Iterable[WebhookEvent]) -> list[WebhookEvent]:
    """Without duplicates, in the order of the enum."""
    wanted = set(events)
    return [event for event in WebhookEvent if event in wanted]


def pauses(settings: WebhookSettings) -> list[int]:
    """Seconds to wait after each failed attempt. A delivery fails after one attempt more than there are pauses."""
    return [int(seconds) for seconds in settings.retry_seconds.split(",")]


def pause_after(
    turn: int, settings: WebhookSettings, now: datetime, random: float, retry_after: str | None
) -> timedelta | None:
    """The pause after attempt number `turn`; None if that was the last. `random`, from 0 to 1, adds jitter, so that
    receivers which failed together are not called together."""
    every = pauses(settings)
    if turn > len(every):
        return None
    pause = timedelta(seconds=every[turn - 1]) * (1 + _JITTER * random)
    return max(pause, _asked_pause(retry_after, now))


def _asked_pause(retry_after: str | None, now: datetime) -> timedelta:
    """The pause of a Retry-After header (seconds or a date), one day at most. A malformed header is ignored."""
    asked = timedelta()
    if retry_after is not None and _RETRY_AFTER_SECONDS.fullmatch(retry_after):
        asked = timedelta(seconds=int(retry_after))
    elif retry_after is not None:
        try:
            until = parsedate_to_datetime(retry_after)
            asked = (until if until.tzinfo else until.replace(tzinfo=UTC)) - now
        except (ValueError, OverflowError):
            asked = timedelta()
    return min(asked, _LONGEST_RETRY_AFTER)
