"""Rate-limit state in the memory of one process."""

from collections.abc import Sequence

from quarterdeck.auth.rate_limits import rules
from quarterdeck.auth.rate_limits.model import Decision, Keys, Rate, RateState

_MIN_CLEANUP_ENTRIES = 1000


class MemoryBackend:
    def __init__(self, rates: Sequence[Rate]) -> None:
        self._rates = tuple(rates)
        # The time at which each backlog reaches zero.
        self._empty_at_us: dict[str, int] = {}
        self._cleanup_entries = _MIN_CLEANUP_ENTRIES

    def charge(self, keys: Keys, now_us: int) -> Decision:
        """All rates are charged or none: a request that one rate refuses does not count against another."""
        before = [max(0, self._empty_at_us.get(key, 0) - now_us) for key in keys]
        states = tuple(map(rules.charged, self._rates, before))
        if not all(map(rules.is_within_burst, states)):
            return Decision(False, tuple(map(RateState, self._rates, before)))
        for key, state in zip(keys, states, strict=True):
            self._empty_at_us[key] = now_us + state.backlog_us
        if len(self._empty_at_us) > self._cleanup_entries:
            self._clean_up(now_us)
        return Decision(True, states)

    def __len__(self) -> int:
        return len(self._empty_at_us)

    def _clean_up(self, now_us: int) -> None:
        """Remove empty backlogs. Done whenever the number of entries has doubled, so that the cost per request is
        constant on average."""
        self._empty_at_us = {key: empty_at for key, empty_at in self._empty_at_us.items() if empty_at > now_us}
        self._cleanup_entries = 2 * len(self._empty_at_us) + _MIN_CLEANUP_ENTRIES
