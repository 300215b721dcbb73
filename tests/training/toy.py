"""Small random models and sequences for the tests of the learner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, Qwen3Config, Qwen3ForCausalLM

from worldwise.episodes.sequences import Role, TrainingSequence
from worldwise.training.learner import Learner, LearnerConfig

VOCABULARY = 61

SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 512,
    "initializer_range": 0.3,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}


def toy_model(kind: Literal["llama", "qwen3"] = "qwen3", seed: int = 0) -> PreTrainedModel:
    """A float32 model of about 0.1 M parameters whose predictions are far from uniform."""
    torch.manual_seed(seed)
    if kind == "llama":
        return LlamaForCausalLM(LlamaConfig(tie_word_embeddings=False, **SIZES)).eval()
    return Qwen3ForCausalLM(Qwen3Config(tie_word_embeddings=True, **SIZES)).eval()


def plain_config(**changes: Any) -> LearnerConfig:
    """Settings under which the change of the weights is nearly proportional to the gradient.

    With epsilon = 1 AdamW's first step is lr * g / (|g| + 1): comparing weights compares gradients.
    """
    defaults: dict[str, Any] = {
        "learning_rate": 0.1,
        "epsilon": 1.0,
        "weight_decay": 0.0,
        "gradient_clip": None,
        "micro_batch_tokens": 100_000,
    }
    return LearnerConfig(**{**defaults, **changes})


def make_sequence(
    name: str, group: str, length: int, rng: np.random.Generator, *, temperature: float = 1.0
) -> TrainingSequence:
    """Random tokens: context, then responses of 3 to 5 tokens with observations between them."""
    roles = np.zeros(length, dtype=np.int8)
    turns = np.full(length, -1, dtype=np.int32)
    advantages = np.zeros(length, dtype=np.float32)
    start, turn = 4, 0
    while start + 5 < length:
        size = int(rng.integers(3, 6))
        roles[start : start + size] = Role.RESPONSE
        turns[start : start + size] = turn
        advantages[start : start + size] = rng.normal()
        roles[start + size : start + size + 4] = Role.OBSERVATION
        start, turn = start + size + 6, turn + 1
    return TrainingSequence(
        sequence_id=name,
        group_id=group,
        token_ids=rng.integers(0, VOCABULARY, length).astype(np.int32),
        roles=roles,
        turns=turns,
        logprobs=np.zeros(length, dtype=np.float32),
        advantages=advantages,
        temperature=temperature,
    )


def on_policy(
    model: PreTrainedModel, sequences: Sequence[TrainingSequence], drift: float = 0.0, seed: int = 0
) -> list[TrainingSequence]:
    """The sequences with the model's own log-probabilities, moved by normal noise of size `drift` on responses."""
    rng = np.random.default_rng(seed)
    own = Learner(model, LearnerConfig(), 1).log_probs(sequences)
    moved = [
        (p + drift * rng.normal(size=len(p)) * (s.roles == Role.RESPONSE)) for s, p in zip(sequences, own, strict=True)
    ]
    return [replace(s, logprobs=p.astype(np.float32)) for s, p in zip(sequences, moved, strict=True)]


def batch(count: int = 8, seed: int = 0, group_size: int = 4) -> list[TrainingSequence]:
    """Sequences of 30 to 100 tokens."""
    rng = np.random.default_rng(seed)
    return [make_sequence(f"s{i}", f"g{i // group_size}", int(rng.integers(30, 100)), rng) for i in range(count)]


def weights_of(model: PreTrainedModel) -> NDArray[np.float64]:
    """All parameters, flat."""
    return np.concatenate([p.detach().double().numpy().ravel() for p in model.parameters()])


def moved_by(config: LearnerConfig, sequences: Sequence[TrainingSequence], **model: Any) -> NDArray[np.float64]:
    """How one update on `sequences` changes the weights of a fresh toy model."""
    subject = toy_model(**model)
    before = weights_of(subject)
    Learner(subject, config, 10).update(sequences)
    return weights_of(subject) - before


def full_logprobs(model: PreTrainedModel, ids: NDArray[np.int32], temperature: float = 1.0) -> torch.Tensor:
    """[T, V] log-probabilities of the token at each position, by the model's own forward pass; row 0 is zeros."""
    logits = model(input_ids=torch.from_numpy(ids.astype(np.int64))[None]).logits[0] / temperature
    return torch.cat([torch.zeros_like(logits[:1]), logits[:-1].log_softmax(-1)])
