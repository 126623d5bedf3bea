"""`make bench-smoke`: a few cases in short rounds. Fails when a ratio is half of what bench/stored.json says it was."""

import argparse
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from bench.case import find_cases
from bench.outcome import Outcome, has_halved
from bench.run import make_console, measured
from bench.showing import shown, table_of

STORED = Path(__file__).parent / "stored.json"
_ROUNDS = 4
_SECONDS = 1


def complaints(outcomes: Iterable[Outcome], stored: Mapping[str, float]) -> list[str]:
    return [complaint for outcome in outcomes if (complaint := _complaint(outcome, stored.get(outcome.name)))]


def _complaint(outcome: Outcome, before: float | None) -> str | None:
    if outcome.fault is not None:
        return f"{outcome.name} could not be measured: {outcome.fault}"
    assert outcome.reach is not None, "cases of the smoke have something to reach"
    if before is None:
        return f"{outcome.name} has no stored ratio: `make bench-smoke ARGS=--store` stores it"
    if has_halved(outcome.result, before, outcome.reach):
        how = "halved" if outcome.reach.more_is_better else "doubled"
        return f"{outcome.name} has {how}: {outcome.title} was {shown(before)} and is {shown(outcome.result)}"
    return None


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench-smoke", description="ARGS=… passes options on.")
    parser.add_argument("--store", action="store_true", help="what is measured now is what later runs compare with")
    storing = parser.parse_args().store
    console = make_console()
    load_before = os.getloadavg()[0]
    cases = {name: case for name, case in find_cases().items() if case.smoke}
    outcomes = measured(console, cases, rounds=_ROUNDS, seconds=_SECONDS)
    console.print(table_of(outcomes))
    if storing and not any(outcome.fault for outcome in outcomes):
        ratios = {outcome.name: round(outcome.result, 3) for outcome in outcomes}
        STORED.write_bytes(msgspec.json.format(msgspec.json.encode(ratios)) + b"\n")
    stored = msgspec.json.decode(STORED.read_bytes(), type=dict[str, float])
    found = complaints(outcomes, stored)
    for complaint in found:
        console.print(complaint, style="red")
    if found and load_before > (os.cpu_count() or 1):
        console.print(f"The machine was busy before (load {load_before:.1f}): ratios jump then. Try when it is not.")
    if not found:
        console.print("No ratio has halved.", style="green")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
