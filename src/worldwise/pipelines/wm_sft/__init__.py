"""RWML's supervised control: the same transitions, cross-entropy instead of a reward."""

from worldwise.pipelines.wm_sft.pipeline import create_pipeline

__all__ = ["create_pipeline"]
