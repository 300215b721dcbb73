"""The self-contained HTML report: sentences, charts, tables and the episode browser. It requests nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from worldwise.reports.browser import EpisodeView
from worldwise.reports.charts import bar_chart, line_chart
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


@dataclass(frozen=True, slots=True)
class Chart:
    """One chart with its legend of (name, colour)."""

    title: str
    svg: Markup
    legend: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Section:
    """One table with its title."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]


def html_report(results: Results, episodes: Mapping[str, Sequence[EpisodeView]]) -> str:
    """The report as one HTML document; every text from worlds and models is escaped.

    Args:
        results: the stored results.
        episodes: heading -> episodes to browse under it (`browser.view`).
    """
    return (
        environment(escape=True)
        .get_template("report.html.jinja")
        .render(
            facts=list(results.facts.items()),
            sentences=sentences(results),
            charts=charts(results),
            sections=sections(results),
            episodes=[(heading, list(views)) for heading, views in episodes.items() if views],
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
    return [Section(title, header, rows) for title, (header, rows) in tables if rows]


def _curve_chart(results: Results, title: str, metrics: Sequence[str]) -> Chart:
    lines = {
        f"{label(stage)}: {metric.replace('_', ' ')}": (stage, series(results.curves[stage], metric))
        for stage in ordered(results.curves)
        for metric in metrics
        if series(results.curves[stage], metric)
    }
    colours = {name: colour(stage) for name, (stage, _) in lines.items()}
    svg = line_chart({name: points for name, (_, points) in lines.items()}, colours, title, "step")
    return Chart(title, svg, tuple(colours.items()))


def _success_chart(results: Results) -> Chart:
    cells = results.cells()
    names = [name for name in ordered(results.acting) if any(results.cell(name, *cell) for cell in cells)]
    scores = {name: [results.cell(name, *cell) for cell in cells] for name in names}
    bars = {label(name): [score.success if score else None for score in row] for name, row in scores.items()}
    colours = {label(name): colour(name) for name in names}
    title = "Success by model"
    svg = bar_chart([f"{split}, T = {temperature}" for split, temperature in cells], bars, colours, title)
    return Chart(title, svg, tuple(colours.items()))


def _type_chart(results: Results, split: str, temperature: str) -> Chart:
    scores = {name: results.cell(name, split, temperature) for name in ordered(results.acting)}
    known = {name: score for name, score in scores.items() if score is not None}
    types = sorted({kind for score in known.values() for kind in score.success_by_type})
    bars = {label(name): [score.success_by_type.get(kind) for kind in types] for name, score in known.items()}
    colours = {label(name): colour(name) for name in known}
    title = f"Success by task type ({split}, T = {temperature})"
    return Chart(title, bar_chart(types, bars, colours, title), tuple(colours.items()))


def _world_model_chart(results: Results) -> Chart:
    names = ordered(results.world_model)
    kinds = sorted({kind for name in names for kind in results.world_model[name].by_kind})
    bars = {
        label(name): [score.exact if (score := results.world_model[name].by_kind.get(kind)) else None for kind in kinds]
        for name in names
    }
    colours = {label(name): colour(name) for name in names}
    title = "Exactly predicted observations by kind of transition"
    return Chart(title, bar_chart(kinds, bars, colours, title), tuple(colours.items()))
