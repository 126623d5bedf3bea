"""The rule of the rate limits, on a clock of the test's own."""

from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarterdeck.auth.rate_limits import rules
from quarterdeck.auth.rate_limits.memory_backend import MemoryBackend
from quarterdeck.auth.rate_limits.model import Rate, RateState
from quarterdeck.core.settings import LimitSettings

HOLDER, OTHER = UUID(int=1), UUID(int=2)
# Of a clock that has run for a while.
START_US = 10**15

rates = st.builds(Rate, st.just("credential"), st.integers(1, 50), st.integers(60, 60 * rules.SECOND_US))


@given(rates, st.lists(st.integers(0, 200), max_size=200))
def test_never_more_than_the_burst_and_the_rate_times_the_time(rate: Rate, gaps: list[int]) -> None:
    """In every stretch of time, not only from the first request on. Gaps are in hundredths of an interval."""
    memory, now, allowed = MemoryBackend(), START_US, []
    for gap in gaps:
        now += gap * rate.interval_us // 100
        if memory.charge([(rate, HOLDER)], now).allowed:
            allowed.append(now)
    for first, began in enumerate(allowed):
        for last in range(first, len(allowed)):
            assert last - first + 1 <= rate.burst + (allowed[last] - began) / rate.interval_us


@given(rates, st.lists(st.integers(100, 300), max_size=200))
def test_who_keeps_to_the_rate_is_never_refused(rate: Rate, gaps: list[int]) -> None:
    memory, now = MemoryBackend(), START_US
    for gap in gaps:
        now += rules.rounded_up(gap * rate.interval_us, 100)
        assert memory.charge([(rate, HOLDER)], now).allowed


@given(rates, st.lists(st.integers(0, 150), max_size=100))
def test_what_is_told_is_what_happens(rate: Rate, gaps: list[int]) -> None:
    """As many as remain are allowed and no more; after the wait one is, and a moment before it is not."""
    memory, now = MemoryBackend(), START_US
    for gap in gaps:
        now += gap * rate.interval_us // 100
        taken = memory.charge([(rate, HOLDER)], now)
    (state,) = memory.charge([(rate, HOLDER)], now).states
    left = rules.remaining(state)
    assert [memory.charge([(rate, HOLDER)], now).allowed for _ in range(left + 1)] == [True] * left + [False]
    taken = memory.charge([(rate, HOLDER)], now)
    (state,) = taken.states
    assert (taken.allowed, rules.remaining(state)) == (False, 0)
    wait = rules.wait_us(state)
    assert wait == rules.until_more_us(state) > 0
    assert not memory.charge([(rate, HOLDER)], now + wait - 1).allowed
    assert memory.charge([(rate, HOLDER)], now + wait).allowed


@given(rates, st.integers(0, 60 * 50 * rules.SECOND_US))
def test_one_more_is_allowed_when_it_is_said(rate: Rate, backlog: int) -> None:
    state = RateState(rate, min(backlog, rate.burst * rate.interval_us))
    more = rules.until_more_us(state)
    if more == 0:
        assert rules.remaining(state) == rate.burst
        return
    assert rules.remaining(RateState(rate, state.backlog_us - more)) == rules.remaining(state) + 1
    assert rules.remaining(RateState(rate, state.backlog_us - more + 1)) == rules.remaining(state)


def test_what_one_rate_refuses_is_not_charged_to_another() -> None:
    narrow, wide = Rate("credential", 1, rules.SECOND_US), Rate("workspace", 3, rules.SECOND_US)
    memory = MemoryBackend()
    assert memory.charge([(narrow, HOLDER), (wide, OTHER)], START_US).allowed
    for _ in range(5):
        refused = memory.charge([(narrow, HOLDER), (wide, OTHER)], START_US)
        assert not refused.allowed
        assert [rules.remaining(state) for state in refused.states] == [0, 2]
    assert memory.charge([(narrow, uuid4()), (wide, OTHER)], START_US).allowed


def test_holders_and_rates_are_counted_apart() -> None:
    one, two = Rate("credential", 1, rules.SECOND_US), Rate("workspace", 1, rules.SECOND_US)
    memory = MemoryBackend()
    for charge in ((one, HOLDER), (one, OTHER), (two, HOLDER)):
        assert memory.charge([charge], START_US).allowed
        assert not memory.charge([charge], START_US).allowed


def test_memory_is_bounded_by_those_who_have_a_backlog() -> None:
    memory, rate = MemoryBackend(), Rate("credential", 2, rules.SECOND_US)
    for number in range(20_000):
        # A thousand a second, each once.
        memory.charge([(rate, UUID(int=number))], START_US + number * 1000)
        assert len(memory) < 5_000
    assert memory.charge([(rate, UUID(int=19_999))], START_US + 19_999 * 1000).states[0].backlog_us > rate.interval_us


@pytest.mark.parametrize(
    ("settings", "processes", "expected"),
    [
        (LimitSettings(), 1, ()),
        (LimitSettings(credential_per_minute=600), 1, (Rate("credential", 60, 100_000),)),
        (LimitSettings(workspace_per_minute=600, workspace_burst=9), 2, (Rate("workspace", 4, 200_000),)),
        (LimitSettings(credential_per_minute=1, credential_burst=1), 4, (Rate("credential", 1, 240_000_000),)),
        (LimitSettings(credential_per_minute=7), 1, (Rate("credential", 60, 8_571_429),)),
        (
            LimitSettings(credential_per_minute=60, workspace_per_minute=1_000_000),
            1,
            (Rate("credential", 60, 1_000_000), Rate("workspace", 600, 60)),
        ),
    ],
    ids=["off", "credential", "two processes", "four processes", "never faster", "both"],
)
def test_rates_of_settings(settings: LimitSettings, processes: int, expected: tuple[Rate, ...]) -> None:
    assert rules.rates(settings, processes) == expected


@pytest.mark.parametrize(
    ("interval_us", "expected"), [(100_000, (600, 60)), (60_000_000, (1, 60)), (240_000_000, (1, 240))]
)
def test_quota_is_told_by_the_minute(interval_us: int, expected: tuple[int, int]) -> None:
    assert rules.quota(Rate("credential", 1, interval_us)) == expected
