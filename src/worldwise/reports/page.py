"""The self-contained HTML report: sentences, charts, tables and the episode browser. It requests nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from worldwise.reports.browser import Shelf
from worldwise.reports.charts import Line, bar_chart, line_chart
from worldwise.reports.figures import CURVE_FIGURES, colour, series
from worldwise.reports.render import environment
from worldwise.reports.results import Results, label, ordered
from worldwise.reports.summary import (
    Table,
    behaviour_table,
    difference_table,
    difficulty_table,
    sentences,
    stage_table,
    success_table,
    type_tables,
    world_model_kinds_table,
    world_model_table,
)
from worldwise.stages.intervals import Proportion


@dataclass(frozen=True, slots=True)
class Chart:
    """One chart with its legend of (name, colour, dashed)."""

    title: str
    svg: Markup
    legend: tuple[tuple[str, str, bool], ...]


@dataclass(frozen=True, slots=True)
class Section:
    """One table with its title; a cell is a value and what stands small behind it (an interval, or nothing)."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[tuple[str, str]]]


def html_report(results: Results, shelves: Sequence[Shelf]) -> str:
    """The report as one HTML document; every text from worlds and models is escaped.

    Args:
        results: the stored results.
        shelves: episodes to browse; empty shelves are left out.
    """
    return (
        environment(escape=True)
        .get_template("report.html.jinja")
        .render(
            facts=list(results.facts.items()),
            sentences=sentences(results),
            charts=charts(results),
            sections=sections(results),
            shelves=[shelf for shelf in shelves if shelf.views],
        )
    )


def charts(results: Results) -> list[Chart]:
    """All charts that the stored results allow."""
    found = [_success_chart(results), *(_type_chart(results, split, temp) for split, temp in results.cells()[-1:])]
    for title, _, metrics in CURVE_FIGURES.values():
        found.append(_curve_chart(results, title, metrics))
    found.append(_world_model_chart(results))
    return [chart for chart in found if chart.svg]


def sections(results: Results) -> list[Section]:
    """All tables that the stored results allow."""
    tables: list[tuple[str, Table]] = [
        ("Success (95 % Wilson intervals)", success_table(results)),
        ("Differences of success (95 % intervals)", difference_table(results)),
        *((f"Success by task type: {title}", table) for title, table in type_tables(results)),
        ("Behaviour", behaviour_table(results)),
    ]
    if results.world_model:
        tables.append(("World model", world_model_table(results)))
        tables.append(("World model by kind of transition", world_model_kinds_table(results)))
    if results.difficulty:
        tables.append(("Data for the world model", difficulty_table(results)))
    if results.stages:
        tables.append(("Stages", stage_table(results)))
    return [
        Section(title, header, [[_cell(text) for text in row] for row in rows])
        for title, (header, rows) in tables
        if rows
    ]


def _cell(text: str) -> tuple[str, str]:
    value, bracket, interval = text.partition(" [")
    return value, f"[{interval}" if bracket else ""


def _curve_chart(results: Results, title: str, metrics: Sequence[str]) -> Chart:
    lines = [
        Line(
            f"{label(stage)}: {metric.replace('_', ' ')}",
            series(results.curves[stage], metric),
            colour(stage),
            dashed=metric != metrics[0],
        )
        for stage in ordered(results.curves)
        for metric in metrics
    ]
    legend = tuple((line.name, line.colour, line.dashed) for line in lines if line.points)
    return Chart(title, line_chart(lines, title, "step"), legend)


def _success_chart(results: Results) -> Chart:
    cells = results.cells()
    scores = {name: [results.shown(name, *cell) for cell in cells] for name in ordered(results.acting)}
    bars = {name: [score.success if score else None for score in row] for name, row in scores.items() if any(row)}
    return _bars("Success by model", [f"{split}, T = {temperature}" for split, temperature in cells], bars)


def _type_chart(results: Results, split: str, temperature: str) -> Chart:
    scores = {name: results.shown(name, split, temperature) for name in ordered(results.acting)}
    known = {name: score for name, score in scores.items() if score is not None}
    types = sorted({kind for score in known.values() for kind in score.success_by_type})
    bars = {name: [score.success_by_type.get(kind) for kind in types] for name, score in known.items()}
    return _bars(f"Success by task type ({split}, T = {temperature})", types, bars)


def _world_model_chart(results: Results) -> Chart:
    names = ordered(results.world_model)
    kinds = sorted({kind for name in names for kind in results.world_model[name].by_kind})
    bars = {
        name: [score.exact if (score := results.world_model[name].by_kind.get(kind)) else None for kind in kinds]
        for name in names
    }
    return _bars("Exactly predicted observations by kind of transition", kinds, bars)


def _bars(title: str, groups: Sequence[str], bars: Mapping[str, Sequence[Proportion | None]]) -> Chart:
    """Bars of models that go by their names in the stored results."""
    colours = {label(name): colour(name) for name in bars}
    svg = bar_chart(groups, {label(name): values for name, values in bars.items()}, colours, title)
    return Chart(title, svg, tuple((name, shade, False) for name, shade in colours.items()))
