"""Wiring of policy RL."""

from __future__ import annotations

from kedro.pipeline import Pipeline

from worldwise.pipelines.policy_rl import nodes
from worldwise.pipelines.support import MODEL_SETTINGS
from worldwise.pipelines.wiring import node


def create_pipeline(start: str = "world_model", version: str = "policy", name: str = "train_policy") -> Pipeline:
    """A checkpoint -> a policy.

    Args:
        start: dataset of the weights to start from.
        version: prefix of the outputs, and name of the resulting weights.
        name: of the node.
    """
    return Pipeline(
        [
            node(
                nodes.train_policy_as(version),
                [start, "training_tasks", "params:policy", *MODEL_SETTINGS],
                [f"{version}_model", f"{version}_curves", f"{version}_episodes"],
                name=name,
                tags="train",
            )
        ]
    )
