"""What came out: figures with their targets, and the samples behind them."""

from collections.abc import Sequence
from statistics import median, quantiles

from msgspec import Struct


class Figure(Struct, frozen=True):
    name: str
    value: float
    unit: str
    # At most this much. None: shown for comparison only.
    target: float | None = None

    @property
    def met(self) -> bool | None:
        return None if self.target is None else self.value <= self.target


class Measured(Struct, frozen=True):
    """The outcome of one measurement. `samples_ms` are times by their name, for the plot."""

    figures: list[Figure]
    samples_ms: dict[str, list[float]] = {}


def spread(name: str, samples_ms: Sequence[float], *, tail: int = 95, target_ms: float | None = None) -> list[Figure]:
    """Median and tail. The target is for the median: one hiccup of a shared machine is in every tail."""
    return [
        Figure(f"{name}, median", median(samples_ms), "ms", target_ms),
        Figure(f"{name}, p{tail}", quantiles(samples_ms, n=100, method="inclusive")[tail - 1], "ms"),
    ]
