"""What a case is: how one round of us is measured, and one round of what we are measured against.

A case is a file of bench/cases/ with a `CASE`, found by listing the folder. bench/README.md shows how to write one.
"""

import importlib
import pkgutil
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Generic, TypeVar

from msgspec import Struct

from bench import cases

S = TypeVar("S")


class BenchError(Exception):
    """A case could not be measured, in one line. Slow is not a fault; wrong answers are."""


def _rows(count: int, small: bool) -> int:
    return max(min(count, 5), count // 200) if small else count


class Ground(Struct, frozen=True):
    """What every stage is built on."""

    # A PostgreSQL of the bench's own, with the right to make databases.
    postgres_url: str
    # Empty, on the disk that the database is on.
    folder: Path
    # Shown to the person who waits.
    tell: Callable[[str], None]
    # Whether it only matters that a case can be measured.
    small: bool = False

    def rows(self, count: int) -> int:
        """How many to fill a table with."""
        return _rows(count, self.small)


class Round(Struct, frozen=True):
    # From 1; 0 warms up and does not count. Both sides have the same number.
    number: int
    # For what is measured by the second. Who takes samples may take as many as it needs.
    seconds: int
    # As that of the ground.
    small: bool = False

    def rows(self, count: int) -> int:
        """How many to measure with, such as samples, where that is a number and no time."""
        return _rows(count, self.small)


class Taken(Struct, frozen=True):
    """What one round of one side gave."""

    value: float
    # Times behind it, for the picture.
    samples_ms: list[float] = []
    # What else was seen on the way, by its name with its unit.
    notes: dict[str, float] = {}


class Reach(Struct, frozen=True):
    bound: float
    more_is_better: bool

    def met_by(self, value: float) -> bool:
        return value >= self.bound if self.more_is_better else value <= self.bound


def at_least(bound: float) -> Reach:
    return Reach(bound, more_is_better=True)


def at_most(bound: float) -> Reach:
    return Reach(bound, more_is_better=False)


# Opened once for all cases that name it, closed after the last of them.
Stage = Callable[[Ground], AbstractAsyncContextManager[S]]
Measure = Callable[[S, Round], Awaitable[Taken]]


class Case(Struct, Generic[S], frozen=True, kw_only=True):
    """With a ceiling the result is us divided by it, round by round. Without one it is what was measured."""

    title: str
    # The unit of what both sides measure.
    unit: str
    stage: Stage[S]
    us: Measure[S]
    ceiling: Measure[S] | None = None
    # The ceiling in words.
    against: str = ""
    # What the result should reach. None: it is only reported.
    reach: Reach | None = None
    rounds: int = 5
    seconds: int = 2
    # Whether a round that does not count comes first.
    warm_up: bool = True
    # Whether `make bench-smoke` runs it.
    smoke: bool = False


def find_cases() -> dict[str, Case[Any]]:
    """By the names of their files."""
    names = sorted(module.name for module in pkgutil.iter_modules(cases.__path__))
    return {name: importlib.import_module(f"bench.cases.{name}").CASE for name in names}
