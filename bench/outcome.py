"""What came out of a case: ratios, their middle and their spread, and whether that is what it is meant to reach."""

from collections.abc import Sequence
from statistics import median

from msgspec import Struct

from bench.case import Reach


class Outcome(Struct, frozen=True, kw_only=True):
    name: str
    title: str
    against: str
    unit: str
    reach: Reach | None
    # One value a round. No ceiling: there is none.
    us: list[float] = []
    ceiling: list[float] = []
    samples_ms: list[float] = []
    notes: dict[str, float] = {}
    # Why it could not be measured.
    fault: str | None = None

    @property
    def is_ratio(self) -> bool:
        return bool(self.ceiling)

    @property
    def results(self) -> list[float]:
        """Round by round, so that both sides had the same weather."""
        return ratios(self.us, self.ceiling) if self.is_ratio else self.us

    @property
    def result(self) -> float:
        return median(self.results)

    @property
    def spread(self) -> tuple[float, float]:
        return min(self.results), max(self.results)

    @property
    def result_unit(self) -> str:
        return "×" if self.is_ratio else self.unit

    @property
    def met(self) -> bool | None:
        """None: it has nothing to reach. What could not be measured has not reached it."""
        if self.reach is None:
            return None
        return self.fault is None and self.reach.met_by(self.result)

    @property
    def is_unanimous(self) -> bool:
        """Whether every round says the same about the target. Otherwise the machine was busy, or it is close."""
        return self.reach is None or len({self.reach.met_by(value) for value in self.results}) <= 1


def ratios(us: Sequence[float], ceiling: Sequence[float]) -> list[float]:
    return [ours / theirs for ours, theirs in zip(us, ceiling, strict=True)]


def has_halved(now: float, stored: float, reach: Reach) -> bool:
    """Or doubled, where less is better."""
    return now < stored / 2 if reach.more_is_better else now > stored * 2
