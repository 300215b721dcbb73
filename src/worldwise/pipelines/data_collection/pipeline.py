"""Wiring of the data collection."""

from __future__ import annotations

from kedro.pipeline import Pipeline

from worldwise.pipelines.data_collection import nodes
from worldwise.pipelines.support import MODEL_SETTINGS
from worldwise.pipelines.wiring import node


def create_preparation() -> Pipeline:
    """Training tasks and the model to start from; every whole pipeline begins so."""
    return Pipeline(
        [
            node(
                nodes.prepare_training_tasks,
                ["params:world", "params:tasks"],
                "training_tasks",
                name="prepare_training_tasks",
            ),
            node(nodes.prepare_base_model, "params:model", "pretrained_model", name="prepare_base_model"),
            node(
                nodes.tune_format,
                ["pretrained_model", "params:format_tuning", *MODEL_SETTINGS],
                ["base_model", "format_tuning_curves"],
                name="tune_format",
                tags="train",
            ),
        ]
    )


def create_pipeline() -> Pipeline:
    """Preparation, play, transitions."""
    return create_preparation() + Pipeline(
        [
            node(
                nodes.collect_episodes,
                ["base_model", "training_tasks", "params:collect", *MODEL_SETTINGS],
                "collected_episodes",
                name="collect_episodes",
                tags="collect",
            ),
            node(
                nodes.extract_transitions,
                ["collected_episodes", "params:collect", "params:seed", "params:world"],
                ["transitions", "transition_counts"],
                name="extract_transitions",
            ),
        ]
    )
