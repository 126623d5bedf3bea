"""All results as one picture, each against what it is to reach: how far from the line a bar ends is how far from the
target a case is."""

import math
from collections.abc import Iterator, Sequence
from xml.sax.saxutils import escape

from bench.outcome import Outcome
from bench.showing import shown, shown_reach

_WIDTH = 1000
_LEFT, _RIGHT, _TOP, _ROW = 400, 210, 92, 34
_BAR = 14
# Shares of the target, where 1 is just met. What is beyond is drawn at the edge.
_LEAST, _MOST = 0.125, 8.0
_TICKS = ((0.25, "4 × short"), (0.5, "2 ×"), (1.0, "reached"), (2.0, "2 ×"), (4.0, "4 × better"))
_GOOD, _SHORT, _TARGET = "#1a7f37", "#bc4c00", "#24292f"
_STYLE = """text{font:13px system-ui,sans-serif;fill:#24292f}.title{font-size:17px;font-weight:600}
.small{font-size:11px;fill:#57606a}.grid{stroke:#eaeef2}.number{font-weight:600}"""


def draw(outcomes: Sequence[Outcome], title: str) -> str:
    """An SVG. The scale is logarithmic: half and double are as far from the line as each other."""
    drawn = [outcome for outcome in outcomes if outcome.reach is not None and outcome.fault is None]
    height = _TOP + _ROW * len(drawn) + 40
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img">',
        f"<title>{escape(title)}</title><style>{_STYLE}</style>",
        f'<rect width="{_WIDTH}" height="{height}" fill="#fff"/>',
        f'<text class="title" x="20" y="30">{escape(title)}</text>',
        '<text class="small" x="20" y="50">How far each result is from what it is to reach. The dot is the median of '
        "the rounds, the bar goes from the worst to the best.</text>",
        *_scale(height),
    ]
    for number, outcome in enumerate(drawn):
        parts += _row(outcome, _TOP + _ROW * number)
    return "\n".join([*parts, "</svg>\n"])


def share_of_target(outcome: Outcome, value: float) -> float:
    """1 is just met, more is better, whichever way the target points."""
    assert outcome.reach is not None
    return value / outcome.reach.bound if outcome.reach.more_is_better else outcome.reach.bound / max(value, 1e-9)


def _scale(height: int) -> Iterator[str]:
    bottom = height - 30
    yield f'<path d="M{_x(1.0):.1f} {_TOP - 8}H{_x(_MOST):.1f}V{bottom}H{_x(1.0):.1f}Z" fill="#f0f9f2"/>'
    for share, name in _TICKS:
        yield f'<path class="grid" d="M{_x(share):.1f} {_TOP - 8}V{bottom}"/>'
        yield f'<text class="small" x="{_x(share):.1f}" y="{_TOP - 16}" text-anchor="middle">{name}</text>'
    yield f'<path d="M{_x(1.0):.1f} {_TOP - 8}V{bottom}" stroke="{_TARGET}" stroke-width="1.5"/>'


def _row(outcome: Outcome, top: int) -> Iterator[str]:
    middle = top + _ROW / 2
    colour = _GOOD if outcome.met else _SHORT
    ends = sorted(share_of_target(outcome, value) for value in outcome.spread)
    begin, end = _x(ends[0]), _x(ends[1])
    against = f"against {outcome.against}" if outcome.against else "measured as it is"
    unit = outcome.result_unit
    yield f'<text x="{_LEFT - 16}" y="{middle - 2:.1f}" text-anchor="end">{escape(outcome.title)}</text>'
    yield f'<text class="small" x="{_LEFT - 16}" y="{middle + 12:.1f}" text-anchor="end">{escape(against)}</text>'
    yield (
        f'<rect x="{begin:.1f}" y="{middle - _BAR / 2:.1f}" width="{max(end - begin, 2):.1f}" height="{_BAR}" rx="3" '
        f'fill="{colour}" fill-opacity="0.25"/>'
    )
    yield f'<circle cx="{_x(share_of_target(outcome, outcome.result)):.1f}" cy="{middle:.1f}" r="6" fill="{colour}"/>'
    yield (
        f'<text class="number" x="{_WIDTH - _RIGHT + 16}" y="{middle + 4:.1f}" style="fill:{colour}">'
        f"{escape(shown(outcome.result, unit))}</text>"
    )
    reach = shown_reach(outcome.reach, unit)
    yield f'<text x="{_WIDTH - 20}" y="{middle + 4:.1f}" text-anchor="end">{escape(reach)}</text>'


def _x(share: float) -> float:
    bounded = min(max(share, _LEAST), _MOST)
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * math.log(bounded / _LEAST) / math.log(_MOST / _LEAST)
