"""The hand-written body against the models' own forward and backward passes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from worldwise.episodes.sequences import Role
from worldwise.training.batching import MicroBatch, make_row, micro_batches
from worldwise.training.body import attention, llama
from worldwise.training.body.attention import causal_attention
from worldwise.training.body.functions import add_norm, gated_mlp, pairs_together, split_heads
from worldwise.training.forward import score_tokens

from .toy import SIZES, batch

ROPE = {"rope_type": "llama3", "rope_theta": 500.0, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}


def _model(kind: str) -> PreTrainedModel:
    torch.manual_seed(1)
    sizes = {**SIZES, "num_hidden_layers": 3}
    makers: dict[str, Any] = {
        "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(tie_word_embeddings=True, **sizes)),
        "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(tie_word_embeddings=False, **sizes)),
        "llama": lambda: LlamaForCausalLM(LlamaConfig(attention_bias=True, **sizes)),
        "llama_scaled": lambda: LlamaForCausalLM(
            LlamaConfig(
                **{**sizes, "num_key_value_heads": 4}, rope_parameters={**ROPE, "original_max_position_embeddings": 64}
            )
        ),
    }
    model: PreTrainedModel = makers[kind]().eval()
    for parameter in model.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    return model


def _micro(tree: bool) -> MicroBatch:
    """Rows of 30 to 300 tokens; tree rows share a prefix of 150 tokens among 3 branches."""
    rng = np.random.default_rng(0)
    rows = [
        replace(s, token_ids=rng.integers(0, 61, 300).astype(np.int32), roles=np.zeros(300, np.int8)) for s in batch(3)
    ]
    rows = rows if tree else [*rows, *batch(3, seed=3)]
    for row in rows[:3]:
        row.roles[160:190] = Role.RESPONSE
        row.roles[260:300] = Role.RESPONSE
    if tree:
        branches = np.repeat(np.arange(4), [150, 50, 60, 40]).astype(np.int32)
        rows = [replace(row, branches=branches) for row in rows]
    prepared = [make_row(row, np.flatnonzero(row.roles == Role.RESPONSE)) for row in rows]
    (micro,) = micro_batches(prepared, 10_000, torch.device("cpu"))
    return micro


def _run(model: PreTrainedModel, micro: MicroBatch, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probabilities, and all gradients of a fixed random combination of them."""
    model.zero_grad()
    scores = score_tokens(model, micro, dtype=dtype, entropy_gradient=True)
    weights = torch.randn(len(scores.logprobs), generator=torch.Generator().manual_seed(0))
    (scores.logprobs @ weights + scores.entropies.sum()).backward()
    gradients = [p.grad.ravel() if p.grad is not None else torch.zeros(p.numel()) for p in model.parameters()]
    return scores.logprobs.detach(), torch.cat(gradients)


