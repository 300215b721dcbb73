"""The pipelines by name."""

from __future__ import annotations

from kedro.pipeline import Pipeline

from worldwise.pipelines import (
    base_model,
    data_collection,
    difficulty_subsampling,
    evaluation,
    policy_rl,
    reporting,
    rwml,
    wm_sft,
)


def register_pipelines() -> dict[str, Pipeline]:
    """Single stages, and the sums that users run."""
    data = data_collection.create_pipeline()
    difficulty = difficulty_subsampling.create_pipeline()
    world_model = rwml.create_pipeline()
    supervised = wm_sft.create_pipeline()
    policy = policy_rl.create_pipeline()
    rl_alone = policy_rl.create_pipeline("base_model", "rl_only", "train_policy_from_base")
    rl_after_supervised = policy_rl.create_pipeline("wm_sft_model", "wm_sft_policy", "train_policy_from_wm_sft")
    report = reporting.create_pipeline()
    main = data + difficulty + world_model + policy + evaluation.create_pipeline(["rwml", "policy"]) + report
    return {
        "__default__": main,
        "rwml_then_rl": main,
        "data_collection": data,
        "difficulty_subsampling": difficulty,
        "rwml": world_model,
        "wm_sft": supervised,
        "policy_rl": policy,
        "evaluation": evaluation.create_pipeline(["rwml", "policy"]),
        "reporting": report,
        "rl_only": data_collection.create_preparation() + rl_alone + evaluation.create_pipeline(["rl_only"]) + report,
        "wm_sft_then_rl": data
        + difficulty
        + supervised
        + rl_after_supervised
        + evaluation.create_pipeline(["wm_sft", "wm_sft_policy"])
        + report,
        "base_model": base_model.create_pipeline(),
    }
