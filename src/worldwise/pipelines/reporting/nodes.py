"""Nodes of the reporting."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import plotly.graph_objects as go

from worldwise import __version__
from worldwise.agents.config import AgentConfig
from worldwise.episodes.store import read_episodes
from worldwise.generation.models import ModelConfig, load_tokenizer
from worldwise.pipelines.parameters import ReportConfig
from worldwise.reports.browser import Shelf, evaluation_shelf, training_shelf
from worldwise.reports.figures import CURVE_FIGURES, figures
from worldwise.reports.page import html_report
from worldwise.reports.results import Results, label
from worldwise.reports.summary import markdown_summary
from worldwise.stages.acting_scores import ActingReport
from worldwise.stages.difficulty import DifficultyReport
from worldwise.stages.estimators import EstimatorConfig
from worldwise.stages.world_model_scores import WorldModelReport
from worldwise.worlds.registry import WorldConfig, make_family

FIGURES = (*CURVE_FIGURES, "success_by_type", "success_by_model", "world_model")
"""Figures of a report, each a dataset `<name>_figure`."""

MODELS = ("base", "rwml", "policy", "rl_only", "wm_sft", "wm_sft_policy")
"""Models that may have been evaluated."""

STAGES = ("format_tuning", "auxiliary", "rwml", "wm_sft", "policy", "rl_only", "wm_sft_policy")
"""Stages that may have left curves."""

POLICIES = ("policy", "rl_only", "wm_sft_policy")
"""Those of `STAGES` that keep the episodes of their last iteration."""

MAY_BE_STORED = (
    "transition_counts",
    "difficulty_metrics",
    *(f"{model}_evaluation" for model in MODELS),
    *(f"{model}_evaluation_episodes" for model in MODELS),
    *(f"{stage}_curves" for stage in STAGES),
    *(f"{policy}_episodes" for policy in POLICIES),
)
"""Datasets that the report shows where they are stored; None where they are not."""

Stored = Mapping[str, Any]


def write_report(
    base_model: Path,
    yardsticks: dict[str, Any],
    report: ReportConfig,
    world: WorldConfig,
    agent: AgentConfig,
    model: ModelConfig,
    **optional: Any,
) -> tuple[Any, ...]:
    """The Markdown summary, the HTML report, and every figure of `FIGURES`.

    Args:
        base_model: for the tokenizer.
        yardsticks: scores of random and oracle play.
        report, world, agent, model: settings.
        optional: the datasets of `MAY_BE_STORED` by name.
    """
    evaluations = _stored(optional, MODELS, "evaluation")
    curves = _stored(optional, STAGES, "curves")
    difficulty = optional["difficulty_metrics"]
    results = Results(
        acting={name: ActingReport.model_validate(stored) for name, stored in yardsticks.items()}
        | {name: ActingReport.model_validate(stored["acting"]) for name, stored in evaluations.items()},
        world_model={
            name: WorldModelReport.model_validate(stored["world_model"]) for name, stored in evaluations.items()
        },
        curves={name: stored["rows"] for name, stored in curves.items()},
        difficulty=None if difficulty is None else DifficultyReport.model_validate(difficulty),
        transition_counts=optional["transition_counts"] or {},
        stages=_stage_numbers(curves, evaluations),
        facts=_facts(evaluations, world, agent, model),
    )
    drawn = figures(results)
    page = html_report(results, list(_shelves(optional, base_model, world, report.episodes)))
    return markdown_summary(results), page, *(_figure(drawn, name) for name in FIGURES)


def _stored(optional: Stored, names: tuple[str, ...], what: str) -> dict[str, Any]:
    """`<name>_<what>` of the names for which it is stored, by name."""
    return {name: optional[f"{name}_{what}"] for name in names if optional[f"{name}_{what}"] is not None}


def _stage_numbers(curves: Mapping[str, Stored], evaluations: Mapping[str, Stored]) -> dict[str, dict[str, float]]:
    numbers: dict[str, dict[str, float]] = {name: dict(stored["summary"]) for name, stored in curves.items()}
    for name, stored in evaluations.items():
        if "weights_changed" in stored:
            numbers.setdefault(name, {})["weights_changed"] = stored["weights_changed"]
    return {name: found for name, found in numbers.items() if found}


def _facts(
    evaluations: Mapping[str, Stored], world: WorldConfig, agent: AgentConfig, model: ModelConfig
) -> dict[str, str]:
    listed = "admissible commands listed in the prompt" if agent.list_admissible else "commands not listed"
    evaluated = [
        f"{label(name)} {stored['evaluated_at']}, seed {stored['seed']}, {_decoding(stored['acting']['restricted'])}"
        for name, stored in evaluations.items()
    ]
    protocols: dict[str, list[str]] = {}
    for name, stored in evaluations.items():
        if "protocol" in stored:
            told = "; ".join(f"{what}: {value}" for what, value in stored["protocol"].items())
            protocols.setdefault(told, []).append(label(name))
    played = [f"{', '.join(names)}: {told}" if len(protocols) > 1 else told for told, names in protocols.items()]
    return {
        "World": world.name,
        "Games": str(getattr(world, world.name).source),
        "Model": f"{model.name}, {model.dtype}",
        "Agent": f"style {agent.style}, {agent.context} context, {listed}",
        "Evaluated": "; ".join(evaluated),
        **({"Played": " | ".join(played)} if played else {}),
        "Machine": f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}",
        "Worldwise": __version__,
    }


def _decoding(restricted: bool | None) -> str:
    """As it was recorded when the episodes were played."""
    return "restricted to admissible commands" if restricted else "free generation"


def _shelves(optional: Stored, base_model: Path, world: WorldConfig, limit: int) -> Iterator[Shelf]:
    """What is stored of training, then of evaluation. Curves without their estimator are of an older version."""
    tokenizer, family = load_tokenizer(base_model), make_family(world.name, world)

    def decode(ids: Any) -> str:
        return str(tokenizer.decode(list(ids)))

    curves = _stored(optional, POLICIES, "curves")
    for name, folder in _stored(optional, POLICIES, "episodes").items():
        if "estimator" in curves.get(name, {}):
            found = curves[name]["estimator"]
            estimator = None if found is None else EstimatorConfig.model_validate(found)
            yield training_shelf(label(name), read_episodes(folder), estimator, family.canonical_state, decode, limit)
    for name, folder in _stored(optional, MODELS, "evaluation_episodes").items():
        yield evaluation_shelf(label(name), read_episodes(folder), decode, limit)


def _figure(drawn: Mapping[str, go.Figure], name: str) -> go.Figure:
    if name in drawn:
        return drawn[name]
    return go.Figure(layout={"title": {"text": f"{name}: nothing stored yet"}})
