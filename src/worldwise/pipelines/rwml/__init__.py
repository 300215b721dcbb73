"""Stage 3: RWML mid-training of the world model."""

from worldwise.pipelines.rwml.pipeline import create_pipeline

__all__ = ["create_pipeline"]
