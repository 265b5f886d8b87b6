"""Line charts as inline SVG, without scripts, fonts or other files."""

from collections.abc import Sequence
from html import escape

import msgspec

from stageline.units import figure_text

WIDTH, HEIGHT = 720, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 12, 12, 36


class ChartLine(msgspec.Struct, frozen=True):
    """One line of a chart; y None is a gap."""

    name: str
    colour: str
    points: Sequence[tuple[float, float | None]]


def line_chart(lines: Sequence[ChartLine], *, x_label: str, y_label: str) -> str:
    """Draws the curves over common axes that begin at zero, with a legend above."""
    xs = [x for line in lines for x, _ in line.points]
    ys = [y for line in lines for _, y in line.points if y is not None]
    top_x, top_y = max(xs, default=0) or 1.0, round_up(max(ys, default=0) or 1.0)
    width, height = WIDTH - _LEFT - _RIGHT, HEIGHT - _TOP - _BOTTOM

    def point(x: float, y: float) -> str:
        return f"{_LEFT + width * x / top_x:.1f},{_TOP + height * (1 - y / top_y):.1f}"

    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(y_label)} over {escape(x_label)}">']
    for fraction in (0.0, 0.25, 0.5, 0.75, 1.0):
        y = _TOP + height * (1 - fraction)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{figure_text(top_y * fraction)}</text>')
        x = _LEFT + width * fraction
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - 20}" text-anchor="middle">{figure_text(top_x * fraction)}</text>')
    parts.append(f'<text x="{_LEFT + width / 2}" y="{HEIGHT - 4}" text-anchor="middle">{escape(x_label)}</text>')
    for line in lines:
        for run in _runs(line):
            path = " ".join(point(x, y) for x, y in run)
            shape = f'<polyline points="{path}" fill="none" stroke="{line.colour}"/>'
            dot = f'<circle cx="{path.split(",")[0]}" cy="{path.split(",")[-1]}" r="2" fill="{line.colour}"/>'
            parts.append(shape if len(run) > 1 else dot)
    legend = "".join(f'<span style="color:{line.colour}">&#9632; {escape(line.name)}</span>' for line in lines)
    return f"<figure><figcaption>{escape(y_label)} {legend}</figcaption>{''.join(parts)}</svg></figure>"


def _runs(line: ChartLine) -> list[list[tuple[float, float]]]:
    """The stretches of a curve between its gaps."""
    runs: list[list[tuple[float, float]]] = [[]]
    for x, y in line.points:
        if y is None:
            runs.append([])
        else:
            runs[-1].append((x, y))
    return [run for run in runs if run]


def round_up(value: float) -> float:
    """The smallest of 1, 2, 2.5 and 5 times a power of ten that is at least `value`."""
    power = 10.0 ** (len(f"{int(value)}") - 1) if value >= 1 else 10.0 ** -(_zeros(value) + 1)
    return next(power * step for step in (1, 2, 2.5, 5, 10) if power * step >= value * (1 - 1e-12))


def _zeros(value: float) -> int:
    """Zeros between the decimal point and the first other digit of 0 < value < 1."""
    return -int(f"{value:e}".partition("e")[2]) - 1
