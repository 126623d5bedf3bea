"""The pure parts of `make bench-peers`: what observations mean, and how figures are read and drawn."""

from collections.abc import Sequence
from xml.etree import ElementTree

import pytest
from bench.peers import environments, load, picture
from bench.peers.model import Call, Mark, marks_in
from bench.peers.outcome import Outcome, Round, accepted_per_second, median_ms, ratio
from bench.peers.system import Environment, Request
from bench.peers.systems import SYSTEMS
from bench.peers.verdicts import Reuse, Turns, Verdict, honest_about_keys, kept, one_at_a_time

ENVIRONMENTS = [system.environment for system in SYSTEMS if system.environment]
A, B = Mark("pair0", 1), Mark("pair0", 2)


def test_marks_are_found_in_every_kind_of_text() -> None:
    assert marks_in(f'{{"text": "Look at {A}."}}\nnot [this] or [that.1], but {B}') == [A, B]


@pytest.mark.parametrize(
    ("acknowledged", "answered", "shown", "verdict"),
    [
        ({A, B}, {A, B}, {A, B}, Verdict.YES),
        ({A, B}, {A}, {A, B}, Verdict.NO),
        ({A, B}, {A, B}, {B}, Verdict.NO),
        # Shown without having been acknowledged: the answer was lost on its way, the turn was not.
        ({A}, {A}, {A, B}, Verdict.YES),
        (set[Mark](), set[Mark](), set[Mark](), Verdict.NOT_TESTED),
    ],
    ids=["all", "one unanswered", "one gone from the conversation", "more than acknowledged", "none"],
)
def test_kept(acknowledged: set[Mark], answered: set[Mark], shown: set[Mark], verdict: Verdict) -> None:
    assert kept(Turns(acknowledged, 0, answered, shown)).verdict is verdict


@pytest.mark.parametrize(
    ("last_status", "first_ran", "other_ran", "verdict"),
    [
        (409, 1, 0, Verdict.YES),
        (202, 1, 0, Verdict.NO),
        (202, 2, 1, Verdict.NOT_OFFERED),
        (202, 1, 1, Verdict.NOT_OFFERED),
    ],
    ids=["refused", "dropped in silence", "all ran", "the other ran"],
)
def test_honest_about_keys(last_status: int, first_ran: int, other_ran: int, verdict: Verdict) -> None:
    reuse = Reuse([202, 202, last_status], ["new", "again", "again"], first_ran, other_ran)
    assert honest_about_keys(reuse).verdict is verdict


@pytest.mark.parametrize(
    ("spans", "verdict"),
    [([(1.0, 2.0), (2.0, 3.0)], Verdict.YES), ([(1.0, 2.0), (1.9, 3.0)], Verdict.NO), ([(1.0, 2.0)], Verdict.YES)],
    ids=["one after the other", "both at once", "one for both"],
)
def test_one_at_a_time(spans: Sequence[tuple[float, float]], verdict: Verdict) -> None:
    calls = [Call([mark], *span) for mark, span in zip((A, B), spans, strict=False)]
    elsewhere = Call([Mark("pair1", 1)], 0.0, 9.0)
    turns = Turns({A, B}, 0, {A, B}, {A, B})
    assert one_at_a_time([*calls, elsewhere], turns, ["new", "new"]).verdict is verdict


def test_the_line_of_the_script_is_read() -> None:
    found = load.read("Running 2s test\nbench 1010 2000000 10 3 1500 7250\n")
    assert found == load.Load(1000, 500.0, 10, 3, 1.5, 7.25)
    with pytest.raises(RuntimeError, match="unable to connect"):
        load.read("unable to connect")


def test_a_request_survives_as_a_string_of_lua() -> None:
    raw = load.raw(Request("/a", b'{"text": "\\"\xc3\xa9\n"}', headers={"x-y": "z"}))
    assert raw.startswith(b"POST /a HTTP/1.1\r\n")
    assert b"\r\nContent-Length: 17\r\nx-y: z\r\n\r\n" in raw
    quoted = load.lua(raw)
    assert quoted.isascii()
    # Lua's own reading: three decimal digits behind a backslash.
    pieces = quoted[1:-1].split("\\")
    assert b"".join([pieces[0].encode(), *(bytes([int(p[:3])]) + p[3:].encode() for p in pieces[1:])]) == raw


def test_a_round_is_compared_with_the_same_round_of_ours() -> None:
    ours, other = outcome("ours", [100, 1000, 200]), outcome("other", [50, 100, 100])
    assert ratio(ours, other, accepted_per_second) == 0.5
    assert ratio(ours, outcome("broken", []), accepted_per_second) is None
    assert ours.spread(accepted_per_second) == (100, 1000)
    assert ours.typical(median_ms) == 1.0


def test_the_picture_has_a_row_for_each() -> None:
    svg = picture.draw([outcome("ours", [4000]), outcome("a <b> & c", [30])], "All of them")
    texts = [node.text for node in ElementTree.fromstring(svg).iter() if node.tag.endswith("text")]
    assert {"ours", "a <b> & c", "4,000", "30"} <= set(texts)


@pytest.mark.parametrize("environment", ENVIRONMENTS, ids=lambda environment: environment.name)
def test_every_version_is_pinned(environment: Environment) -> None:
    assert environments.version_of(environment)[0].isdigit()
    lines = (environments.LISTS / f"{environment.name}.txt").read_text().split()
    assert all("==" in line for line in lines)


def outcome(name: str, rates: Sequence[float]) -> Outcome:
    alone = load.Load(400, 100.0, 0, 0, 1.0, 2.0)
    rounds = [Round(alone, load.Load(800, rate, 0, 0, 10.0, 20.0), 5.0, 0.5) for rate in rates]
    return Outcome(name, "1.0", "POST /", "as it comes", "", rounds, {})
