"""Cases in turn, each round by round: the ceiling, us, the ceiling, us. What cannot be measured says why."""

from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from statistics import median
from typing import Any

from bench.case import BenchError, Case, Ground, Round, Taken
from bench.outcome import Outcome

# The name of a case and how far it is: after every part of a round.
Advance = Callable[[str], None]


async def measure_all(
    cases: Mapping[str, Case[Any]], ground: Ground, advance: Advance, *, rounds: int | None, seconds: int | None
) -> list[Outcome]:
    """In the order of their stages. `rounds` and `seconds` stand in for those of the cases."""
    outcomes: list[Outcome] = []
    for opens in dict.fromkeys(case.stage for case in cases.values()):
        there = {name: case for name, case in cases.items() if case.stage is opens}
        async with AsyncExitStack() as stack:
            try:
                ground.tell(f"preparing {', '.join(there)}")
                stage = await stack.enter_async_context(opens(ground))
            except Exception as fault:
                outcomes += [_outcome(name, case, fault=_told(fault)) for name, case in there.items()]
                continue
            for name, case in there.items():
                ground.tell(case.title)
                count = case.rounds if rounds is None else min(rounds, case.rounds)
                round_seconds = case.seconds if seconds is None else min(seconds, case.seconds)
                outcomes.append(await measure(name, case, stage, count, round_seconds, advance, small=ground.small))
    return outcomes


async def measure(
    name: str, case: Case[Any], stage: object, rounds: int, seconds: int, advance: Advance, *, small: bool = False
) -> Outcome:
    us: list[Taken] = []
    ceiling: list[Taken] = []
    try:
        if case.warm_up:
            await _both(case, stage, Round(0, 1))
            advance(name)
        for number in range(1, rounds + 1):
            theirs, ours = await _both(case, stage, Round(number, seconds, small))
            ceiling += theirs
            us.append(ours)
            advance(name)
    except Exception as fault:
        return _outcome(name, case, fault=_told(fault))
    return _outcome(
        name,
        case,
        us=[taken.value for taken in us],
        ceiling=[taken.value for taken in ceiling],
        samples_ms=[sample for taken in us for sample in taken.samples_ms],
        notes={name: median(taken.notes[name] for taken in us) for name in us[0].notes},
    )


async def _both(case: Case[Any], stage: object, one: Round) -> tuple[list[Taken], Taken]:
    """The ceiling, if there is one, and us."""
    ceiling = [] if case.ceiling is None else [await case.ceiling(stage, one)]
    return ceiling, await case.us(stage, one)


def _outcome(name: str, case: Case[Any], **found: Any) -> Outcome:
    return Outcome(name=name, title=case.title, against=case.against, unit=case.unit, reach=case.reach, **found)


def _told(fault: Exception) -> str:
    """The others are still measured, whatever it was. What is no BenchError was not foreseen: its kind is told too."""
    return str(fault) if isinstance(fault, BenchError) else f"{type(fault).__name__}: {fault}"
