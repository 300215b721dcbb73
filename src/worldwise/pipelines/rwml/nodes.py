"""Nodes of RWML."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from worldwise.episodes.transitions import Transition
from worldwise.generation.models import ModelConfig
from worldwise.pipelines.support import in_context, stored
from worldwise.pipelines.tasks import TaskTable, tasks_from_json
from worldwise.stages import midtrain as stage
from worldwise.stages.actor import StageContext, load_checkpoint
from worldwise.stages.encoder import EncoderConfig, SentenceEncoder


@in_context
def midtrain_world_model(
    base_model: Path,
    rwml_transitions: list[Transition],
    difficulty_threshold: dict[str, float],
    training_tasks: TaskTable,
    rwml: stage.RwmlConfig,
    encoder: EncoderConfig,
    context: StageContext,
    model: ModelConfig,
) -> tuple[Path, dict[str, Any]]:
    """The base model after RWML, and its curves."""
    result = stage.midtrain_world_model(
        load_checkpoint(base_model, "base", model),
        rwml_transitions,
        difficulty_threshold["tau_d"],
        tasks_from_json(training_tasks)["held_out"],
        rwml,
        context,
        SentenceEncoder(encoder),
    )
    return stored(result.checkpoint), {"rows": result.curve, "summary": result.summary}
