"""Nodes of the evaluation."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from worldwise.episodes.record import Episode
from worldwise.episodes.store import write_episodes
from worldwise.episodes.transitions import Transition
from worldwise.generation.models import ModelConfig
from worldwise.ledger.publish import scratch_folder
from worldwise.pipelines.support import in_context
from worldwise.pipelines.tasks import TaskTable, table_of, tasks_from_json
from worldwise.reports.browser import choose
from worldwise.stages import evaluate as stage
from worldwise.stages.acting_scores import report_acting
from worldwise.stages.actor import Checkpoint, StageContext, load_checkpoint
from worldwise.stages.encoder import Encoder, EncoderConfig, SentenceEncoder
from worldwise.stages.yardsticks import score_yardsticks as score_scripted
from worldwise.worlds.registry import WorldConfig, make_family

Evaluation = dict[str, Any]


def prepare_evaluation_tasks(world: WorldConfig, evaluate: stage.EvaluateConfig) -> TaskTable:
    """The tasks of every evaluated split."""
    family = make_family(world.name, world)
    return table_of(family, {split: family.tasks(split, evaluate.games) for split in evaluate.splits})


@in_context
def evaluate_base(
    base_model: Path,
    evaluation_tasks: TaskTable,
    evaluate: stage.EvaluateConfig,
    encoder: EncoderConfig,
    context: StageContext,
    model: ModelConfig,
) -> tuple[Path, Evaluation, list[Transition]]:
    """How the base model acts and predicts, and the transitions that every model is then asked to predict."""
    base = load_checkpoint(base_model, "base", model)
    episodes = list(stage.evaluate_acting(base, tasks_from_json(evaluation_tasks), evaluate, context))
    held_out = stage.held_out_transitions(episodes, evaluate, context)
    folder, result = _scored(base, episodes, held_out, evaluate, context, SentenceEncoder(encoder), encoder.name)
    return folder, result, held_out


def evaluate_as(version: str) -> Callable[..., tuple[Path, Evaluation]]:
    """The node function that evaluates a trained model under a name."""

    @in_context
    def evaluate_model(
        trained_model: Path,
        base_model: Path,
        evaluation_tasks: TaskTable,
        held_out_transitions: list[Transition],
        evaluate: stage.EvaluateConfig,
        encoder: EncoderConfig,
        context: StageContext,
        model: ModelConfig,
    ) -> tuple[Path, Evaluation]:
        """How a trained model acts and predicts, and how much of it training changed."""
        trained = load_checkpoint(trained_model, version, model)
        episodes = list(stage.evaluate_acting(trained, tasks_from_json(evaluation_tasks), evaluate, context))
        folder, result = _scored(
            trained, episodes, held_out_transitions, evaluate, context, SentenceEncoder(encoder), encoder.name
        )
        changed = stage.weights_changed(load_checkpoint(base_model, "base", model), trained)
        return folder, {**result, "weights_changed": changed}

    return evaluate_model


@in_context
def score_yardsticks(
    evaluation_tasks: TaskTable,
    evaluate: stage.EvaluateConfig,
    context: StageContext,
) -> Evaluation:
    """What random and oracle play reach on the same tasks."""
    reports = score_scripted(tasks_from_json(evaluation_tasks), evaluate, context)
    return {name: report.model_dump(mode="json") for name, report in reports.items()}


def _scored(
    checkpoint: Checkpoint,
    episodes: list[Episode],
    held_out: list[Transition],
    config: stage.EvaluateConfig,
    context: StageContext,
    encoder: Encoder,
    encoder_name: str,
) -> tuple[Path, Evaluation]:
    """The episodes stored (those for the browser with the model's own predictions), and all scores."""
    acting = report_acting(checkpoint.version, episodes)
    world_model, _ = stage.score_world_model(checkpoint, held_out, config, context, encoder)
    shown = choose(episodes, config.shown_episodes)
    predicted = {
        episode.episode_id: episode for episode in stage.with_predictions(checkpoint, shown, config, context, encoder)
    }
    folder = scratch_folder("episodes")
    write_episodes(folder, [predicted.get(episode.episode_id, episode) for episode in episodes])
    result = {
        "acting": acting.model_dump(mode="json"),
        "world_model": world_model.model_dump(mode="json"),
        "evaluated_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "seed": context.seed,
        "protocol": _protocol(config, context, encoder_name),
    }
    return folder, result


def _protocol(config: stage.EvaluateConfig, context: StageContext, encoder: str) -> dict[str, str]:
    """How it was played and scored, in words: what results may not be compared without."""
    agent, listed = context.agent, "listed" if context.agent.list_admissible else "not listed"
    limit = context.family.facts()
    if config.max_turns is not None:
        limit |= {"turn limit": str(min(config.max_turns, context.family.max_turns))}
    return {
        **limit,
        "agent": f"style {agent.style}, {agent.context} context, commands {listed} in the prompt",
        "temperatures": ", ".join(f"{value:g}" for value in config.temperatures),
        "response tokens": str(context.rollout.max_tokens),
        "encoder": encoder,
    }
