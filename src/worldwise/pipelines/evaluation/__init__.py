"""Stage 5: acting and predicting on held-out tasks."""

from worldwise.pipelines.evaluation.pipeline import create_pipeline

__all__ = ["create_pipeline"]
