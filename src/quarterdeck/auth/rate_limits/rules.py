"""GCRA, the generic cell rate algorithm. A request adds an interval to the backlog, time takes it away, and it may be
no longer than the burst. Microseconds are whole numbers, so that nothing is gained or lost by adding them up, and small
enough to be exact in Lua, which knows no other numbers than doubles.
"""

from quarterdeck.auth.rate_limits.model import Rate, Standing
from quarterdeck.core.settings import LimitSettings

SECOND_US = 1_000_000
_MINUTE_US = 60 * SECOND_US


def rates(settings: LimitSettings, processes: int) -> tuple[Rate, ...]:
    """Those that are on, as each of so many processes applies them by itself."""
    wanted = (
        ("credential", settings.credential_per_minute, settings.credential_burst),
        ("workspace", settings.workspace_per_minute, settings.workspace_burst),
    )
    return tuple(
        Rate(name, max(1, burst // processes), rounded_up(_MINUTE_US * processes, per_minute))
        for name, per_minute, burst in wanted
        if per_minute > 0
    )


def allows(standing: Standing) -> bool:
    return wait_us(standing) == 0


def wait_us(standing: Standing) -> int:
    """Until the next request is allowed."""
    rate = standing.rate
    return max(0, standing.backlog_us + rate.interval_us - rate.burst * rate.interval_us)


def remaining(standing: Standing) -> int:
    """How many are allowed now."""
    return standing.rate.burst - rounded_up(standing.backlog_us, standing.rate.interval_us)


def until_more_us(standing: Standing) -> int:
    """Until one more is allowed than now; 0 when no more ever are."""
    used = rounded_up(standing.backlog_us, standing.rate.interval_us)
    return standing.backlog_us - (used - 1) * standing.rate.interval_us if used else 0


def quota(rate: Rate) -> tuple[int, int]:
    """The rate as requests and the seconds they are for: a minute, unless that is too short for a single one."""
    return max(1, _MINUTE_US // rate.interval_us), max(60, rounded_up(rate.interval_us, SECOND_US))


def rounded_up(dividend: int, divisor: int) -> int:
    return -(-dividend // divisor)
