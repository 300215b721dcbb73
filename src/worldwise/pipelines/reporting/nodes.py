"""Nodes of the reporting."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import plotly.graph_objects as go

from worldwise import __version__
from worldwise.agents.config import AgentConfig
from worldwise.episodes.record import Episode
from worldwise.episodes.store import read_episodes
from worldwise.generation.models import ModelConfig, load_tokenizer
from worldwise.pipelines.parameters import ReportConfig
from worldwise.reports.browser import Decode, EpisodeView, choose, view
from worldwise.reports.figures import CURVE_FIGURES, figures
from worldwise.reports.page import html_report
from worldwise.reports.results import Results, label
from worldwise.reports.summary import markdown_summary
from worldwise.stages.acting_scores import ActingReport
from worldwise.stages.difficulty import DifficultyReport
from worldwise.stages.world_model_scores import WorldModelReport
from worldwise.worlds.registry import WorldConfig

FIGURES = (*CURVE_FIGURES, "success_by_type", "success_by_model", "world_model")
"""Figures of a report, each a dataset `<name>_figure`."""

MODELS = ("base", "rwml", "policy", "rl_only", "wm_sft", "wm_sft_policy")
"""Models that may have been evaluated."""

STAGES = ("auxiliary", "rwml", "wm_sft", "policy", "rl_only", "wm_sft_policy")
"""Stages that may have left curves."""

Stored = Mapping[str, Any]


def write_report(
    base_model: Path,
    yardsticks: dict[str, Any],
    transition_counts: dict[str, Any] | None,
    difficulty_metrics: dict[str, Any] | None,
    report: ReportConfig,
    world: WorldConfig,
    agent: AgentConfig,
    model: ModelConfig,
    *others: Any,
) -> tuple[Any, ...]:
    """The Markdown summary, the HTML report, and every figure of `FIGURES`.

    Args:
        base_model: for the tokenizer.
        yardsticks: scores of random and oracle play.
        transition_counts, difficulty_metrics: what the data stages measured, if they ran.
        report, world, agent, model: settings.
        others: what is stored (None where nothing is) of `<model>_evaluation` for all `MODELS`, then their
            `<model>_evaluation_episodes`, then `<stage>_curves` for all `STAGES`.
    """
    count = len(MODELS)
    evaluations = _present(MODELS, others[:count])
    episodes = _present(MODELS, others[count : 2 * count])
    curves = _present(STAGES, others[2 * count :])
    results = Results(
        acting={name: ActingReport.model_validate(stored) for name, stored in yardsticks.items()}
        | {name: ActingReport.model_validate(stored["acting"]) for name, stored in evaluations.items()},
        world_model={
            name: WorldModelReport.model_validate(stored["world_model"]) for name, stored in evaluations.items()
        },
        curves={name: stored["rows"] for name, stored in curves.items()},
        difficulty=None if difficulty_metrics is None else DifficultyReport.model_validate(difficulty_metrics),
        transition_counts=transition_counts or {},
        stages=_stage_numbers(curves, evaluations),
        facts=_facts(evaluations, world, agent, model),
    )
    tokenizer = load_tokenizer(base_model)
    shown = {
        label(name): _views(folder, report.episodes, lambda ids: str(tokenizer.decode(list(ids))))
        for name, folder in episodes.items()
    }
    drawn = figures(results)
    return markdown_summary(results), html_report(results, shown), *(_figure(drawn, name) for name in FIGURES)


def _present(names: tuple[str, ...], stored: tuple[Any, ...]) -> dict[str, Any]:
    return {name: value for name, value in zip(names, stored, strict=True) if value is not None}


def _stage_numbers(curves: Mapping[str, Stored], evaluations: Mapping[str, Stored]) -> dict[str, dict[str, float]]:
    numbers: dict[str, dict[str, float]] = {name: dict(stored["summary"]) for name, stored in curves.items()}
    for name, stored in evaluations.items():
        if "weights_changed" in stored:
            numbers.setdefault(name, {})["weights_changed"] = stored["weights_changed"]
    return {name: found for name, found in numbers.items() if found}


def _facts(
    evaluations: Mapping[str, Stored], world: WorldConfig, agent: AgentConfig, model: ModelConfig
) -> dict[str, str]:
    restricted = "restricted to admissible commands" if agent.restrict_to_admissible else "free generation"
    listed = "admissible commands listed in the prompt" if agent.list_admissible else "commands not listed"
    evaluated = [
        f"{label(name)} {stored['evaluated_at']}, seed {stored['seed']}" for name, stored in evaluations.items()
    ]
    return {
        "World": world.name,
        "Games": str(getattr(world, world.name).source),
        "Model": f"{model.name}, {model.dtype}",
        "Agent": f"style {agent.style}, {agent.context} context, {restricted}, {listed}",
        "Evaluated": "; ".join(evaluated),
        "Machine": f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}",
        "Worldwise": __version__,
    }


def _views(folder: Path, limit: int, decode: Decode) -> list[EpisodeView]:
    episodes: list[Episode] = list(read_episodes(folder))
    with_predictions = [episode for episode in episodes if any(turn.predictions for turn in episode.turns)]
    return [view(episode, decode) for episode in choose(with_predictions or episodes, limit)]


def _figure(drawn: Mapping[str, go.Figure], name: str) -> go.Figure:
    if name in drawn:
        return drawn[name]
    return go.Figure(layout={"title": {"text": f"{name}: nothing stored yet"}})
