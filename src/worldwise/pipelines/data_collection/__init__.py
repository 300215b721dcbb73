"""Stage 1: tasks, the model to start from, its play, and the transitions cut out of it."""

from worldwise.pipelines.data_collection.pipeline import create_pipeline, create_preparation

__all__ = ["create_pipeline", "create_preparation"]
