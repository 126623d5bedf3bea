"""When a request is sent again, and after which pause."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarterdeck.client.calls import AttemptResult, Policy, may_repeat, retry_after_seconds, wait_seconds

LOST = AttemptResult()
NOT_SENT = AttemptResult(sent=False)


@pytest.mark.parametrize(
    ("method", "keyed", "outcome", "expected"),
    [
        ("GET", False, LOST, True),
        ("DELETE", False, LOST, True),
        ("POST", True, LOST, True),
        ("PATCH", True, LOST, True),
        ("POST", False, LOST, False),
        ("PATCH", False, LOST, False),
        ("POST", False, NOT_SENT, True),
        ("POST", False, AttemptResult(429), True),
        ("POST", False, AttemptResult(503), False),
        ("POST", True, AttemptResult(503), True),
        ("POST", True, AttemptResult(500), True),
        ("GET", False, AttemptResult(502), True),
        ("DELETE", False, AttemptResult(503), True),
        ("POST", True, AttemptResult(409), False),
        ("POST", True, AttemptResult(409, retry_after=0.0), True),
        ("POST", False, AttemptResult(409, retry_after=0.0), True),
        ("POST", True, AttemptResult(408), True),
        ("GET", False, AttemptResult(408), True),
        ("POST", False, AttemptResult(408), False),
        *(("GET", False, AttemptResult(status), False) for status in (304, 307, 400, 401, 403, 404, 412, 413, 426)),
        *(
            ("POST", True, AttemptResult(status, retry_after=1.0), False)
            for status in (400, 401, 403, 404, 412, 413, 426)
        ),
    ],
)
def test_may_repeat(method: str, keyed: bool, outcome: AttemptResult, expected: bool) -> None:
    assert may_repeat(method, keyed, outcome) is expected


def test_pauses_double_up_to_a_maximum_and_have_jitter() -> None:
    policy = Policy(retries=100, total_seconds=1e9)
    longest = [wait_seconds(policy, attempts=n, elapsed=0, retry_after=None, jitter=1.0) for n in range(1, 9)]
    assert longest == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 8.0, 8.0]
    assert wait_seconds(policy, attempts=4, elapsed=0, retry_after=None, jitter=0.0) == 0.0
    assert wait_seconds(policy, attempts=4, elapsed=0, retry_after=None, jitter=0.5) == 1.0


def test_retry_after_is_respected() -> None:
    assert wait_seconds(Policy(), attempts=1, elapsed=0, retry_after=7.0, jitter=0.0) == 7.0
    assert wait_seconds(Policy(), attempts=1, elapsed=0, retry_after=7.0, jitter=1.0) == 7.25


def test_attempts_and_time_are_limited() -> None:
    policy = Policy(retries=2, total_seconds=10.0)
    assert wait_seconds(policy, attempts=2, elapsed=0, retry_after=None, jitter=1.0) is not None
    assert wait_seconds(policy, attempts=3, elapsed=0, retry_after=None, jitter=1.0) is None
    assert wait_seconds(policy, attempts=1, elapsed=9.9, retry_after=None, jitter=1.0) is None
    assert wait_seconds(policy, attempts=1, elapsed=5.0, retry_after=5.1, jitter=0.0) is None
    assert wait_seconds(Policy(retries=0), attempts=1, elapsed=0, retry_after=None, jitter=0.0) is None


NOW = datetime(1994, 11, 6, 8, 49, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "date", "expected"),
    [
        (None, None, None),
        ("0", None, 0.0),
        (" 12 ", None, 12.0),
        ("999999999999999999999999", None, 999999999.0),
        ("-1", None, None),
        ("1.5", None, None),
        ("١", None, None),
        ("soon", None, None),
        ("", None, None),
        ("Sun, 06 Nov 1994 08:49:37 GMT", None, 7.0),
        ("Sun, 06 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 08:49:35 GMT", 2.0),
        ("Sun, 06 Nov 1994 08:49:37 GMT", "nonsense", 7.0),
        ("Sunday, 06-Nov-94 08:49:37 GMT", None, 7.0),
        ("Sun Nov  6 08:49:37 1994", None, 7.0),
        ("Sun, 06 Nov 1994 08:49:00 GMT", None, 0.0),
        ("Sun, 99 Nov 1994 08:49:00 GMT", None, None),
    ],
)
def test_retry_after(text: str | None, date: str | None, expected: float | None) -> None:
    assert retry_after_seconds(text, date, NOW) == expected


@given(st.text(), st.none() | st.text())
def test_any_retry_after_header_gives_a_pause_or_none(text: str, date: str | None) -> None:
    found = retry_after_seconds(text, date, NOW)
    assert found is None or found >= 0
