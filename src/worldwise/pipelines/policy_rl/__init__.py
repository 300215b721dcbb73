"""Stage 4: policy RL, from the world model, from the base model, or from the supervised control."""

from worldwise.pipelines.policy_rl.pipeline import create_pipeline

__all__ = ["create_pipeline"]
