"""Quantities over time as one picture: a panel for each unit, a line for each process, the warm-up in grey."""

from collections.abc import Iterator, Mapping, Sequence
from xml.sax.saxutils import escape

from bench.plot import COLOURS, STYLE

_WIDTH, _PANEL_HEIGHT = 860, 200
_LEFT, _RIGHT, _TOP, _GAP = 70, 230, 40, 50

Lines = Mapping[str, Sequence[float]]


def draw(minutes: Sequence[float], panels: Mapping[str, Lines], warm_up_minutes: float, title: str) -> str:
    """An SVG. Each panel begins at zero: what grows a little looks as little as it is."""
    height = _TOP + len(panels) * (_PANEL_HEIGHT + _GAP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img">',
        f"<title>{escape(title)}</title><style>{STYLE}</style>",
        f'<rect width="{_WIDTH}" height="{height}" fill="#fff"/>',
        f'<text x="{_LEFT}" y="24">{escape(title)}</text>',
    ]
    for number, (name, lines) in enumerate(panels.items()):
        top = _TOP + number * (_PANEL_HEIGHT + _GAP)
        parts += _panel(name, lines, minutes, warm_up_minutes, top)
    return "\n".join([*parts, "</svg>\n"])


def _panel(name: str, lines: Lines, minutes: Sequence[float], warm_up: float, top: int) -> Iterator[str]:
    most = 1.15 * max((value for values in lines.values() for value in values), default=1.0) or 1.0
    last = minutes[-1] or 1.0
    bottom = top + _PANEL_HEIGHT

    def x(minute: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * minute / last

    def y(value: float) -> float:
        return bottom - (_PANEL_HEIGHT - 20) * value / most

    yield f'<path d="M{_LEFT} {top + 20}H{x(warm_up):.1f}V{bottom}H{_LEFT}Z" fill="#eee"/>'
    yield f'<text x="{_LEFT}" y="{top + 14}">{escape(name)}</text>'
    for quarter in range(5):
        value, minute = most * quarter / 4, last * quarter / 4
        yield f'<path class="grid" d="M{_LEFT} {y(value):.1f}H{_WIDTH - _RIGHT}"/>'
        yield f'<text x="{_LEFT - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{value:,.0f}</text>'
        yield f'<text x="{x(minute):.1f}" y="{bottom + 18}" text-anchor="middle">{minute:.3g} min</text>'
    for number, (line, values) in enumerate(lines.items()):
        colour = COLOURS[number % len(COLOURS)]
        points = " ".join(f"{x(minute):.1f},{y(value):.1f}" for minute, value in zip(minutes, values, strict=True))
        yield f'<polyline class="curve" stroke="{colour}" points="{points}"/>'
        height = top + 34 + 22 * number
        yield f'<rect x="{_WIDTH - _RIGHT + 16}" y="{height - 10}" width="12" height="12" fill="{colour}"/>'
        yield f'<text x="{_WIDTH - _RIGHT + 34}" y="{height}">{escape(line)}</text>'
