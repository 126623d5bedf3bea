"""The parts of the bench that measure nothing themselves: what they make of what was measured."""

import asyncio
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest
from bench import archives, pgbench, plot, ratios_plot, wrk
from bench.case import BenchError, Case, Ground, Reach, Round, Taken, at_least, at_most, find_cases
from bench.measuring import measure_all
from bench.moments import most_at_once
from bench.outcome import Outcome, has_halved
from bench.report import RESULTS
from bench.run import measured
from bench.showing import plain, shown, table_of
from bench.smoke import STORED, complaints
from msgspec.structs import replace
from rich.console import Console

from quarterdeck.core.settings import BundleSettings
from quarterdeck.skills.archive import read_bundle

BENCH = RESULTS.parent
PGBENCH = """pgbench (18.0)
number of transactions actually processed: 12345
number of failed transactions: {failed} (0.000%)
latency average = 2.6 ms
tps = 6172.500000 (without initial connection time)
"""
WRK = '{{"requests":{requests},"duration_us":2000000,"refused":{refused},"broken":0,"median_us":900,"p99_us":4000}}'


def outcome(reach: Reach | None = None, **changes: Any) -> Outcome:
    given: dict[str, Any] = {"unit": "/s", "us": [50.0, 90.0, 200.0], "ceiling": [100.0, 100.0, 100.0]}
    return Outcome(name="one", title="One <case>", against="a ceiling", reach=reach, **(given | changes))


def by_stage() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, case in find_cases().items():
        found.setdefault(f"{case.stage.__module__}.{case.stage.__name__}", []).append(name)
    return found


@pytest.mark.long
@pytest.mark.slowest
@pytest.mark.skipif(shutil.which("wrk") is None, reason="wrk is missing: bench/install.sh")
@pytest.mark.parametrize("names", by_stage().values(), ids=by_stage())
def test_every_case_can_be_measured(names: list[str]) -> None:
    """Once and with little data. What comes out says nothing about speed."""
    cases = {name: replace(case, warm_up=False) for name, case in find_cases().items() if name in names}
    console = Console(file=StringIO(), width=160)
    outcomes = measured(console, cases, rounds=1, seconds=1, small=True)
    assert {outcome.name: outcome.fault for outcome in outcomes} == dict.fromkeys(names)


def test_ratios_are_taken_round_by_round() -> None:
    assert outcome(us=[50.0, 30.0], ceiling=[100.0, 10.0]).results == [0.5, 3.0]
    assert (outcome().result, outcome().spread, outcome().result_unit) == (0.9, (0.5, 2.0), "×")


def test_without_a_ceiling_the_result_is_what_was_measured() -> None:
    alone = outcome(ceiling=[], unit="ms")
    assert (alone.result, alone.result_unit) == (90.0, "ms")


@pytest.mark.parametrize(
    ("reach", "met"), [(at_least(0.9), True), (at_least(0.91), False), (at_most(0.9), True), (at_most(0.89), False)]
)
def test_targets_reached(reach: Reach, met: bool) -> None:
    assert outcome(reach).met is met


def test_disagreeing_rounds_are_marked() -> None:
    assert [outcome(at_least(bound)).is_unanimous for bound in (0.4, 0.9, 2.5)] == [True, False, True]
    assert outcome().is_unanimous


def test_case_without_target_is_neither_met_nor_missed() -> None:
    assert outcome().met is None
    assert outcome(at_least(0.1), fault="broken").met is False


@pytest.mark.parametrize(
    ("now", "reach", "bad"),
    [(0.51, at_least(1), False), (0.49, at_least(1), True), (1.9, at_most(1), False), (2.1, at_most(1), True)],
)
def test_halved_or_doubled_results_are_regressions(now: float, reach: Reach, bad: bool) -> None:
    assert has_halved(now, 1.0, reach) is bad


