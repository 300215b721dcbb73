"""Gradient checkpointing: the same numbers from less memory."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedModel

from worldwise.episodes.sequences import TrainingSequence
from worldwise.generation.tiny import tiny_model
from worldwise.training.batching import MicroBatch, make_row, micro_batches
from worldwise.training.body import llama
from worldwise.training.config import LearnerConfig
from worldwise.training.critic_config import CriticConfig
from worldwise.training.errors import LearnerError
from worldwise.training.forward import score_tokens
from worldwise.training.learner import Learner
from worldwise.training.minibatch import responses
from worldwise.training.recomputing import layers_recomputed

from .toy import SIZES, batch

KINDS = ["own body", "transformers", "gpt2"]


def _model(kind: str, monkeypatch: pytest.MonkeyPatch) -> PreTrainedModel:
    if kind == "gpt2":
        torch.manual_seed(0)
        # Dropout that would show if layers were put into training mode.
        return GPT2LMHeadModel(GPT2Config(vocab_size=SIZES["vocab_size"], n_embd=32, n_layer=3, n_head=4)).eval()
    if kind == "transformers":
        monkeypatch.setattr(llama, "supports", lambda model: False)
    return tiny_model("qwen3", layers=3, hidden=32, max_positions=512, seed=1)


def _micro() -> MicroBatch:
    rows = [make_row(sequence, responses(sequence)) for sequence in batch(4)]
    (micro,) = micro_batches(rows, 10_000, torch.device("cpu"))
    return micro


def _run(model: PreTrainedModel, recomputed: bool) -> tuple[list[torch.Tensor], int]:
    """Log-probabilities and gradients, and the bytes that the forward pass kept for the backward pass."""
    model.zero_grad()
    kept: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.data_ptr()] = tensor.numel() * tensor.element_size()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        scores = score_tokens(model, _micro(), entropy_gradient=True, recomputed=recomputed)
    (scores.logprobs.sum() + scores.entropies.square().sum()).backward()
    gradients = [own.grad.clone() for own in model.parameters() if own.grad is not None]
    return [scores.logprobs.detach(), scores.entropies.detach(), *gradients], sum(kept.values())


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_numbers_from_less_memory(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = _model(kind, monkeypatch)
    plain, kept = _run(model, False)
    again, kept_again = _run(model, True)
    assert all(map(torch.equal, plain, again))
    assert kept_again < kept / 2
    assert not any("forward" in vars(module) for module in model.modules()), "the model is as it was"


@pytest.mark.parametrize("trunk", [None, "own", "shared"])
def test_an_update_is_the_same(trunk: Any) -> None:
    critic = None if trunk is None else CriticConfig(trunk=trunk)
    start = tiny_model("qwen3", layers=2, hidden=32, max_positions=512, seed=1)
    trained = []
    for on in (False, True):
        model = copy.deepcopy(start)
        config = LearnerConfig(learning_rate=1e-3, critic=critic, gradient_checkpointing=on, kl_coefficient=0.1)
        sequences = batch(4)
        if critic is not None:
            rng = np.random.default_rng(0)
            sequences = [_with_targets(own, rng) for own in sequences]
        learned = Learner(model, config, 1).update(sequences)
        trained.append((learned, list(model.state_dict().values())))
    (first, weights), (second, other) = trained
    assert first == second
    assert all(map(torch.equal, weights, other))
    assert not all(map(torch.equal, weights, start.state_dict().values()))


def _with_targets(sequence: TrainingSequence, rng: np.random.Generator) -> TrainingSequence:
    values = rng.normal(size=len(sequence)).astype(np.float32)
    return replace(sequence, returns=values, values=np.zeros_like(values))


def test_a_model_without_marked_layers_is_refused() -> None:
    class Bare(torch.nn.Module):
        pass

    bare: Any = Bare()
    with (
        pytest.raises(LearnerError, match=r"set learner.gradient_checkpointing to false"),
        layers_recomputed(bare, True),
    ):
        pass
    with torch.no_grad(), layers_recomputed(bare, True):
        pass
