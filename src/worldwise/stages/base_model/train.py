"""Training the base model: rows of play in, a Hugging Face folder out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from pydantic import Field

from worldwise.config import FrozenConfig, derive_seed
from worldwise.stages.base_model.encoding import Row
from worldwise.stages.base_model.state import BaseTraining
from worldwise.training.memory import release_freed

if TYPE_CHECKING:
    import torch
    from transformers import LlamaForCausalLM


class ShapeConfig(FrozenConfig):
    """Shape of the base model (Llama).

    Attributes:
        layers, hidden, feed_forward, heads, kv_heads, head_dim: the usual sizes.
        context: longest context, tokens.
        vocab_size: upper limit of the tokenizer's entries.
    """

    layers: int = Field(4, ge=1)
    hidden: int = Field(256, ge=8)
    feed_forward: int = Field(768, ge=8)
    heads: int = Field(4, ge=1)
    kv_heads: int = Field(2, ge=1)
    head_dim: int = Field(64, ge=8)
    context: int = Field(4096, ge=128)
    vocab_size: int = Field(1024, ge=300)


class TrainConfig(FrozenConfig):
    """How the base model is trained.

    Attributes:
        batch_tokens: padded tokens of one optimizer step.
        learning_rate: peak, for Muon (matrices) and AdamW (embedding, norms) alike; Muon's update is
            scaled to AdamW's size.
        weight_decay: decoupled, of the matrices.
        warmup_steps: linear warm-up.
        decay_share: last share of the steps in which the rate falls linearly to 0.
        observation_weight: loss weight of the world's text in conversations; low, so that the world is left to
            be learned by world-model training.
        prediction_share: share of rows that end in a prediction request and its answer.
        prediction_weight: loss weight of the text of those answers.
        passes: times that every row is seen, in a new order each time.
        threads: torch threads.
        seed: start of every random choice.
    """

    batch_tokens: int = Field(6144, ge=256)
    learning_rate: float = Field(2e-3, gt=0.0)
    weight_decay: float = Field(0.05, ge=0.0)
    warmup_steps: int = Field(100, ge=0)
    decay_share: float = Field(0.7, ge=0.0, le=1.0)
    observation_weight: float = Field(0.1, ge=0.0)
    prediction_share: float = Field(0.1, ge=0.0, le=1.0)
    prediction_weight: float = Field(0.2, ge=0.0)
    passes: int = Field(2, ge=1)
    threads: int = Field(2, ge=1)
    seed: int = Field(0, ge=0)


def new_model(shape: ShapeConfig, vocab_size: int, pad_id: int, end_id: int, seed: int) -> LlamaForCausalLM:
    """A fresh Llama of the given shape, float32, tied embeddings."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=shape.hidden,
        intermediate_size=shape.feed_forward,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        max_position_embeddings=shape.context,
        tie_word_embeddings=True,
        pad_token_id=pad_id,
        eos_token_id=end_id,
        bos_token_id=None,
        dtype="float32",
    )
    return LlamaForCausalLM(config)


def batches(rows: Sequence[Row], batch_tokens: int, seed: int, window: int = 1024) -> Iterator[list[int]]:
    """Indices of rows of about equal length, `batch_tokens` padded tokens at most, in random order."""
    order = np.random.default_rng(seed).permutation(len(rows))
    for start in range(0, len(order), window):
        block = sorted(order[start : start + window].tolist(), key=lambda index: len(rows[index].token_ids))
        made: list[list[int]] = [[]]
        for index in block:
            if made[-1] and (len(made[-1]) + 1) * _padded(len(rows[index].token_ids)) > batch_tokens:
                made.append([])
            made[-1].append(index)
        for position in np.random.default_rng([seed, start]).permutation(len(made)):
            yield made[position]


