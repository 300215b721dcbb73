"""Stage 6: what all of it was worth."""

from worldwise.pipelines.reporting.pipeline import create_pipeline

__all__ = ["create_pipeline"]
