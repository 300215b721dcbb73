"""What can be known about the learners before a run begins: adapters, and the precision of what is sampled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from worldwise.config import FrozenConfig
from worldwise.generation.models import ModelConfig, ModelError, folder_at_hand, tensor_shapes
from worldwise.training.adapter_config import installed, missing, unfit
from worldwise.training.config import LearnerConfig

FROM_SAMPLES = ("rwml", "policy")
"""Blocks whose learners start from log-probabilities that the sampler recorded."""

ROUGH_GAP = 0.1
"""Least `sampler_gap` beside bfloat16, nats a token: rounding alone makes several hundredths."""


def adapters(blocks: Mapping[str, Any]) -> Iterator[str]:
    """Adapters without their package, or that do not fit the model (where its folder is at hand)."""
    given = {path: learner.adapter for path, learner in learners(blocks).items() if learner.adapter is not None}
    if not given:
        return
    if not installed():
        for path in given:
            yield f"parameter {missing(f'{path}.adapter')}"
        return
    try:
        folder = folder_at_hand(blocks["model"])
    except ModelError:
        return  # The check of the model says so.
    if folder is None:
        return
    shapes = {name: shape for name, shape in tensor_shapes(folder).items() if len(shape) == 2}
    linear = {name.removesuffix(".weight"): (shape[0], shape[1]) for name, shape in shapes.items()}
    for path, adapter in given.items():
        for finding in unfit(adapter, linear):
            yield f"parameter {path}.{finding}"


def precision(blocks: Mapping[str, Any]) -> Iterator[str]:
    """A sampler whose log-probabilities cannot be those of the learner, and a learner that relies on them."""
    model: ModelConfig = blocks["model"]
    sampler = model.sampler_dtype or model.dtype
    rough = "bfloat16" in (sampler, model.dtype)
    named = "dtype" if model.sampler_dtype is None else "sampler_dtype"
    for name in FROM_SAMPLES:
        learner: LearnerConfig = blocks[name].learner
        computes = "bfloat16" if learner.precision == "bf16" else "float32"
        # Beside bfloat16 weights only an adapter trains; without one the run can be no more than an evaluation.
        trains = model.dtype == "float32" or learner.adapter is not None
        if trains and (rough or sampler != computes) and learner.old_logprobs == "sampler":
            yield (
                f"parameter model.{named} is {sampler} and {name}.learner.old_logprobs is 'sampler', while "
                f"{name}.learner.precision is {learner.precision}: recorded log-probabilities would be off by "
                f"hundredths of a nat a token; set {name}.learner.old_logprobs to learner"
            )
        limit = blocks[name].sampler_gap
        if trains and rough and limit is not None and limit < ROUGH_GAP:
            yield (
                f"parameter {name}.sampler_gap is {limit:g} and model.{named} is {sampler}: rounding alone exceeds "
                f"that; set {name}.sampler_gap to null (only measure), or to at least {ROUGH_GAP}"
            )


def truncated_sampling(blocks: Mapping[str, Any]) -> Iterator[str]:
    """Policy RL on log-probabilities of a distribution that was cut: ratios would not start at 1."""
    rollout, learner = blocks["rollout"], blocks["policy"].learner
    cut = rollout.top_p < 1.0 or rollout.min_p > 0.0
    if cut and learner.old_logprobs == "sampler":
        yield (
            f"parameter rollout.top_p is {rollout.top_p:g} and rollout.min_p is {rollout.min_p:g}, while "
            "policy.learner.old_logprobs is 'sampler': recorded log-probabilities are of the cut distribution, the "
            "learner's of the whole one; set policy.learner.old_logprobs to learner, or top_p to 1 and min_p to 0"
        )


def policy_only(blocks: Mapping[str, Any]) -> Iterator[str]:
    """Settings that only policy RL has a use for, in the learner of another stage."""
    for path, learner in learners(blocks).items():
        if path == "policy.learner":
            continue
        if learner.critic is not None:
            yield f"parameter {path}.critic is given: only policy.learner has a critic; set it to null"
        if learner.kl_in == "reward":
            yield (
                f"parameter {path}.kl_in is 'reward': only policy RL has rewards that a KL could be taken off; "
                "set it to loss"
            )


def learners(blocks: Mapping[str, Any]) -> dict[str, LearnerConfig]:
    """Dotted path -> settings, of every learner in the parameter blocks."""
    found: dict[str, LearnerConfig] = {}
    for name, block in blocks.items():
        if isinstance(block, LearnerConfig):
            found[name] = block
        elif isinstance(block, FrozenConfig):
            found |= {f"{name}.{path}": learner for path, learner in learners(dict(block)).items()}
    return found
