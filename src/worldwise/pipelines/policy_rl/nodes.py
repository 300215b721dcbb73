"""Nodes of policy RL."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from worldwise.episodes.store import write_episodes
from worldwise.generation.models import ModelConfig
from worldwise.pipelines.support import growing_folder, in_context, stored
from worldwise.pipelines.tasks import TaskTable, tasks_from_json
from worldwise.stages import train_policy as stage
from worldwise.stages.actor import StageContext, load_checkpoint
from worldwise.stages.estimators import EstimatorConfig

PolicyNode = Callable[..., tuple[Path, dict[str, Any], Path]]


def train_policy_as(version: str) -> PolicyNode:
    """The node function that trains a policy under a name.

    Args:
        version: name of the resulting weights, and of the random streams of this training.
    """

    @in_context
    def train_policy(
        start: Path,
        training_tasks: TaskTable,
        policy: stage.PolicyConfig,
        context: StageContext,
        model: ModelConfig,
    ) -> tuple[Path, dict[str, Any], Path]:
        """The trained policy, its curves with the estimator behind them, and the episodes of its last iteration."""
        known = tasks_from_json(training_tasks)
        episodes = growing_folder("episodes")
        result = stage.train_policy(
            load_checkpoint(start, "start", model),
            known["train"],
            known["held_out"],
            policy,
            context,
            version,
            lambda iteration, played: _keep(episodes, iteration, played),
        )
        # The report makes the advantages of the stored episodes anew, where that takes nothing but their rewards.
        plain = policy.learner.critic is None and policy.learner.kl_in == "loss"
        plain &= policy.modules.world_in_agent is None
        estimator = policy.model_dump(include=set(EstimatorConfig.model_fields)) if plain else None
        curves = {"rows": result.curve, "summary": result.summary, "estimator": estimator, "modules": result.notes}
        return stored(result.checkpoint), curves, episodes

    return train_policy


def _keep(folder: Path, iteration: int, played: Any) -> None:
    write_episodes(folder, played, prefix=f"iteration-{iteration:05d}")
