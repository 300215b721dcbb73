"""Nodes of the supervised control."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from worldwise.agents.config import AgentConfig
from worldwise.episodes.transitions import Transition
from worldwise.generation.models import ModelConfig
from worldwise.pipelines.parameters import ComputeConfig
from worldwise.pipelines.support import stage_context, stored
from worldwise.rollouts.config import RolloutConfig
from worldwise.stages import wm_sft as stage
from worldwise.stages.actor import load_checkpoint
from worldwise.stages.supervised import SupervisedConfig
from worldwise.worlds.registry import WorldConfig


def finetune_world_model(
    base_model: Path,
    rwml_transitions: list[Transition],
    wm_sft: SupervisedConfig,
    seed: int,
    world: WorldConfig,
    agent: AgentConfig,
    rollout: RolloutConfig,
    compute: ComputeConfig,
    model: ModelConfig,
) -> tuple[Path, dict[str, Any]]:
    """The base model after supervised training on true next observations, and its curves."""
    context = stage_context(seed, world, agent, rollout, compute)
    start = load_checkpoint(base_model, "base", model)
    trained, curve = stage.finetune_world_model(start, rwml_transitions, wm_sft, context)
    return stored(trained), {"rows": curve, "summary": {}}