def test_smoke_reports_old_and_new_ratio() -> None:
    assert complaints([outcome(at_least(1))], {"one": 1.0}) == []
    (complaint,) = complaints([outcome(at_least(1))], {"one": 2.0})
    assert complaint == "one has halved: One <case> was 2.00 and is 0.90"
    (complaint,) = complaints([outcome(at_most(1))], {"one": 0.4})
    assert complaint == "one has doubled: One <case> was 0.40 and is 0.90"


def test_smoke_fails_for_cases_without_stored_result() -> None:
    (complaint,) = complaints([outcome(at_least(1), fault="wrk is missing")], {"one": 1.0})
    assert complaint == "one could not be measured: wrk is missing"
    (complaint,) = complaints([outcome(at_least(1))], {})
    assert "has no stored ratio" in complaint


def test_a_report_of_wrk_is_read() -> None:
    report = wrk.read_report("Running 2s test\n" + WRK.format(requests=1000, refused=0) + "\n")
    assert (report.per_second, report.median_us) == (500.0, 900)


@pytest.mark.parametrize(
    ("written", "said"),
    [
        (WRK.format(requests=1000, refused=3), "of 1000 requests 3 were refused"),
        (WRK.format(requests=0, refused=0), "no answer at all"),
        ("unable to connect to 127.0.0.1:1 Connection refused", "unable to connect"),
        ("", "measured nothing"),
    ],
    ids=["refused", "none", "unreachable", "silent"],
)
def test_errors_under_wrk_are_no_result(written: str, said: str) -> None:
    with pytest.raises(BenchError, match=said):
        wrk.read_report(written)


def test_a_report_of_pgbench_is_read() -> None:
    report = pgbench.read_report(PGBENCH.format(failed=0), pgbench.read_log("0 1 250 0 1794000000 12\n0 2 750 0 1 2\n"))
    assert (report.transactions, report.per_second, report.took_ms) == (12345, 6172.5, [0.25, 0.75])


@pytest.mark.parametrize(
    ("written", "said"),
    [(PGBENCH.format(failed=2), "2 of pgbench's"), ("pgbench: error: connection to server failed", "connection to")],
    ids=["failed", "unreachable"],
)
def test_errors_under_pgbench_are_no_result(written: str, said: str) -> None:
    with pytest.raises(BenchError, match=said):
        pgbench.read_report(written, [])


def test_how_many_ran_at_once() -> None:
    start = datetime(2026, 11, 15, tzinfo=UTC)
    started = [start + timedelta(seconds=second) for second in (0, 1, 5)]
    assert most_at_once(started, [moment + timedelta(seconds=2) for moment in started]) == 2


def test_figures_are_short() -> None:
    assert [shown(1234.5, "/s"), shown(12.345), shown(0.123, "×")] == ["1,234 /s", "12.3", "0.12 ×"]


def test_the_table_and_the_json_tell_the_same() -> None:
    told = plain(outcome(at_least(1)))
    assert (told["result"], told["reach"], told["met"]) == (0.9, "≥ 1 ×", False)
    assert plain(outcome(at_least(1), fault="broken"))["fault"] == "broken"
    assert msgspec.json.encode(told)
    table = table_of([outcome(at_least(1)), outcome(fault="broken", us=[], ceiling=[])])
    assert table.row_count == 2


def test_the_pictures_are_svg() -> None:
    shown_ones = [outcome(at_least(1)), outcome(at_most(1)), outcome(), outcome(at_least(1), fault="broken")]
    for picture in (ratios_plot.draw(shown_ones, "All & more"), plot.draw({"a <b>": [1.0, 2.0, 30.0]}, "Times")):
        assert ElementTree.fromstring(picture).tag == "{http://www.w3.org/2000/svg}svg"
    # Those with a target that were measured.
    assert ratios_plot.draw(shown_ones, "All").count("<circle") == 2


def test_a_share_of_the_target_says_better_or_worse_either_way() -> None:
    assert ratios_plot.share_of_target(outcome(at_least(2)), 1.0) == 0.5
    assert ratios_plot.share_of_target(outcome(at_most(2)), 1.0) == 2.0


