"""How the embedded base model is made, from self-generated play."""

from worldwise.pipelines.base_model.pipeline import create_pipeline

__all__ = ["create_pipeline"]
