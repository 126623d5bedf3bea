"""GCRA, the generic cell rate algorithm. A request adds one interval to the backlog, elapsed time reduces it, and the
backlog may not exceed burst × interval.

Times are whole microseconds: sums are exact, and small enough to stay exact as Lua doubles.
"""

from quarterdeck.auth.rate_limits.model import Rate, RateState
from quarterdeck.core.settings import LimitSettings

SECOND_US = 1_000_000
_MINUTE_US = 60 * SECOND_US


def rates(settings: LimitSettings, processes: int) -> tuple[Rate, ...]:
    """The enabled rates, divided by the number of processes that count independently."""
    configured = (
        ("credential", settings.credential_per_minute, settings.credential_burst),
        ("workspace", settings.workspace_per_minute, settings.workspace_burst),
    )
    return tuple(
        Rate(name, max(1, burst // processes), rounded_up(_MINUTE_US * processes, per_minute))
        for name, per_minute, burst in configured
        if per_minute > 0
    )


def charged(rate: Rate, backlog_us: int) -> RateState:
    """The state after one more request, which is refused unless that is within the burst."""
    return RateState(rate, backlog_us + rate.interval_us)


def is_within_burst(state: RateState) -> bool:
    return state.backlog_us <= state.rate.burst * state.rate.interval_us


def wait_us(state: RateState) -> int:
    """Time until the next request is allowed."""
    rate = state.rate
    return max(0, state.backlog_us + rate.interval_us - rate.burst * rate.interval_us)


def remaining(state: RateState) -> int:
    """Number of requests allowed now."""
    return state.rate.burst - rounded_up(state.backlog_us, state.rate.interval_us)


def until_more_us(state: RateState) -> int:
    """Time until `remaining` grows by one; 0 if the full burst is available."""
    used = rounded_up(state.backlog_us, state.rate.interval_us)
    return state.backlog_us - (used - 1) * state.rate.interval_us if used else 0


def quota(rate: Rate) -> tuple[int, int]:
    """The rate as (requests, seconds). The period is a minute, or one interval if that is longer."""
    return max(1, _MINUTE_US // rate.interval_us), max(60, rounded_up(rate.interval_us, SECOND_US))


def rounded_up(dividend: int, divisor: int) -> int:
    return -(-dividend // divisor)
