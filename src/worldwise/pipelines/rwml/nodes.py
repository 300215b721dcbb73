"""Nodes of RWML."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from worldwise.agents.config import AgentConfig
from worldwise.episodes.transitions import Transition
from worldwise.generation.models import ModelConfig
from worldwise.pipelines.conversion import TaskTable, tasks_from_json
from worldwise.pipelines.parameters import ComputeConfig
from worldwise.pipelines.support import stage_context, stored
from worldwise.rollouts.config import RolloutConfig
from worldwise.stages import midtrain as stage
from worldwise.stages.actor import load_checkpoint
from worldwise.stages.encoder import EncoderConfig, SentenceEncoder
from worldwise.worlds.registry import WorldConfig


def midtrain_world_model(
    base_model: Path,
    rwml_transitions: list[Transition],
    difficulty_threshold: dict[str, float],
    tasks: TaskTable,
    rwml: stage.RwmlConfig,
    encoder: EncoderConfig,
    seed: int,
    world: WorldConfig,
    agent: AgentConfig,
    rollout: RolloutConfig,
    compute: ComputeConfig,
    model: ModelConfig,
) -> tuple[Path, dict[str, Any]]:
    """The base model after RWML, and its curves."""
    result = stage.midtrain_world_model(
        load_checkpoint(base_model, "base", model),
        rwml_transitions,
        difficulty_threshold["tau_d"],
        tasks_from_json(tasks)["held_out"],
        rwml,
        stage_context(seed, world, agent, rollout, compute),
        SentenceEncoder(encoder),
    )
    return stored(result.checkpoint), {"rows": result.curve, "summary": result.summary}
