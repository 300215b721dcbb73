"""Charts as plain SVG for the self-contained HTML report: no script, no font, no request."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from worldwise.stages.intervals import Proportion

WIDTH, HEIGHT = 560, 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 12, 10, 36
_NAMES, _VALUES = 204, 48
"""Room for the names of bar groups and for the bars' values, in pixels."""
_BAR, _GAP = 13, 9
"""Height of a bar and of the gap between groups, in pixels."""
_NAME_LENGTH = 30
"""Characters of a group's name that have room."""

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a chart.

    Attributes:
        name: for the legend.
        points: (x, y), x ascending; a line without points is left out.
        colour: of CSS.
        dashed: drawn in dashes.
    """

    name: str
    points: Points
    colour: str
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class Frame:
    """The plotting area and its scales.

    Attributes:
        low_x, high_x, low_y, high_y: the ranges shown.
        left, right, top, bottom: where the area lies, in pixels.
    """

    low_x: float
    high_x: float
    low_y: float
    high_y: float
    left: float = _LEFT
    right: float = WIDTH - _RIGHT
    top: float = _TOP
    bottom: float = HEIGHT - _BOTTOM

    def x(self, value: float) -> float:
        """Horizontal place of a value, in pixels."""
        return self.left + (value - self.low_x) / (self.high_x - self.low_x) * (self.right - self.left)

    def y(self, value: float) -> float:
        """Vertical place of a value, in pixels."""
        return self.bottom - (value - self.low_y) / (self.high_y - self.low_y) * (self.bottom - self.top)


def line_chart(lines: Sequence[Line], title: str, axis: str) -> Markup:
    """Lines over a common horizontal axis.

    Args:
        lines: what is drawn.
        title: says what is drawn to those who cannot see it.
        axis: what the horizontal axis counts, in whole numbers.

    Returns:
        The SVG element; an empty text if there is no point at all.
    """
    shown = [line for line in lines if line.points]
    if not shown:
        return Markup("")
    xs = [x for line in shown for x, _ in line.points]
    ys = [y for line in shown for _, y in line.points]
    marks = ticks(min(0.0, *ys), max(0.0, *ys))
    frame = Frame(min(xs), max(xs) if max(xs) > min(xs) else min(xs) + 1, marks[0], marks[-1])
    parts = [*_rows(frame, marks), *_columns(frame, axis)]
    for line in shown:
        parts += _line(frame, line, axis)
    return _svg(parts, title, HEIGHT)


def bar_chart(
    groups: Sequence[str], bars: Mapping[str, Sequence[Proportion | None]], colours: Mapping[str, str], title: str
) -> Markup:
    """Lying bars of shares with their 95 % intervals, so that long names have room.

    Args:
        groups: names beside the bar groups, from the top.
        bars: series name -> one share per group, None where there is none.
        colours: series name -> CSS colour.
        title: says what is drawn to those who cannot see it.
    """
    if not groups or not bars:
        return Markup("")
    pitch = _BAR * len(bars) + _GAP
    bottom = _TOP + pitch * len(groups)
    frame = Frame(0.0, 1.0, 0.0, 1.0, _NAMES, WIDTH - _VALUES, _TOP, bottom)
    parts = []
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        parts.append(_path("grid", f"M{frame.x(share):.1f} {frame.top}V{bottom}"))
        parts.append(_text(frame.x(share), bottom + 16, f"{100 * share:g} %", "middle"))
    for index, group in enumerate(groups):
        top = _TOP + _GAP / 2 + pitch * index
        parts.append(_text(_NAMES - 8, top + _BAR * len(bars) / 2 + 4, short(group, _NAME_LENGTH), "end"))
        for place, (name, values) in enumerate(bars.items()):
            value = values[index]
            if value is not None:
                parts.append(_bar(frame, top + _BAR * place, value, f"{group}, {name}", colours[name]))
    return _svg(parts, title, bottom + 24)


def ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Round numbers, evenly spaced, from at or below `low` to at or above `high`.

    Args:
        low, high: the range; an empty one becomes [low, low + 1].
        most: at most so many steps, one more where both ends have to be rounded outwards.
    """
    if high <= low:
        high = low + 1.0
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(size * power for size in (1.0, 2.0, 2.5, 5.0, 10.0) if size * power >= rough * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [number * step for number in range(first, last + 1)]


def short(text: str, limit: int) -> str:
    """The text, its middle left out where it is longer than `limit` characters."""
    if len(text) <= limit:
        return text
    head = (limit - 1) // 2
    return f"{text[:head]}…{text[len(text) - (limit - 1 - head) :]}"


def _line(frame: Frame, line: Line, axis: str) -> list[Markup]:
    path = " ".join(f"{frame.x(x):.1f},{frame.y(y):.1f}" for x, y in line.points)
    stroke, dashes = escape(line.colour), Markup(' stroke-dasharray="5 4"') if line.dashed else ""
    parts = [Markup('<polyline points="{}" fill="none" stroke="{}" stroke-width="2"{}/>').format(path, stroke, dashes)]
    if len(line.points) <= 60:
        parts += [
            Markup('<circle cx="{:.1f}" cy="{:.1f}" r="2.5" fill="{}"><title>{}</title></circle>').format(
                frame.x(x), frame.y(y), stroke, f"{line.name}, {axis} {x:g}: {y:.4g}"
            )
            for x, y in line.points
        ]
    return parts


def _bar(frame: Frame, top: float, value: Proportion, name: str, fill: str) -> Markup:
    middle = top + _BAR / 2
    label = f"{name}: {100 * value.share:.1f} % ({value.successes}/{value.count})"
    number = f"{100 * value.share:.0f} %"
    return Markup(
        '<g><title>{}</title><rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{}" fill="{}"/>{}{}</g>'
    ).format(
        label,
        frame.x(0.0),
        top + 0.5,
        frame.x(value.share) - frame.x(0.0),
        _BAR - 1,
        fill,
        _path("whisker", f"M{frame.x(value.low):.1f} {middle:.1f}H{frame.x(value.high):.1f}"),
        _text(frame.x(value.high) + 5, middle + 4, number, "start"),
    )


def _rows(frame: Frame, marks: Sequence[float]) -> list[Markup]:
    """Horizontal lines with their values at the left."""
    parts = []
    for value in marks:
        y = frame.y(value)
        parts.append(_path("grid", f"M{frame.left} {y:.1f}H{frame.right}"))
        parts.append(_text(frame.left - 6, y + 4, f"{value:.6g}", "end"))
    return parts


def _columns(frame: Frame, axis: str) -> list[Markup]:
    """Whole values below the horizontal axis, and its name."""
    found = ticks(frame.low_x, frame.high_x, 6)
    marks = [value for value in found if frame.low_x <= value <= frame.high_x and math.isclose(value, round(value))]
    parts = [_text(frame.x(value), frame.bottom + 16, f"{value:g}", "middle") for value in marks]
    return [*parts, _text((frame.left + frame.right) / 2, frame.bottom + 31, axis, "middle")]


def _text(x: float, y: float, text: str, anchor: str) -> Markup:
    return Markup('<text x="{:.1f}" y="{:.1f}" text-anchor="{}">{}</text>').format(x, y, anchor, text)


def _path(kind: str, shape: str) -> Markup:
    return Markup('<path class="{}" d="{}"/>').format(kind, shape)


def _svg(parts: Sequence[Markup], title: str, height: float) -> Markup:
    return Markup('<svg viewBox="0 0 {} {:g}" role="img" aria-label="{}">{}</svg>').format(
        WIDTH, height, title, Markup("").join(parts)
    )
