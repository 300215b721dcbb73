"""Nodes of the supervised control."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from worldwise.episodes.transitions import Transition
from worldwise.generation.models import ModelConfig
from worldwise.pipelines.support import in_context, stored
from worldwise.stages import wm_sft as stage
from worldwise.stages.actor import StageContext, load_checkpoint
from worldwise.stages.supervised import SupervisedConfig


@in_context
def finetune_world_model(
    base_model: Path,
    rwml_transitions: list[Transition],
    wm_sft: SupervisedConfig,
    context: StageContext,
    model: ModelConfig,
) -> tuple[Path, dict[str, Any]]:
    """The base model after supervised training on true next observations, and its curves."""
    start = load_checkpoint(base_model, "base", model)
    trained, curve = stage.finetune_world_model(start, rwml_transitions, wm_sft, context)
    return stored(trained), {"rows": curve, "summary": {}}
