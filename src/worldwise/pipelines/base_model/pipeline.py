"""Wiring of the base model."""

from __future__ import annotations

from kedro.pipeline import Pipeline, node

from worldwise.pipelines.base_model import nodes


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
