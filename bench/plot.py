"""The times as one picture: for each kind, which share took at most how long."""

import math
from collections.abc import Iterator, Mapping, Sequence
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 1000, 440
_LEFT, _RIGHT, _TOP, _BOTTOM = 60, 390, 40, 50
_FROM_MS, _TO_MS = 0.1, 1000.0
_TICKS_MS = (0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000)
COLOURS = ("#1f6feb", "#d1580e", "#1a7f37", "#8250df", "#bf3989", "#4d5560")
STYLE = "text{font:13px system-ui,sans-serif;fill:#24292f}.grid{stroke:#d0d7de}.curve{fill:none;stroke-width:2}"


def draw(samples_ms: Mapping[str, Sequence[float]], title: str) -> str:
    """An SVG. The scale of times is logarithmic."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
        f"<title>{escape(title)}</title><style>{STYLE}</style>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
        f'<text x="{_LEFT}" y="24">{escape(title)}</text>',
        *_grid(),
    ]
    for number, (name, values) in enumerate(samples_ms.items()):
        colour = COLOURS[number % len(COLOURS)]
        height = _TOP + 20 + 24 * number
        parts.append(f'<path class="curve" stroke="{colour}" d="{_curve(sorted(values))}"/>')
        parts.append(f'<rect x="{WIDTH - _RIGHT + 16}" y="{height - 10}" width="12" height="12" fill="{colour}"/>')
        parts.append(f'<text x="{WIDTH - _RIGHT + 34}" y="{height}">{escape(name)}</text>')
    return "\n".join([*parts, "</svg>\n"])


def _grid() -> Iterator[str]:
    for ms in _TICKS_MS:
        yield f'<path class="grid" d="M{_x(ms):.1f} {_TOP}V{HEIGHT - _BOTTOM}"/>'
        yield f'<text x="{_x(ms):.1f}" y="{HEIGHT - _BOTTOM + 18}" text-anchor="middle">{ms:g}</text>'
    for percent in range(0, 101, 25):
        yield f'<path class="grid" d="M{_LEFT} {_y(percent / 100):.1f}H{WIDTH - _RIGHT}"/>'
        yield f'<text x="{_LEFT - 8}" y="{_y(percent / 100) + 4:.1f}" text-anchor="end">{percent} %</text>'
    yield f'<text x="{(_LEFT + WIDTH - _RIGHT) / 2}" y="{HEIGHT - 10}" text-anchor="middle">took at most, ms</text>'


def _curve(values: Sequence[float]) -> str:
    """A step for each value, thinned out: nobody sees more than a few hundred."""
    stride = max(1, len(values) // 400)
    shown = [(value, (at + 1) / len(values)) for at, value in enumerate(values) if at % stride == 0]
    return f"M{_x(values[0]):.1f} {_y(0):.1f}" + "".join(
        f"H{_x(value):.1f}V{_y(share):.1f}" for value, share in [*shown, (values[-1], 1.0)]
    )


def _x(ms: float) -> float:
    bounded = min(max(ms, _FROM_MS), _TO_MS)
    return _LEFT + (WIDTH - _LEFT - _RIGHT) * math.log(bounded / _FROM_MS) / math.log(_TO_MS / _FROM_MS)


def _y(share: float) -> float:
    return HEIGHT - _BOTTOM - (HEIGHT - _TOP - _BOTTOM) * share
