"""Lines of statements a second against numbers of sessions, as SVG: a panel for each kind of statement, a line for each oracle."""

from __future__ import annotations

import math
from collections.abc import Sequence
from xml.sax.saxutils import escape

from sessions import Line

PANEL, HEIGHT, GAP = 260, 220, 64
TOP, BOTTOM = 70, 50
COLOURS = {"distributed": "#2563a8", "in-memory": "#c2571a"}


def drawn(lines: Sequence[Line]) -> str:
    """The picture: sessions from left to right on a scale of doublings, statements a second from 0 up in each panel."""
    statements = list(dict.fromkeys(line.statement for line in lines))
    width = GAP + len(statements) * (PANEL + GAP)
    body = [
        _text(width / 2, 24, "Statements a second by sessions, with each timestamp oracle", size=15)
    ]
    for place, (oracle, colour) in enumerate(COLOURS.items()):
        x = width / 2 - 110 + place * 130
        body.append(
            f'<line x1="{x}" y1="42" x2="{x + 24}" y2="42" stroke="{colour}" stroke-width="2"/>'
        )
        body.append(_text(x + 30, 46, oracle, anchor="start"))
    for place, statement in enumerate(statements):
        mine = [line for line in lines if line.statement == statement]
        body += _panel(GAP + place * (PANEL + GAP), statement, mine)
    height = TOP + HEIGHT + BOTTOM
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif">\n'
        f'<rect width="{width}" height="{height}" fill="white"/>\n' + "\n".join(body) + "\n</svg>\n"
    )


def _panel(left: float, title: str, lines: Sequence[Line]) -> list[str]:
    points = [rate for line in lines for rate in line.rates]
    top = _nice(max((rate.per_second for rate in points), default=1.0))
    most = max(math.log2(rate.sessions) for rate in points) or 1.0

    def x(sessions: int) -> float:
        return left + PANEL * math.log2(sessions) / most

    def y(rate: float) -> float:
        return TOP + HEIGHT * (1 - rate / top)

    parts = [_text(left + PANEL / 2, TOP - 8, title, size=13)]
    for step in range(5):
        value = top * step / 4
        parts.append(
            f'<line x1="{left}" y1="{y(value):.1f}" x2="{left + PANEL}" y2="{y(value):.1f}" stroke="#ddd"/>'
        )
        parts.append(_text(left - 6, y(value) + 4, f"{value:g}", anchor="end"))
    for sessions in sorted({rate.sessions for rate in points}):
        parts.append(_text(x(sessions), TOP + HEIGHT + 16, str(sessions)))
    parts.append(_text(left + PANEL / 2, TOP + HEIGHT + 36, "sessions"))
    for line in lines:
        colour = COLOURS[line.oracle]
        path = " ".join(f"{x(r.sessions):.1f},{y(r.per_second):.1f}" for r in line.rates)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [
            f'<circle cx="{x(r.sessions):.1f}" cy="{y(r.per_second):.1f}" r="3" fill="{colour}">'
            f"<title>{r.sessions} sessions: {r.per_second:.0f} a second, p50 {r.p50:.2f} ms</title></circle>"
            for r in line.rates
        ]
    return parts


def _nice(value: float) -> float:
    """The next of 1, 2, 4, 5 … times a power of ten, so that quarters of it are short numbers."""
    power = 10.0 ** math.floor(math.log10(max(value, 1.0)))
    return next(power * n for n in (1, 2, 4, 6, 8, 10, 20) if power * n >= value)


def _text(x: float, y: float, text: str, *, size: int = 11, anchor: str = "middle") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="#222">'
        f"{escape(text)}</text>"
    )
