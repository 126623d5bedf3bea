"""What came out for one system."""

from collections.abc import Callable
from statistics import median

from msgspec import Struct

from bench.peers.load import Load
from bench.peers.verdicts import Finding


class Round(Struct, frozen=True):
    """One start on a new database."""

    alone: Load
    crowded: Load
    # Processor time of the system and of PostgreSQL, to accept and to execute a turn that came alone.
    processor_ms: float
    # What PostgreSQL needed for a commit by itself just before: the disk's mood.
    bare_commit_ms: float


class Outcome(Struct):
    name: str
    version: str
    request: str
    setting: str
    differs: str
    rounds: list[Round]
    findings: dict[str, Finding]
    # Why there is not more: it could not be installed, or did not start, or broke.
    failure: str | None = None

    def typical(self, figure: Callable[[Round], float]) -> float:
        return median(map(figure, self.rounds))

    def spread(self, figure: Callable[[Round], float]) -> tuple[float, float]:
        values = [figure(one) for one in self.rounds]
        return min(values), max(values)


def ratio(ours: Outcome, other: Outcome, figure: Callable[[Round], float]) -> float | None:
    """Theirs for each of ours, round by round, so that both had the same weather."""
    pairs = zip(other.rounds, ours.rounds, strict=False)
    shares = [figure(theirs) / figure(our) for theirs, our in pairs if figure(our)]
    return median(shares) if shares else None


def accepted_per_second(one: Round) -> float:
    return one.crowded.accepted_per_second


def median_ms(one: Round) -> float:
    return one.alone.median_ms


def p99_ms(one: Round) -> float:
    return one.alone.p99_ms


def bare_commit_ms(one: Round) -> float:
    return one.bare_commit_ms


def processor_ms(one: Round) -> float:
    return one.processor_ms
