"""Wiring of difficulty subsampling."""

from __future__ import annotations

from kedro.pipeline import Pipeline

from worldwise.pipelines.difficulty_subsampling import nodes
from worldwise.pipelines.support import MODEL_SETTINGS
from worldwise.pipelines.wiring import node


def create_pipeline() -> Pipeline:
    """Split, train the auxiliary model, score, weed."""
    return Pipeline(
        [
            node(
                nodes.split_transitions,
                ["transitions", "params:subsample", "params:seed"],
                ["transitions_main", "transitions_aux"],
                name="split_transitions",
            ),
            node(
                nodes.finetune_auxiliary,
                ["base_model", "transitions_aux", "params:subsample", *MODEL_SETTINGS],
                ["auxiliary_model", "auxiliary_curves"],
                name="finetune_auxiliary",
                tags="train",
            ),
            node(
                nodes.score_transitions,
                ["auxiliary_model", "transitions_main", "params:subsample", "params:encoder", *MODEL_SETTINGS],
                "scored_transitions",
                name="score_transitions",
            ),
            node(
                nodes.subsample_transitions,
                ["transitions_main", "transitions_aux", "scored_transitions", "params:subsample", "params:seed"],
                ["rwml_transitions", "difficulty_threshold", "difficulty_metrics"],
                name="subsample_transitions",
            ),
        ]
    )
