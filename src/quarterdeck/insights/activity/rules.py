"""Divides a time window into buckets."""

from datetime import UTC, datetime, timedelta

from quarterdeck.insights.activity.model import Window

MAX_BUCKETS = 60
# Round lengths, for the axis of a chart.
_BUCKET_SECONDS = (5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def window(now: datetime, minutes: int) -> Window:
    """The bucket of `now` and enough buckets before it to cover the minutes. Buckets start at multiples of their length
    since 1970, so past buckets are the same in every call."""
    seconds = minutes * 60
    length = next(length for length in _BUCKET_SECONDS if -(-seconds // length) <= MAX_BUCKETS)
    step = timedelta(seconds=length)
    last = now - (now - _EPOCH) % step
    count = -(-seconds // length)
    return Window(length, [last - step * before for before in reversed(range(count))], now)


def shortened(window: Window, since: datetime) -> Window:
    """The window from a later time on. Its first bucket may be shorter than the others."""
    later = [start for start in window.starts if start > since]
    return Window(window.bucket_seconds, [since, *later], window.until)
