"""Wiring of the supervised control."""

from __future__ import annotations

from kedro.pipeline import Pipeline

from worldwise.pipelines.support import MODEL_SETTINGS
from worldwise.pipelines.wiring import node
from worldwise.pipelines.wm_sft import nodes


def create_pipeline() -> Pipeline:
    """Base model and weeded transitions -> supervised world model."""
    return Pipeline(
        [
            node(
                nodes.finetune_world_model,
                ["base_model", "rwml_transitions", "params:wm_sft", *MODEL_SETTINGS],
                ["wm_sft_model", "wm_sft_curves"],
                name="finetune_world_model",
                tags="train",
            )
        ]
    )
