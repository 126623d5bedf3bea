"""GCRA, the generic cell rate algorithm. A request adds one interval to the backlog, elapsed time reduces it, and the
backlog may not exceed burst × interval.

Times are whole microseconds: sums are exact, and small enough to stay exact as Lua doubles.
"""

from collections.abc import Sequence
from uuid import UUID

from msgspec import Struct

from quarterdeck.core.settings import LimitSettings

# One key for each rate, in the order of the rates: what a caller is charged under.
Keys = tuple[str, ...]


class Rate(Struct, frozen=True):
    """A configured limit: a burst of requests, and one more request per interval."""

    name: str
    burst: int
    interval_us: int

    def key(self, owner_id: UUID) -> str:
        """Under which the backlog of an owner is kept, in memory or in Redis."""
        return f"quarterdeck:limit:{self.name}:{owner_id}"


class ChargedCaller(Struct, frozen=True):
    """What requests with a credential are charged to: its workspace, and the keys of its backlogs."""

    workspace_id: UUID
    keys: Keys


class RateState(Struct, frozen=True):
    """The state of one rate for one caller. `backlog_us` is the time until the full burst is available again."""

    rate: Rate
    backlog_us: int


class RateDecision(Struct, frozen=True):
    """Whether a request is allowed, and the states after it. A refused request does not change the states."""

    allowed: bool
    states: tuple[RateState, ...]


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


# Rate-limit state in the memory of one process.

_MIN_CLEANUP_ENTRIES = 1000


class MemoryBackend:
    def __init__(self, rates: Sequence[Rate]) -> None:
        self._rates = tuple(rates)
        # The time at which each backlog reaches zero.
        self._empty_at_us: dict[str, int] = {}
        self._cleanup_entries = _MIN_CLEANUP_ENTRIES

    def charge(self, keys: Keys, now_us: int) -> RateDecision:
        """All rates are charged or none: a request that one rate refuses does not count against another."""
        before = [max(0, self._empty_at_us.get(key, 0) - now_us) for key in keys]
        states = tuple(map(charged, self._rates, before))
        if not all(map(is_within_burst, states)):
            return RateDecision(False, tuple(map(RateState, self._rates, before)))
        for key, state in zip(keys, states, strict=True):
            self._empty_at_us[key] = now_us + state.backlog_us
        if len(self._empty_at_us) > self._cleanup_entries:
            self._clean_up(now_us)
        return RateDecision(True, states)

    def __len__(self) -> int:
        return len(self._empty_at_us)

    def _clean_up(self, now_us: int) -> None:
        """Remove empty backlogs. Done whenever the number of entries has doubled, so that the cost per request is
        constant on average."""
        self._empty_at_us = {key: empty_at for key, empty_at in self._empty_at_us.items() if empty_at > now_us}
        self._cleanup_entries = 2 * len(self._empty_at_us) + _MIN_CLEANUP_ENTRIES