def test_generated_archives_have_the_stated_content() -> None:
    assert 2_500 <= len(archives.small()) <= 3_500
    assert archives.restamped(archives.small(), 7) != archives.restamped(archives.small(), 8)
    limits = BundleSettings()
    for archive in (archives.small(), archives.restamped(archives.small(), 2**32 - 1)):
        assert len(read_bundle(BytesIO(archive), limits).manifest.files) == 4


class Log:
    """A stage and a case on it, and what was done in which order."""

    def __init__(self, broken: str = "") -> None:
        self.done: list[str] = []
        self.broken = broken

    @asynccontextmanager
    async def stage(self, _: Ground) -> AsyncIterator[str]:
        self.done.append("open")
        if self.broken == "stage":
            raise BenchError("no stage")
        yield "stage"
        self.done.append("close")

    async def us(self, _: str, one: Round) -> Taken:
        self.done.append(f"us {one.number}")
        if self.broken == "us":
            raise BenchError("no luck")
        return Taken(one.number, [1.0])

    async def ceiling(self, _: str, one: Round) -> Taken:
        self.done.append(f"ceiling {one.number}")
        return Taken(2.0)

    def measured(self, *names: str, warm_up: bool = True) -> list[Outcome]:
        case = Case(
            title="Case",
            unit="/s",
            stage=self.stage,
            us=self.us,
            ceiling=self.ceiling,
            against="x",
            rounds=9,
            warm_up=warm_up,
        )
        ground = Ground("", Path(), lambda _: None)
        return asyncio.run(measure_all(dict.fromkeys(names, case), ground, lambda _: None, rounds=2, seconds=1))


def test_rounds_are_interleaved_and_the_first_does_not_count() -> None:
    log = Log()
    (found,) = log.measured("one")
    rounds = ["ceiling 0", "us 0", "ceiling 1", "us 1", "ceiling 2", "us 2"]
    assert log.done == ["open", *rounds, "close"]
    assert (found.us, found.ceiling, found.samples_ms) == ([1.0, 2.0], [2.0, 2.0], [1.0, 1.0])


def test_a_case_may_do_without_a_warm_up() -> None:
    log = Log()
    (found,) = log.measured("one", warm_up=False)
    assert "us 0" not in log.done
    assert found.us == [1.0, 2.0]


def test_cases_of_one_stage_share_it() -> None:
    log = Log()
    assert len(log.measured("one", "two")) == 2
    assert log.done.count("open") == 1


@pytest.mark.parametrize(("broken", "said"), [("us", "no luck"), ("stage", "no stage")])
def test_failing_case_does_not_stop_the_others(broken: str, said: str) -> None:
    assert [found.fault for found in Log(broken).measured("one", "two")] == [said, said]


def test_every_case_is_complete() -> None:
    cases = find_cases()
    assert len(cases) >= 14
    for name, case in cases.items():
        assert isinstance(case, Case), name
        assert bool(case.against) is (case.ceiling is not None), name
        # At least three rounds of each side make a ratio.
        assert case.ceiling is None or case.rounds >= 3, name
        assert not case.smoke or (case.ceiling and case.reach), name
    assert len({case.title for case in cases.values()}) == len(cases)


def test_every_case_is_explained() -> None:
    page = (BENCH / "README.md").read_text("utf-8")
    items = [line.partition(": ")[0] for line in page.splitlines() if line.startswith("- `")]
    explained = {name for item in items for name in re.findall(r"`(\w+)`", item)}
    assert set(find_cases()) <= explained


def test_documented_example_names_a_case() -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```", (BENCH / "README.md").read_text("utf-8"), re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    assert isinstance(names["CASE"], Case)


def test_smoke_cases_are_stored() -> None:
    stored = msgspec.json.decode(STORED.read_bytes(), type=dict[str, float])
    assert set(stored) == {name for name, case in find_cases().items() if case.smoke}
