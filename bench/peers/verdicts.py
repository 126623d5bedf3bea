"""What the observations mean. No I/O: tested without any system."""

from collections import Counter
from collections.abc import Iterable, Sequence
from enum import StrEnum
from itertools import pairwise

from msgspec import Struct

from bench.peers.model import Call, Mark


class Verdict(StrEnum):
    YES = "yes"
    NO = "no"
    NOT_OFFERED = "not offered"
    NOT_TESTED = "not tested"


class Finding(Struct, frozen=True):
    verdict: Verdict
    evidence: str


class Turns(Struct, frozen=True):
    """What was sent to some sessions, by what became of it."""

    acknowledged: set[Mark]
    refused: int
    # Those that the model was asked about, and those that the system shows in the conversation at the end.
    answered: set[Mark]
    shown: set[Mark]

    @property
    def complete(self) -> bool:
        return self.acknowledged <= self.answered and self.acknowledged <= self.shown


def kept(turns: Turns) -> Finding:
    count = len(turns.acknowledged)
    unanswered = len(turns.acknowledged - turns.answered)
    unshown = len(turns.acknowledged - turns.shown)
    refused = f", {turns.refused} refused" if turns.refused else ""
    if not count:
        return Finding(Verdict.NOT_TESTED, f"no turn was acknowledged{refused}")
    if turns.complete:
        return Finding(Verdict.YES, f"{count} acknowledged{refused}, all answered and in the conversation")
    lost = f"{unanswered} never answered, {unshown} not in the conversation"
    return Finding(Verdict.NO, f"{count} acknowledged{refused}, {lost}")


class Reuse(Struct, frozen=True):
    """One key, three requests: a turn, the same again, and another turn."""

    statuses: Sequence[int]
    said: Sequence[str]
    first_ran: int
    other_ran: int


def honest_about_keys(reuse: Reuse) -> Finding:
    status, said = reuse.statuses[2], reuse.said[2]
    if reuse.other_ran or reuse.first_ran > 1:
        ran = f"the first turn ran {reuse.first_ran} times, the other {reuse.other_ran}"
        return Finding(Verdict.NOT_OFFERED, f"Idempotency-Key has no effect: {ran}")
    if status >= 400:
        return Finding(Verdict.YES, f"{status} ({said}), and only the first turn ran, once")
    return Finding(Verdict.NO, f"{status} ({said}), no error; the other turn was dropped")


def one_at_a_time(calls: Iterable[Call], turns: Turns, said: Iterable[str]) -> Finding:
    sessions = {mark.session for mark in turns.acknowledged}
    overlapping = sum(_overlap([call for call in calls if call.newest.session == name]) for name in sessions)
    words = ", ".join(f"{count} {word}" for word, count in sorted(Counter(said).items()))
    if overlapping:
        return Finding(Verdict.NO, f"two runs at once in {overlapping} of {len(sessions)} sessions ({words})")
    ending = "" if turns.complete else "; not every turn was answered"
    return Finding(Verdict.YES, f"never two at once in {len(sessions)} sessions ({words}){ending}")


def _overlap(calls: Sequence[Call]) -> bool:
    """Calls that never ended were cut off, and count as long as it takes to ask."""
    spans = sorted((call.began, call.ended or call.began) for call in calls)
    return any(later[0] < earlier[1] for earlier, later in pairwise(spans))
