"""Wiring of RWML."""

from __future__ import annotations

from kedro.pipeline import Pipeline

from worldwise.pipelines.rwml import nodes
from worldwise.pipelines.support import MODEL_SETTINGS
from worldwise.pipelines.wiring import node


def create_pipeline() -> Pipeline:
    """Base model and weeded transitions -> world model."""
    return Pipeline(
        [
            node(
                nodes.midtrain_world_model,
                [
                    "base_model",
                    "rwml_transitions",
                    "difficulty_threshold",
                    "training_tasks",
                    "params:rwml",
                    "params:encoder",
                    *MODEL_SETTINGS,
                ],
                ["world_model", "rwml_curves"],
                name="midtrain_world_model",
                tags="train",
            )
        ]
    )
