"""Charts as plain SVG for the self-contained HTML report: no script, no font, no request."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from worldwise.stages.intervals import Proportion

WIDTH, HEIGHT = 560, 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 48, 12, 10, 34

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Frame:
    """The plotting area and its scales.

    Attributes:
        low_x, high_x, low_y, high_y: the ranges shown.
    """

    low_x: float
    high_x: float
    low_y: float
    high_y: float

    def x(self, value: float) -> float:
        """Horizontal place of a value, in pixels."""
        return _LEFT + (value - self.low_x) / (self.high_x - self.low_x) * (WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        """Vertical place of a value, in pixels."""
        return HEIGHT - _BOTTOM - (value - self.low_y) / (self.high_y - self.low_y) * (HEIGHT - _TOP - _BOTTOM)


def line_chart(lines: Mapping[str, Points], colours: Mapping[str, str], title: str, axis: str) -> Markup:
    """Lines over a common horizontal axis.

    Args:
        lines: name -> points (x, y), x ascending; empty lines are left out.
        colours: name -> CSS colour.
        title: says what is drawn to those who cannot see it.
        axis: what the horizontal axis counts.

    Returns:
        The SVG element; an empty text if there is no point at all.
    """
    shown = {name: points for name, points in lines.items() if points}
    if not shown:
        return Markup("")
    xs = [x for points in shown.values() for x, _ in points]
    ys = [y for points in shown.values() for _, y in points]
    top = nice_ceiling(max([*ys, 0.0]))
    frame = Frame(min(xs), max(xs) if max(xs) > min(xs) else min(xs) + 1, min(0.0, *ys, 0.0), top)
    parts = [_grid(frame, axis)]
    for name, points in shown.items():
        path = " ".join(f"{frame.x(x):.1f},{frame.y(y):.1f}" for x, y in points)
        stroke = escape(colours[name])
        parts.append(Markup('<polyline points="{}" fill="none" stroke="{}" stroke-width="2"/>').format(path, stroke))
        if len(points) <= 40:
            parts += [
                Markup('<circle cx="{:.1f}" cy="{:.1f}" r="3" fill="{}"><title>{}</title></circle>').format(
                    frame.x(x), frame.y(y), stroke, f"{name}, {axis} {x:g}: {y:.4g}"
                )
                for x, y in points
            ]
    return _svg(parts, title)


def bar_chart(
    groups: Sequence[str], bars: Mapping[str, Sequence[Proportion | None]], colours: Mapping[str, str], title: str
) -> Markup:
    """Grouped bars of shares with their 95 % intervals.

    Args:
        groups: names under the bar groups.
        bars: series name -> one share per group, None where there is none.
        colours: series name -> CSS colour.
        title: says what is drawn to those who cannot see it.
    """
    if not groups or not bars:
        return Markup("")
    frame = Frame(0.0, float(len(groups)), 0.0, 1.0)
    parts = [_grid(frame, None)]
    width = 0.8 / len(bars)
    for place, (name, values) in enumerate(bars.items()):
        for index, value in enumerate(values):
            if value is not None:
                parts.append(_bar(frame, index + 0.1 + place * width, width * 0.9, value, name, colours[name]))
    for index, group in enumerate(groups):
        parts.append(
            Markup('<text x="{:.1f}" y="{}" text-anchor="middle">{}</text>').format(
                frame.x(index + 0.5), HEIGHT - 14, short(group, max(8, 84 // len(groups)))
            )
        )
    return _svg(parts, title)


def nice_ceiling(value: float) -> float:
    """The smallest of 1, 2, 2.5, 5 times a power of ten that is not below `value`; 1 for values <= 0."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1.0, 2.0, 2.5, 5.0, 10.0) if step * power >= value * (1 - 1e-9))


def short(text: str, limit: int) -> str:
    """The text, its middle left out where it is longer than `limit` characters."""
    if len(text) <= limit:
        return text
    head = (limit - 1) // 2
    return f"{text[:head]}…{text[len(text) - (limit - 1 - head) :]}"


def _bar(frame: Frame, left: float, width: float, value: Proportion, name: str, fill: str) -> Markup:
    x, middle = frame.x(left), frame.x(left + width / 2)
    label = f"{name}: {100 * value.share:.1f} % ({value.successes}/{value.count})"
    return Markup(
        '<g><title>{}</title><rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" rx="2" fill="{}"/>'
        '<path class="whisker" d="M{:.1f} {:.1f}V{:.1f}"/></g>'
    ).format(
        label,
        x,
        frame.y(value.share),
        frame.x(left + width) - x,
        frame.y(0.0) - frame.y(value.share),
        fill,
        middle,
        frame.y(value.high),
        frame.y(value.low),
    )


def _grid(frame: Frame, axis: str | None) -> Markup:
    parts = []
    for step in range(5):
        value = frame.low_y + (frame.high_y - frame.low_y) * step / 4
        y = frame.y(value)
        parts.append(Markup('<path class="grid" d="M{} {:.1f}H{}"/>').format(_LEFT, y, WIDTH - _RIGHT))
        parts.append(Markup('<text x="{}" y="{:.1f}" text-anchor="end">{:.3g}</text>').format(_LEFT - 6, y + 4, value))
    if axis is not None:
        for value, anchor in ((frame.low_x, "start"), (frame.high_x, "end")):
            parts.append(
                Markup('<text x="{:.1f}" y="{}" text-anchor="{}">{:g}</text>').format(
                    frame.x(value), HEIGHT - 16, anchor, value
                )
            )
        parts.append(Markup('<text x="{}" y="{}" text-anchor="middle">{}</text>').format(WIDTH / 2, HEIGHT - 4, axis))
    return Markup("").join(parts)


def _svg(parts: Sequence[Markup], title: str) -> Markup:
    return Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        WIDTH, HEIGHT, title, Markup("").join(parts)
    )
