"""Which stretches of time a window is made of."""

from datetime import UTC, datetime, timedelta

from quarterdeck.activity.model import Window

MOST_BUCKETS = 60
# Lengths that people can read off a chart: seconds, minutes, hours.
_BUCKET_SECONDS = (5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def window(now: datetime, minutes: int) -> Window:
    """The stretch that `now` is in, and as many before it as make up the minutes. They begin at multiples of their
    length since 1970, so that what is over keeps its place from one call to the next."""
    seconds = minutes * 60
    length = next(one for one in _BUCKET_SECONDS if -(-seconds // one) <= MOST_BUCKETS)
    step = timedelta(seconds=length)
    last = now - (now - _EPOCH) % step
    count = -(-seconds // length)
    return Window(length, [last - step * before for before in reversed(range(count))], now)


def cut(whole: Window, since: datetime) -> Window:
    """The same, from a later moment on: the first stretch may be a part of one."""
    later = [start for start in whole.starts if start > since]
    return Window(whole.bucket_seconds, [since, *later], whole.until)
