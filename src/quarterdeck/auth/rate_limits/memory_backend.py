"""Rate-limit state in the memory of one process."""

from collections.abc import Sequence
from uuid import UUID

from quarterdeck.auth.rate_limits import rules
from quarterdeck.auth.rate_limits.model import Decision, Rate, RateState

_MIN_CLEANUP_ENTRIES = 1000


class MemoryBackend:
    def __init__(self) -> None:
        # The time at which each backlog reaches zero.
        self._empty_at_us: dict[tuple[str, UUID], int] = {}
        self._cleanup_entries = _MIN_CLEANUP_ENTRIES

    def charge(self, charges: Sequence[tuple[Rate, UUID]], now_us: int) -> Decision:
        """All rates are charged or none: a request that one rate refuses does not count against another."""
        states = tuple(RateState(rate, self._backlog_us(rate, owner_id, now_us)) for rate, owner_id in charges)
        if not all(map(rules.allows, states)):
            return Decision(False, states)
        charged = tuple(RateState(state.rate, state.backlog_us + state.rate.interval_us) for state in states)
        for state, (rate, owner_id) in zip(charged, charges, strict=True):
            self._empty_at_us[rate.name, owner_id] = now_us + state.backlog_us
        self._clean_up(now_us)
        return Decision(True, charged)

    def __len__(self) -> int:
        return len(self._empty_at_us)

    def _backlog_us(self, rate: Rate, owner_id: UUID, now_us: int) -> int:
        return max(0, self._empty_at_us.get((rate.name, owner_id), 0) - now_us)

    def _clean_up(self, now_us: int) -> None:
        """Remove empty backlogs whenever the number of entries has doubled, so that the cost per request is constant
        on average."""
        if len(self._empty_at_us) > self._cleanup_entries:
            self._empty_at_us = {key: empty_at for key, empty_at in self._empty_at_us.items() if empty_at > now_us}
            self._cleanup_entries = 2 * len(self._empty_at_us) + _MIN_CLEANUP_ENTRIES
