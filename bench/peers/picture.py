"""Throughput and latency side by side, a row for each system. Both scales are logarithmic."""

import math
from collections.abc import Iterator, Sequence
from xml.sax.saxutils import escape

from msgspec import Struct

from bench.peers.outcome import Outcome, accepted_per_second, median_ms, p99_ms

_WIDTH, _ROW, _TOP, _BOTTOM = 860, 40, 70, 40
_STYLE = "text{font:13px system-ui,sans-serif;fill:#24292f}.grid{stroke:#d0d7de}.small{font-size:12px}"
_OURS, _THEIRS = "#1f6feb", "#8c959f"


class _Scale(Struct, frozen=True):
    """Powers of ten between two positions in the picture."""

    title: str
    left: float
    right: float
    least: int
    most: int

    def x(self, value: float) -> float:
        share = (math.log10(value) - self.least) / (self.most - self.least)
        return self.left + (self.right - self.left) * min(max(share, 0.0), 1.0)


def draw(outcomes: Sequence[Outcome], title: str) -> str:
    """An SVG."""
    height = _TOP + _ROW * len(outcomes) + _BOTTOM
    rates = _Scale("turns a second, 64 connections: least to most", 130, 450, 1, 5)
    times = _Scale("ms, 1 connection: median to p99", 510, 780, -1, 3)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img">',
        f"<title>{escape(title)}</title><style>{_STYLE}</style>",
        f'<rect width="{_WIDTH}" height="{height}" fill="#fff"/>',
        f'<text x="16" y="24">{escape(title)}</text>',
        *_grid(rates, height),
        *_grid(times, height),
    ]
    for number, outcome in enumerate(outcomes):
        parts += _row(outcome, _TOP + _ROW * number, _OURS if number == 0 else _THEIRS, rates, times)
    return "\n".join([*parts, "</svg>\n"])


def _grid(scale: _Scale, height: int) -> Iterator[str]:
    yield f'<text x="{scale.left}" y="50">{escape(scale.title)}</text>'
    for power in range(scale.least, scale.most + 1):
        x = scale.x(10.0**power)
        yield f'<path class="grid" d="M{x:.1f} {_TOP - 8}V{height - _BOTTOM}"/>'
        yield f'<text class="small" x="{x:.1f}" y="{height - 18}" text-anchor="middle">{10.0**power:g}</text>'


def _row(outcome: Outcome, top: float, colour: str, rates: _Scale, times: _Scale) -> Iterator[str]:
    rate, median, p99 = (outcome.typical(figure) for figure in (accepted_per_second, median_ms, p99_ms))
    yield f'<text x="16" y="{top + 19}">{escape(outcome.name)}</text>'
    yield from _mark(rates, rate, outcome.spread(accepted_per_second), top, colour, f"{rate:,.0f}")
    yield from _mark(times, median, (median, p99), top, colour, f"{median:.3g} to {p99:.3g}")


def _mark(
    scale: _Scale, value: float, reach: tuple[float, float], top: float, colour: str, label: str
) -> Iterator[str]:
    """A dot with a line. No bar: on such a scale its length would mean nothing."""
    least, most = map(scale.x, reach)
    yield f'<path d="M{least:.1f} {top + 14}H{most:.1f}" stroke="{colour}" stroke-width="4"/>'
    yield f'<circle cx="{scale.x(value):.1f}" cy="{top + 14}" r="6" fill="{colour}"/>'
    yield f'<text class="small" x="{max(most, scale.x(value)) + 10:.1f}" y="{top + 19}">{label}</text>'
