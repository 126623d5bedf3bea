"""The rule of the rate limits, on a clock of the test's own."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarterdeck.auth import rate_limits
from quarterdeck.auth.rate_limits import MemoryBackend, Rate, RateState
from quarterdeck.core.settings import LimitSettings

HOLDER, OTHER = ("holder",), ("other",)
# The time of a clock that has run for a while.
START_US = 10**15

rates = st.builds(Rate, st.just("credential"), st.integers(1, 50), st.integers(60, 60 * rate_limits.SECOND_US))


@given(rates, st.lists(st.integers(0, 200), max_size=200))
def test_never_more_than_the_burst_and_the_rate_times_the_time(rate: Rate, gaps: list[int]) -> None:
    """In every stretch of time, not only from the first request on. Gaps are in hundredths of an interval."""
    memory, now, allowed = MemoryBackend([rate]), START_US, []
    for gap in gaps:
        now += gap * rate.interval_us // 100
        if memory.charge(HOLDER, now).allowed:
            allowed.append(now)
    for first, began in enumerate(allowed):
        for last in range(first, len(allowed)):
            assert last - first + 1 <= rate.burst + (allowed[last] - began) / rate.interval_us


@given(rates, st.lists(st.integers(100, 300), max_size=200))
def test_caller_within_the_rate_is_never_refused(rate: Rate, gaps: list[int]) -> None:
    memory, now = MemoryBackend([rate]), START_US
    for gap in gaps:
        now += rate_limits.rounded_up(gap * rate.interval_us, 100)
        assert memory.charge(HOLDER, now).allowed


@given(rates, st.lists(st.integers(0, 150), max_size=100))
def test_reported_values_match_later_decisions(rate: Rate, gaps: list[int]) -> None:
    """As many as remain are allowed and no more; after the wait one is, and a moment before it is not."""
    memory, now = MemoryBackend([rate]), START_US
    for gap in gaps:
        now += gap * rate.interval_us // 100
        taken = memory.charge(HOLDER, now)
    (state,) = memory.charge(HOLDER, now).states
    left = rate_limits.remaining(state)
    assert [memory.charge(HOLDER, now).allowed for _ in range(left + 1)] == [True] * left + [False]
    taken = memory.charge(HOLDER, now)
    (state,) = taken.states
    assert (taken.allowed, rate_limits.remaining(state)) == (False, 0)
    wait = rate_limits.wait_us(state)
    assert wait == rate_limits.until_more_us(state) > 0
    assert not memory.charge(HOLDER, now + wait - 1).allowed
    assert memory.charge(HOLDER, now + wait).allowed


@given(rates, st.integers(0, 60 * 50 * rate_limits.SECOND_US))
def test_request_is_allowed_after_the_reported_wait(rate: Rate, backlog: int) -> None:
    state = RateState(rate, min(backlog, rate.burst * rate.interval_us))
    more = rate_limits.until_more_us(state)
    if more == 0:
        assert rate_limits.remaining(state) == rate.burst
        return
    assert rate_limits.remaining(RateState(rate, state.backlog_us - more)) == rate_limits.remaining(state) + 1
    assert rate_limits.remaining(RateState(rate, state.backlog_us - more + 1)) == rate_limits.remaining(state)


def test_refused_request_is_not_charged() -> None:
    narrow, wide = Rate("credential", 1, rate_limits.SECOND_US), Rate("workspace", 3, rate_limits.SECOND_US)
    memory = MemoryBackend([narrow, wide])
    assert memory.charge(("key", "workspace"), START_US).allowed
    for _ in range(5):
        refused = memory.charge(("key", "workspace"), START_US)
        assert not refused.allowed
        assert [rate_limits.remaining(state) for state in refused.states] == [0, 2]
    assert memory.charge(("another key", "workspace"), START_US).allowed


def test_holders_and_rates_are_counted_apart() -> None:
    one, two = Rate("credential", 1, rate_limits.SECOND_US), Rate("workspace", 1, rate_limits.SECOND_US)
    assert len({rate.key(holder) for rate in (one, two) for holder in (UUID(int=1), UUID(int=2))}) == 4
    memory = MemoryBackend([one])
    for keys in (HOLDER, OTHER):
        assert memory.charge(keys, START_US).allowed
        assert not memory.charge(keys, START_US).allowed


def test_memory_is_bounded_by_those_who_have_a_backlog() -> None:
    rate = Rate("credential", 2, rate_limits.SECOND_US)
    memory = MemoryBackend([rate])
    for number in range(20_000):
        # A thousand a second, each once.
        memory.charge((f"{number}",), START_US + number * 1000)
        assert len(memory) < 5_000
    assert memory.charge(("19999",), START_US + 19_999 * 1000).states[0].backlog_us > rate.interval_us


@pytest.mark.parametrize(
    ("settings", "processes", "expected"),
    [
        (LimitSettings(0, 1, 0, 1), 1, ()),
        (LimitSettings(), 1, (Rate("credential", 5_000, 2_000), Rate("workspace", 10_000, 1_000))),
        (LimitSettings(600, 60, 0), 1, (Rate("credential", 60, 100_000),)),
        (LimitSettings(0, 1, 600, 9), 2, (Rate("workspace", 4, 200_000),)),
        (LimitSettings(1, 1, 0), 4, (Rate("credential", 1, 240_000_000),)),
        (LimitSettings(7, 60, 0), 1, (Rate("credential", 60, 8_571_429),)),
        (LimitSettings(60, 60, 1_000_000, 600), 1, (Rate("credential", 60, 1_000_000), Rate("workspace", 600, 60))),
    ],
    ids=["off", "default", "credential", "two processes", "four processes", "never faster", "both"],
)
def test_rates_of_settings(settings: LimitSettings, processes: int, expected: tuple[Rate, ...]) -> None:
    assert rate_limits.rates(settings, processes) == expected


@pytest.mark.parametrize(
    ("interval_us", "expected"), [(100_000, (600, 60)), (60_000_000, (1, 60)), (240_000_000, (1, 240))]
)
def test_quota_is_given_per_minute(interval_us: int, expected: tuple[int, int]) -> None:
    assert rate_limits.quota(Rate("credential", 1, interval_us)) == expected