def _padded(length: int) -> int:
    return -(-length // 32) * 32


def row_loss(model: LlamaForCausalLM, rows: Sequence[Row], dtype: torch.dtype) -> tuple[torch.Tensor, float]:
    """Weighted cross-entropy of a batch.

    Args:
        model: a model on the CPU.
        rows: padded on the right, so that the causal order is all the masking there is.
        dtype: of the body's matrix products, float32 or bfloat16; the head is float32.

    Returns:
        Mean loss in nats per unit of weight (with gradient), and the sum of the weights.
    """
    import torch

    from worldwise.training.body.llama import hidden_states

    length = _padded(max(len(row.token_ids) for row in rows))
    ids = torch.zeros((len(rows), length), dtype=torch.long)
    weights = torch.zeros((len(rows), length), dtype=torch.float32)
    for index, row in enumerate(rows):
        ids[index, : len(row.token_ids)] = torch.from_numpy(row.token_ids.astype(np.int64))
        weights[index, : len(row.weights)] = torch.from_numpy(row.weights)
    following = torch.nn.functional.pad(weights[:, 1:], (0, 1)).flatten()
    where = following.nonzero()[:, 0]
    hidden = hidden_states(model, ids, torch.arange(length)[None], None, where, dtype)
    logits = torch.nn.functional.linear(hidden, model.lm_head.weight)
    losses = torch.nn.functional.cross_entropy(logits, ids.flatten()[where + 1], reduction="none")
    weight = following[where]
    return (losses * weight).sum() / weight.sum(), float(weight.sum())


def new_training(model: LlamaForCausalLM, config: TrainConfig) -> BaseTraining:
    """A training that has not begun: Muon for the matrices, AdamW for embedding and norms."""
    import torch

    matrices = [p for name, p in model.named_parameters() if p.ndim == 2 and "embed" not in name]
    others = [p for name, p in model.named_parameters() if p.ndim != 2 or "embed" in name]
    rate, decay = config.learning_rate, config.weight_decay
    muon = torch.optim.Muon(matrices, lr=rate, weight_decay=decay, adjust_lr_fn="match_rms_adamw")
    return BaseTraining(model, [muon, torch.optim.AdamW(others, lr=rate, betas=(0.9, 0.95), weight_decay=0.0)])


def train_base(
    training: BaseTraining,
    rows: Sequence[Row],
    config: TrainConfig,
    log: Callable[[Mapping[str, float], int], None],
    between: Callable[[], None] = lambda: None,
) -> int:
    """`config.passes` passes over `rows`, from where the training stands.

    Args:
        training: changed in place.
        rows: the data.
        config: see `TrainConfig`.
        log: called every 50 steps with loss, rate, tokens and seconds.
        between: called after every step.

    Returns:
        Number of optimizer steps in all.
    """
    import torch

    torch.set_num_threads(config.threads)
    plan = [
        indices
        for number in range(config.passes)
        for indices in batches(rows, config.batch_tokens, derive_seed(config.seed, "base_batches", number) % 2**32)
    ]
    model, before = training.model, training.rows[-1]["seconds"] if training.rows else 0.0
    began = time.monotonic() - before
    for row in training.rows:
        log({name: value for name, value in row.items() if name != "step"}, int(row["step"]))
    for indices in plan[training.step :]:
        rate = config.learning_rate * _rate_factor(training.step, len(plan), config)
        loss, _ = row_loss(model, [rows[index] for index in indices], torch.bfloat16)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in training.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        training.losses.append(float(loss.detach()))
        training.tokens += sum(len(rows[index].token_ids) for index in indices)
        training.step += 1
        if training.step % 50 == 0 or training.step == len(plan):
            release_freed()
            shown = {"loss": float(np.mean(training.losses[-50:])), "rate": rate, "tokens": training.tokens}
            row = {**shown, "seconds": time.monotonic() - began, "steps": len(plan)}
            training.rows.append({"step": training.step, **row})
            log(row, training.step)
        between()
    return len(plan)


def _rate_factor(step: int, steps: int, config: TrainConfig) -> float:
    """Warm-up, plateau, linear decay to zero."""
    warm = min(1.0, (step + 1) / config.warmup_steps) if config.warmup_steps else 1.0
    decay_steps = max(1, round(steps * config.decay_share))
    return warm * min(1.0, (steps - step) / decay_steps)


def save_folder(model: LlamaForCausalLM, folder: Path) -> None:
    """Weights (bfloat16 safetensors) and config; the trainer's own float32 weights are untouched."""
    import copy

    half = copy.deepcopy(model).bfloat16()
    half.save_pretrained(folder)
