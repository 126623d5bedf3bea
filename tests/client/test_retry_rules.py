"""When a call is sent again, and after how long: pure decisions."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarterdeck.client.retry import Outcome, Policy, may_repeat, retry_after_seconds, wait_seconds

LOST = Outcome()
NOT_SENT = Outcome(sent=False)


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
        ("POST", False, Outcome(429), True),
        ("POST", False, Outcome(503), False),
        ("POST", True, Outcome(503), True),
        ("POST", True, Outcome(500), True),
        ("GET", False, Outcome(502), True),
        ("DELETE", False, Outcome(503), True),
        ("POST", True, Outcome(409), False),
        ("POST", True, Outcome(409, retry_after=0.0), True),
        ("POST", False, Outcome(409, retry_after=0.0), True),
        *(("GET", False, Outcome(status), False) for status in (304, 307, 400, 401, 403, 404, 408, 412, 413, 426)),
        *(("POST", True, Outcome(status, retry_after=1.0), False) for status in (400, 401, 403, 404, 412, 413, 426)),
    ],
)
def test_may_repeat(method: str, keyed: bool, outcome: Outcome, expected: bool) -> None:
    assert may_repeat(method, keyed, outcome) is expected


def test_waits_double_up_to_a_cap_and_are_spread() -> None:
    policy = Policy(retries=100, total_seconds=1e9)
    longest = [wait_seconds(policy, tried=n, elapsed=0, retry_after=None, chance=1.0) for n in range(1, 9)]
    assert longest == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 8.0, 8.0]
    assert wait_seconds(policy, tried=4, elapsed=0, retry_after=None, chance=0.0) == 0.0
    assert wait_seconds(policy, tried=4, elapsed=0, retry_after=None, chance=0.5) == 1.0


def test_never_comes_before_the_server_said() -> None:
    assert wait_seconds(Policy(), tried=1, elapsed=0, retry_after=7.0, chance=0.0) == 7.0
    assert wait_seconds(Policy(), tried=1, elapsed=0, retry_after=7.0, chance=1.0) == 7.25


def test_is_bounded_by_tries_and_by_time() -> None:
    policy = Policy(retries=2, total_seconds=10.0)
    assert wait_seconds(policy, tried=2, elapsed=0, retry_after=None, chance=1.0) is not None
    assert wait_seconds(policy, tried=3, elapsed=0, retry_after=None, chance=1.0) is None
    assert wait_seconds(policy, tried=1, elapsed=9.9, retry_after=None, chance=1.0) is None
    assert wait_seconds(policy, tried=1, elapsed=5.0, retry_after=5.1, chance=0.0) is None
    assert wait_seconds(Policy(retries=0), tried=1, elapsed=0, retry_after=None, chance=0.0) is None


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
def test_any_header_gives_a_wait_or_none(text: str, date: str | None) -> None:
    found = retry_after_seconds(text, date, NOW)
    assert found is None or found >= 0
