"""Nodes of the data collection."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

from worldwise.episodes.store import read_episodes, write_episodes
from worldwise.episodes.transitions import Transition, extract
from worldwise.generation.models import ModelConfig, resolve_model
from worldwise.pipelines.parameters import TasksConfig
from worldwise.pipelines.support import growing_folder, in_context, stored
from worldwise.pipelines.tasks import TaskTable, table_of, tasks_from_json
from worldwise.stages import format_tuning as tuning
from worldwise.stages.actor import StageContext, load_checkpoint
from worldwise.stages.collect import CollectConfig, block_size
from worldwise.stages.collect import collect_episodes as collect
from worldwise.stages.format_tuning import FormatTuningConfig
from worldwise.worlds.registry import WorldConfig, make_family


def prepare_training_tasks(world: WorldConfig, tasks: TasksConfig) -> TaskTable:
    """The tasks of all training: `train`, and `held_out`, which only the checks between updates play."""
    family = make_family(world.name, world)
    training = family.tasks(tasks.split, tasks.train + tasks.held_out)
    return table_of(family, {"train": training[: tasks.train], "held_out": training[tasks.train :]})


def prepare_base_model(model: ModelConfig) -> Path:
    """The folder of the configured model, as it was made elsewhere."""
    return resolve_model(model)


@in_context
def tune_format(
    pretrained_model: Path,
    format_tuning: FormatTuningConfig,
    context: StageContext,
    model: ModelConfig,
) -> tuple[Path, dict[str, Any]]:
    """The model that all stages start from, and the curves of its format tuning.

    Without updates it is the pretrained one, whose folder is handed on unopened.
    """
    if not format_tuning.updates:
        return pretrained_model, {"rows": [], "summary": {}}
    result = tuning.tune_format(load_checkpoint(pretrained_model, "pretrained", model), format_tuning, context)
    return stored(result.checkpoint), {"rows": result.curve, "summary": result.summary}


@in_context
def collect_episodes(
    base_model: Path,
    training_tasks: TaskTable,
    collect_config: CollectConfig,
    context: StageContext,
    model: ModelConfig,
) -> Path:
    """Play of the base model on training tasks, as a folder of shards, one per block that was played."""
    folder = growing_folder("episodes")
    checkpoint = load_checkpoint(base_model, "base", model)
    size = block_size(context)
    blocks = sum(1 for _ in folder.glob("*.parquet"))
    before = read_episodes(folder) if blocks else ()
    episodes = collect(checkpoint, tasks_from_json(training_tasks)["train"], collect_config, context, before)
    while block := list(islice(episodes, size)):
        write_episodes(folder, block, shard_size=size, prefix=f"episodes-{blocks:05d}")
        blocks += 1
    return folder


def extract_transitions(
    collected_episodes: Path, collect_config: CollectConfig, seed: int, world: WorldConfig
) -> tuple[list[Transition], dict[str, int]]:
    """Transitions and how many each cleaning rule removed."""
    family = make_family(world.name, world)
    return extract(read_episodes(collected_episodes), family, collect_config.cleaning, seed)
