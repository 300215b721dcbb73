"""Nodes of the data collection."""

from __future__ import annotations

from pathlib import Path

from worldwise.agents.config import AgentConfig
from worldwise.episodes.store import read_episodes, write_episodes
from worldwise.episodes.transitions import Transition, extract
from worldwise.generation.models import ModelConfig, resolve_model
from worldwise.ledger.publish import scratch_folder
from worldwise.pipelines.conversion import TaskTable, tasks_from_json, tasks_to_json
from worldwise.pipelines.parameters import TasksConfig
from worldwise.pipelines.support import stage_context
from worldwise.rollouts.config import RolloutConfig
from worldwise.stages.actor import load_checkpoint
from worldwise.stages.collect import CollectConfig
from worldwise.stages.collect import collect_episodes as collect
from worldwise.stages.evaluate import EvaluateConfig
from worldwise.worlds.registry import WorldConfig, make_family


def prepare_tasks(world: WorldConfig, tasks: TasksConfig, evaluate: EvaluateConfig) -> TaskTable:
    """The tasks of a run: `train`, `held_out` (training tasks that only checks play), and the evaluated splits."""
    family = make_family(world.name, world)
    training = family.tasks(tasks.split, tasks.train + tasks.held_out)
    sets = {"train": training[: tasks.train], "held_out": training[tasks.train :]}
    sets |= {split: family.tasks(split, evaluate.games) for split in evaluate.splits}
    return tasks_to_json(sets)


def prepare_base_model(model: ModelConfig) -> Path:
    """The folder of the model that training starts from."""
    return resolve_model(model)


def collect_episodes(
    base_model: Path,
    tasks: TaskTable,
    collect_config: CollectConfig,
    seed: int,
    world: WorldConfig,
    agent: AgentConfig,
    rollout: RolloutConfig,
    model: ModelConfig,
) -> Path:
    """Play of the base model on training tasks, as a folder of shards."""
    context = stage_context(seed, world, agent, rollout)
    folder = scratch_folder("episodes")
    checkpoint = load_checkpoint(base_model, "base", model)
    write_episodes(folder, collect(checkpoint, tasks_from_json(tasks)["train"], collect_config, context))
    return folder


def extract_transitions(
    collected_episodes: Path, collect_config: CollectConfig, seed: int, world: WorldConfig
) -> tuple[list[Transition], dict[str, int]]:
    """Transitions and how many each cleaning rule removed."""
    family = make_family(world.name, world)
    return extract(read_episodes(collected_episodes), family, collect_config.cleaning, seed)