@pytest.mark.parametrize("tree", [False, True])
@pytest.mark.parametrize("kind", ["qwen3", "qwen2", "llama", "llama_scaled"])
def test_values_and_gradients_are_the_models_own(kind: str, tree: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    model, micro = _model(kind), _micro(tree)
    assert llama.supports(model)
    ours, gradient = _run(model, micro, torch.float32)
    rough, rough_gradient = _run(model, micro, torch.bfloat16)
    monkeypatch.setattr(attention, "KEPT_LIMIT", 0)
    again, again_gradient = _run(model, micro, torch.bfloat16)
    monkeypatch.setattr(llama, "supports", lambda model: False)
    theirs, their_gradient = _run(model, micro, torch.float32)
    cast, cast_gradient = _run(model, micro, torch.bfloat16)

    torch.testing.assert_close(ours, theirs, atol=5e-5, rtol=1e-4)
    assert (gradient - their_gradient).norm() < 1e-4 * their_gradient.norm()
    assert torch.equal(again, rough)
    assert torch.equal(again_gradient, rough_gradient)
    # In bfloat16 both are wrong by rounding; ours must not be much worse than autocast.
    assert (rough - theirs).norm() < 2.0 * (cast - theirs).norm()
    assert (rough_gradient - their_gradient).norm() < 2.0 * (cast_gradient - their_gradient).norm()


def test_functions_pass_gradcheck_in_their_parts() -> None:
    """Backward passes against autograd of the same formula written with elementary operations."""
    torch.manual_seed(0)
    x, branch, weight = torch.randn(5, 8), torch.randn(5, 8), torch.rand(8) + 0.5
    total = x + branch
    plain = (total, total * (total.square().mean(-1, keepdim=True) + 1e-3).rsqrt() * weight)
    _same_gradients(lambda *a: add_norm(*a, 1e-3, torch.float32), _add_norm, [x, branch, weight])
    for left, right in zip(add_norm(x, branch, weight, 1e-3, torch.float32), plain, strict=True):
        torch.testing.assert_close(left, right)

    gate, up, down = torch.randn(6, 8), torch.randn(6, 8), torch.randn(8, 6)
    _same_gradients(lambda *a: (gated_mlp(*a),), _gated_mlp, [x, gate, up, down])

    fused, scales = torch.randn(2, 7, (4 + 2 * 2) * 6), torch.rand(6, 6) + 0.5
    turn = torch.randn(1, 7, 6, 3, dtype=torch.complex64)
    _same_gradients(
        lambda f, w: split_heads(f, w, turn, (4, 2), 1e-3), lambda f, w: _heads(f, w, turn), [fused, scales]
    )


def test_pairs_come_together_per_head() -> None:
    assert pairs_together(torch.arange(12), 6).tolist() == [0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11]


def _add_norm(x: torch.Tensor, branch: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, ...]:
    total = x + branch
    return total, total * (total.square().mean(-1, keepdim=True) + 1e-3).rsqrt() * weight


def _gated_mlp(x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, down: torch.Tensor) -> tuple[torch.Tensor]:
    return ((torch.nn.functional.silu(x @ gate.T) * (x @ up.T)) @ down.T,)


def _heads(fused: torch.Tensor, weight: torch.Tensor, turn: torch.Tensor) -> tuple[torch.Tensor, ...]:
    split = fused.view(2, 7, 8, 6)
    x = split[:, :, :6]
    x = x * (x.square().mean(-1, keepdim=True) + 1e-3).rsqrt() * weight
    real = x[..., ::2] * turn.real - x[..., 1::2] * turn.imag
    imaginary = x[..., 1::2] * turn.real + x[..., ::2] * turn.imag
    x = torch.stack([real, imaginary], -1).flatten(-2)
    return x[:, :, :4].transpose(1, 2), x[:, :, 4:].transpose(1, 2), split[:, :, 6:].transpose(1, 2)


def _same_gradients(ours: Any, plain: Any, inputs: list[torch.Tensor]) -> None:
    results = []
    for function in (ours, plain):
        leaves = [x.clone().requires_grad_(True) for x in inputs]
        outputs = function(*leaves)
        generator = torch.Generator().manual_seed(0)
        loss = sum((out * torch.randn(out.shape, generator=generator)).sum() for out in outputs)
        results.append(torch.autograd.grad(loss, leaves))  # type: ignore[arg-type]
    for left, right in zip(*results, strict=True):
        torch.testing.assert_close(left, right, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("length", [5, 128, 129, 300])
@pytest.mark.parametrize("masked", [False, True])
def test_block_attention_is_softmax_attention(length: int, masked: bool) -> None:
    torch.manual_seed(0)
    shapes = [(2, 4, length, 8), (2, 2, length, 8), (2, 2, length, 8)]
    leaves = [torch.randn(s).to(torch.bfloat16).requires_grad_(True) for s in shapes]
    hidden = torch.ones(length, length, dtype=torch.bool).triu(1).expand(2, 1, -1, -1).clone()
    if masked:
        hidden[1, 0, length // 2 :, 1 : length // 3] = True
    out = causal_attention(*leaves, hidden if masked else None)
    given = torch.randn(out.shape)
    ours = torch.autograd.grad((out.float() * given).sum(), leaves)

    exact = [leaf.detach().double().requires_grad_(True) for leaf in leaves]
    q, k, v = exact[0], exact[1].repeat_interleave(2, 1), exact[2].repeat_interleave(2, 1)
    scores = (q @ k.transpose(-1, -2)).masked_fill(hidden, -torch.inf)
    expected = (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)
    theirs = torch.autograd.grad((expected * given.double()).sum(), exact)
    assert (out.double() - expected).norm() < 0.01 * expected.norm()
    for left, right in zip(ours, theirs, strict=True):
        assert (left.double() - right).norm() < 0.02 * right.norm()


class _Adapted(torch.nn.Linear):
    """Stands for a layer with an adapter."""


def test_models_it_does_not_know_are_left_to_their_own_forward() -> None:
    adapted = _model("qwen3")
    layer: Any = adapted.base_model.layers[1]  # type: ignore[union-attr, index]
    layer.mlp.up_proj = _Adapted(64, 96, bias=False)
    assert not llama.supports(adapted)
    windowed = Qwen3ForCausalLM(
        Qwen3Config(**SIZES, use_sliding_window=True, sliding_window=16, max_window_layers=1)  # type: ignore[arg-type]
    )
    assert not llama.supports(windowed)
    assert not llama.supports(LlamaForCausalLM(LlamaConfig(**SIZES, hidden_act="gelu")))
    assert not llama.supports(LlamaForCausalLM(LlamaConfig(**SIZES, mlp_bias=True)))
