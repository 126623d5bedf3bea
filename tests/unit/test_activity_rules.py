"""Which stretches of time are counted."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from quarterdeck.insights import service

NOW = datetime(2026, 3, 2, 9, 31, 17, 250_000, UTC)


@pytest.mark.parametrize(
    ("minutes", "bucket_seconds", "count", "since"),
    [
        (5, 5, 60, datetime(2026, 3, 2, 9, 26, 20, tzinfo=UTC)),
        (7, 10, 42, datetime(2026, 3, 2, 9, 24, 20, tzinfo=UTC)),
        (60, 60, 60, datetime(2026, 3, 2, 8, 32, tzinfo=UTC)),
        (61, 120, 31, datetime(2026, 3, 2, 8, 30, tzinfo=UTC)),
        (24 * 60, 1800, 48, datetime(2026, 3, 1, 10, 0, tzinfo=UTC)),
        (7 * 24 * 60, 10800, 56, datetime(2026, 2, 23, 12, 0, tzinfo=UTC)),
    ],
)
def test_a_window(minutes: int, bucket_seconds: int, count: int, since: datetime) -> None:
    window = service.activity_window(NOW, minutes)
    assert (window.bucket_seconds, len(window.starts), window.since, window.until) == (
        bucket_seconds,
        count,
        since,
        NOW,
    )


def test_windows_have_the_requested_length_and_at_most_sixty_points() -> None:
    for minutes in range(5, 10081):
        window = service.activity_window(NOW, minutes)
        step = timedelta(seconds=window.bucket_seconds)
        assert len(window.starts) <= service.MAX_BUCKETS
        assert {later - start for start, later in pairwise(window.starts)} == {step}
        assert window.starts[-1] <= NOW < window.starts[-1] + step
        assert abs(window.since - (NOW - timedelta(minutes=minutes))) < step


def test_buckets_are_aligned_between_calls() -> None:
    one, two = service.activity_window(NOW, 60), service.activity_window(NOW + timedelta(seconds=59), 60)
    assert two.starts[:-1] == one.starts[1:]


def test_shortened_window_begins_within_a_bucket() -> None:
    whole = service.activity_window(NOW, 60)
    since = whole.starts[20] + timedelta(seconds=7)
    cut = service.shortened(whole, since)
    assert cut.starts == [since, *whole.starts[21:]]
    assert (cut.until, cut.bucket_seconds) == (whole.until, whole.bucket_seconds)
    assert service.shortened(whole, NOW).starts == [NOW]
