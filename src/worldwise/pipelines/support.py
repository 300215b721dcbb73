"""What several nodes share."""

from __future__ import annotations

from pathlib import Path

from worldwise.agents.config import AgentConfig
from worldwise.ledger.publish import scratch_folder
from worldwise.pipelines.parameters import ComputeConfig
from worldwise.rollouts.config import RolloutConfig
from worldwise.stages.actor import Checkpoint, StageContext
from worldwise.tracking.listeners import reporter
from worldwise.worlds.registry import WorldConfig, make_family

SETTINGS = ["params:seed", "params:world", "params:agent", "params:rollout", "params:compute"]
"""Inputs of every node that plays, in the order of `stage_context`'s parameters."""

MODEL_SETTINGS = [*SETTINGS, "params:model"]
"""The same for nodes that load a model as well."""


def stage_context(
    seed: int, world: WorldConfig, agent: AgentConfig, rollout: RolloutConfig, compute: ComputeConfig
) -> StageContext:
    """What all stages of a run share; it tells those who listen to the node that calls this."""
    return StageContext(make_family(world.name, world), agent, rollout, seed, reporter(), compute.workers)


def stored(checkpoint: Checkpoint) -> Path:
    """The checkpoint in a scratch folder, for a dataset to take over."""
    return checkpoint.save(scratch_folder(checkpoint.version))
