"""For how long a provider says that it answers no more requests."""

from datetime import UTC, datetime, timedelta

import pytest

from quarterdeck.models.announced_limits import used_up_seconds


@pytest.mark.parametrize(
    ("reset", "seconds"),
    [
        ("1s", 1),
        ("6m0s", 360),
        ("20ms", 0.02),
        ("1h2m3.5s", 3723.5),
        ("7", 7),
        ("0.5", 0.5),
        ("", 0),
        ("soon", 0),
        ("-5", 0),
        ("1s2", 0),
        ("nan", 0),
    ],
)
def test_durations(reset: str, seconds: float) -> None:
    headers = {"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": reset}
    assert used_up_seconds(headers) == pytest.approx(seconds)


def test_moments() -> None:
    def seconds(reset: str) -> float:
        name = "anthropic-ratelimit-input-tokens"
        return used_up_seconds({f"{name}-remaining": "0", f"{name}-reset": reset})

    later = datetime.now(UTC) + timedelta(seconds=30)
    assert seconds(later.strftime("%Y-%m-%dT%H:%M:%SZ")) == pytest.approx(30, abs=2)
    assert seconds("2020-01-01T00:00:00Z") == 0
    assert seconds("2020-01-01T00:00:00") == 0


def test_only_what_is_used_up_counts() -> None:
    requests = {"x-ratelimit-remaining-requests": "1", "x-ratelimit-reset-requests": "50s"}
    tokens = {"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "2s"}
    assert (used_up_seconds({}), used_up_seconds(requests), used_up_seconds(requests | tokens)) == (0, 0, 2)
    # Headers without their other half.
    assert used_up_seconds({"x-ratelimit-remaining-requests": "0"}) == 0
