"""Wiring of the base model."""

from __future__ import annotations

from kedro.pipeline import Pipeline

from worldwise.pipelines.base_model import nodes
from worldwise.pipelines.wiring import node


def create_pipeline() -> Pipeline:
    """Recipe -> model folder."""
    return Pipeline(
        [
            node(
                nodes.build_base_model,
                "params:base_model",
                "built_base_model",
                name="build_base_model",
                tags="train",
            )
        ]
    )
