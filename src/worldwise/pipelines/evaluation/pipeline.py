"""Wiring of the evaluation."""

from __future__ import annotations

from collections.abc import Iterable

from kedro.pipeline import Pipeline

from worldwise.pipelines.evaluation import nodes
from worldwise.pipelines.support import MODEL_SETTINGS, SETTINGS
from worldwise.pipelines.wiring import node

WEIGHTS = {
    "rwml": "world_model",
    "policy": "policy_model",
    "rl_only": "rl_only_model",
    "wm_sft": "wm_sft_model",
    "wm_sft_policy": "wm_sft_policy_model",
}
"""Name of a trained model in results -> dataset of its weights."""


def create_pipeline(models: Iterable[str]) -> Pipeline:
    """The tasks, the yardsticks, the base model, and the trained models named.

    Args:
        models: keys of `WEIGHTS`.
    """
    settings = ["params:evaluate", "params:encoder", *MODEL_SETTINGS]
    return Pipeline(
        [
            node(
                nodes.prepare_evaluation_tasks,
                ["params:world", "params:evaluate"],
                "evaluation_tasks",
                name="prepare_evaluation_tasks",
            ),
            node(
                nodes.score_yardsticks,
                ["evaluation_tasks", "params:evaluate", *SETTINGS],
                "yardsticks",
                name="score_yardsticks",
            ),
            node(
                nodes.evaluate_base,
                ["base_model", "evaluation_tasks", *settings],
                ["base_evaluation_episodes", "base_evaluation", "held_out_transitions"],
                name="evaluate_base",
            ),
            *(
                node(
                    nodes.evaluate_as(model),
                    [WEIGHTS[model], "base_model", "evaluation_tasks", "held_out_transitions", *settings],
                    [f"{model}_evaluation_episodes", f"{model}_evaluation"],
                    name=f"evaluate_{model}",
                )
                for model in models
            ),
        ]
    )
