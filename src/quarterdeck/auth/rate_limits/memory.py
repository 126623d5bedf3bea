"""Backlogs of one process."""

from collections.abc import Sequence
from uuid import UUID

from quarterdeck.auth.rate_limits import rules
from quarterdeck.auth.rate_limits.model import Rate, Standing, Taken

_FEW = 1000


class Memory:
    def __init__(self) -> None:
        # When each backlog will be gone.
        self._gone_at_us: dict[tuple[str, UUID], int] = {}
        self._tidy_at = _FEW

    def take(self, charges: Sequence[tuple[Rate, UUID]], now_us: int) -> Taken:
        """All of them or none: what one rate refuses is not charged to another."""
        standings = tuple(Standing(rate, self._backlog(rate, holder, now_us)) for rate, holder in charges)
        if not all(map(rules.allows, standings)):
            return Taken(False, standings)
        charged = tuple(Standing(each.rate, each.backlog_us + each.rate.interval_us) for each in standings)
        for standing, (rate, holder) in zip(charged, charges, strict=True):
            self._gone_at_us[rate.name, holder] = now_us + standing.backlog_us
        self._tidy(now_us)
        return Taken(True, charged)

    def __len__(self) -> int:
        return len(self._gone_at_us)

    def _backlog(self, rate: Rate, holder: UUID, now_us: int) -> int:
        return max(0, self._gone_at_us.get((rate.name, holder), 0) - now_us)

    def _tidy(self, now_us: int) -> None:
        """A backlog that is gone says as much as none. Looking at all of them is paid for by as many new ones."""
        if len(self._gone_at_us) > self._tidy_at:
            self._gone_at_us = {key: gone_at for key, gone_at in self._gone_at_us.items() if gone_at > now_us}
            self._tidy_at = 2 * len(self._gone_at_us) + _FEW
