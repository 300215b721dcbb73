"""Plotly figures: learning curves and success by task type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from worldwise.reports.results import Curve, Results, label, ordered
from worldwise.stages.intervals import Proportion

COLOURS: Mapping[str, str] = {
    "base": "#2a78d6",
    "rwml": "#1baf7a",
    "policy": "#e59700",
    "rl_only": "#8a70e0",
    "wm_sft": "#e34948",
    "wm_sft_policy": "#e06c9f",
    "auxiliary": "#5f9ea8",
    "format_tuning": "#7f9a3d",
    "oracle": "#8d8c86",
    "random": "#b3b2ab",
}
"""Model, or stage that made it -> its colour in every chart, readable on white and on black; yardsticks are grey."""

OTHER_COLOUR = "#a0703c"
"""Colour of a model that `COLOURS` does not know."""

CURVE_FIGURES: Mapping[str, tuple[str, str, tuple[str, ...]]] = {
    "success": ("Success while learning", "share of episodes", ("success", "guard_success", "probe_success")),
    "reward": ("Reward while learning", "mean reward", ("reward",)),
    "prediction": ("Predictions while learning", "cosine, share", ("similarity", "exact")),
    "entropy": ("Entropy of sampled tokens", "nats per token", ("entropy",)),
    "mixed_groups": ("Groups that can teach", "share of groups", ("mixed_groups",)),
    "turns": ("Turns per episode", "turns", ("turns",)),
    "supervised": ("Supervised training", "nats per token", ("loss",)),
    "format": ("Badly formed and useless actions", "share of turns", ("invalid_rate", "nothing_rate")),
}
"""Figure name -> title, axis title, metrics that it draws for every stage that has them."""


def figures(results: Results) -> dict[str, go.Figure]:
    """All figures that the stored results allow, by name."""
    found: dict[str, go.Figure] = {}
    for name, (title, axis, metrics) in CURVE_FIGURES.items():
        drawn = curve_figure(results.curves, metrics, title, axis)
        if drawn.data:
            found[name] = drawn
    if results.acting:
        found["success_by_type"] = type_figure(results)
        found["success_by_model"] = model_figure(results)
    if results.world_model:
        found["world_model"] = world_model_figure(results)
    return found


def curve_figure(curves: Mapping[str, Curve], metrics: Sequence[str], title: str, axis: str) -> go.Figure:
    """One line per stage and metric over the stage's steps; short series get markers."""
    figure = go.Figure(layout=_layout(title, axis))
    figure.update_xaxes(title="step of the stage")
    for stage in ordered(curves):
        for metric in metrics:
            points = series(curves[stage], metric)
            if not points:
                continue
            figure.add_trace(
                go.Scatter(
                    x=[x for x, _ in points],
                    y=[y for _, y in points],
                    name=f"{label(stage)}: {metric.replace('_', ' ')}",
                    mode="lines+markers" if len(points) <= 40 else "lines",
                    line={"color": colour(stage), "width": 2, "dash": "solid" if metric == metrics[0] else "dot"},
                )
            )
    return figure


def type_figure(results: Results) -> go.Figure:
    """Success by task type with Wilson intervals, one bar group per type, in the last evaluation cell."""
    split, temperature = results.cells()[-1]
    figure = go.Figure(layout=_layout(f"Success by task type ({split}, T = {temperature})", "share of tasks"))
    for name in ordered(results.acting):
        score = results.shown(name, split, temperature)
        if score is not None:
            _add_bars(figure, name, list(score.success_by_type), list(score.success_by_type.values()))
    return figure


def model_figure(results: Results) -> go.Figure:
    """Success with Wilson intervals, one bar group per split and temperature."""
    figure = go.Figure(layout=_layout("Success", "share of tasks"))
    for name in ordered(results.acting):
        found = [
            (f"{split}, T = {temperature}", score.success)
            for split, temperature in results.cells()
            if (score := results.shown(name, split, temperature)) is not None
        ]
        if found:
            _add_bars(figure, name, [cell for cell, _ in found], [value for _, value in found])
    return figure


def world_model_figure(results: Results) -> go.Figure:
    """Exact predictions with Wilson intervals by kind of transition."""
    figure = go.Figure(layout=_layout("Exactly predicted observations", "share of transitions"))
    for name in ordered(results.world_model):
        kinds = results.world_model[name].by_kind
        _add_bars(figure, name, list(kinds), [score.exact for score in kinds.values()])
    return figure


def series(curve: Curve, metric: str) -> list[tuple[float, float]]:
    """(step, value) of every row that has the metric."""
    return [(row["step"], row[metric]) for row in curve if metric in row]


def colour(name: str) -> str:
    """The colour of a model or of the stage that made it."""
    return COLOURS.get(name, OTHER_COLOUR)


def _add_bars(figure: go.Figure, name: str, places: Sequence[str], values: Sequence[Proportion]) -> None:
    figure.add_trace(
        go.Bar(
            x=list(places),
            y=[value.share for value in values],
            name=label(name),
            marker={"color": colour(name)},
            error_y={
                "type": "data",
                "symmetric": False,
                "array": [value.high - value.share for value in values],
                "arrayminus": [value.share - value.low for value in values],
                "thickness": 1.2,
                "color": "#808080",
            },
            customdata=[f"{value.successes}/{value.count}" for value in values],
            hovertemplate="%{x}: %{y:.3f} (%{customdata})",
        )
    )


def _layout(title: str, axis: str) -> go.Layout:
    return go.Layout(
        title=title,
        template="plotly_white",
        yaxis={"title": axis, "rangemode": "tozero"},
        barmode="group",
        bargap=0.2,
        legend={"orientation": "h", "y": -0.25},
        margin={"l": 60, "r": 20, "t": 50, "b": 60},
    )
