"""Stage 2: keep the transitions that are hard to predict."""

from worldwise.pipelines.difficulty_subsampling.pipeline import create_pipeline

__all__ = ["create_pipeline"]
