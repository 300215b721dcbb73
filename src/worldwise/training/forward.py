"""Log-probabilities and entropies of chosen tokens; the LM head runs only where they are wanted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from worldwise.algorithms.losses.entropy import entropies
from worldwise.training.batching import MicroBatch, Restriction
from worldwise.training.body import llama
from worldwise.training.recomputing import layers_recomputed, recompute

if TYPE_CHECKING:
    from transformers import PreTrainedModel

LINEAR_HEADS = frozenset({"llama", "qwen2", "qwen3", "mistral", "smollm3"})
"""Model types whose logits are the output embedding applied to the last hidden state, and nothing more."""

Triple = tuple[torch.Tensor, torch.Tensor, torch.Tensor]

LOGIT_CHUNK = 2**25
"""Most logits held at once (128 MiB in float32); more are recomputed chunk by chunk in the backward pass."""


@dataclass(frozen=True, slots=True)
class Scores:
    """Per scored token.

    Attributes:
        logprobs: float32 [N], nats, differentiable.
        entropies: float32 [N], nats.
        hits: bool [N], the token was the most probable one.
        states: [N, d], hidden states behind the log-probabilities, differentiable; None where the model's head is more
            than a linear layer.
    """

    logprobs: torch.Tensor
    entropies: torch.Tensor
    hits: torch.Tensor
    states: torch.Tensor | None = None

    def part(self, which: torch.Tensor) -> Scores:
        """Those of some tokens.

        Args:
            which: int64 [M], their places.
        """
        states = None if self.states is None else self.states[which]
        return Scores(self.logprobs[which], self.entropies[which], self.hits[which], states)


def score_tokens(
    model: PreTrainedModel,
    batch: MicroBatch,
    *,
    dtype: torch.dtype = torch.float32,
    entropy_gradient: bool = False,
    recomputed: bool = False,
) -> Scores:
    """Score the chosen tokens of a micro-batch.

    The body of the model runs under whatever autocast the caller has set; the LM head and the softmax always
    run in float32 (bfloat16 logits would be wrong by hundredths of a nat).

    Args:
        model: a causal language model of transformers.
        batch: the micro-batch, on the model's device.
        dtype: of the matrix products in the model's body, float32 or bfloat16 (autocast).
        entropy_gradient: let gradients flow through the entropies.
        recomputed: see `recomputing`.

    Returns:
        Scores under the distribution the tokens were sampled from: logits / temperature, restricted to the
        allowed ids where the micro-batch says so.
    """
    if model.config.model_type not in LINEAR_HEADS:
        with _autocast(model, dtype), layers_recomputed(model, recomputed):
            logits = model(**_inputs(model, batch)).logits.flatten(0, 1)[batch.where]
        return Scores(*_score_logits(logits, batch.targets, batch.temperatures, batch.restriction, entropy_gradient))
    hidden = states_at(model, batch, dtype=dtype, recomputed=recomputed)
    head = model.get_output_embeddings()  # type: ignore[no-untyped-call]
    size = max(1, LOGIT_CHUNK // int(head.weight.shape[0]))

    def score(part: torch.Tensor, start: int) -> Triple:
        stop = start + len(part)
        restriction = None if batch.restriction is None else batch.restriction.part(start, stop)
        logits = head(part.to(head.weight.dtype))
        return _score_logits(
            logits, batch.targets[start:stop], batch.temperatures[start:stop], restriction, entropy_gradient
        )

    if len(hidden) <= size:
        return Scores(*score(hidden, 0), hidden)
    parts = [recompute(score, hidden[start : start + size], start) for start in range(0, len(hidden), size)]
    logprobs, spread, hits = (torch.cat(column) for column in zip(*parts, strict=True))
    return Scores(logprobs, spread, hits, hidden)


def states_at(
    model: PreTrainedModel, batch: MicroBatch, *, dtype: torch.dtype = torch.float32, recomputed: bool = False
) -> torch.Tensor:
    """Last hidden states at the places that predict the scored tokens.

    Args:
        model: a causal language model of transformers, or its body alone.
        batch: the micro-batch, on the model's device.
        dtype: of the matrix products, float32 or bfloat16 (autocast).
        recomputed: see `recomputing`.

    Returns:
        [N, d], differentiable; float32, or `dtype` where transformers runs the model's own forward pass.
    """
    if llama.supports(model):
        places = (batch.input_ids, batch.position_ids, batch.attention, batch.where)
        return llama.hidden_states(model, *places, dtype, recomputed=recomputed)
    with _autocast(model, dtype), layers_recomputed(model, recomputed):
        states: torch.Tensor = model.base_model(**_inputs(model, batch)).last_hidden_state
    return states.flatten(0, 1)[batch.where]


def _autocast(model: PreTrainedModel, dtype: torch.dtype) -> torch.autocast:
    return torch.autocast(model.device.type, torch.bfloat16, enabled=dtype == torch.bfloat16)


def _inputs(model: PreTrainedModel, batch: MicroBatch) -> dict[str, Any]:
    attention = batch.attention
    if attention is not None and model.config._attn_implementation == "eager":
        lowest = torch.finfo(model.dtype).min
        attention = torch.zeros_like(attention, dtype=model.dtype).masked_fill(~attention, lowest)
    return {
        "input_ids": batch.input_ids,
        "position_ids": batch.position_ids,
        "attention_mask": attention,
        "use_cache": False,
    }


def _score_logits(
    logits: torch.Tensor,
    targets: torch.Tensor,
    temperatures: torch.Tensor,
    restriction: Restriction | None,
    entropy_gradient: bool,
) -> Triple:
    scaled = logits.float() / temperatures[:, None]
    if restriction is None:
        return _pick(scaled, targets, entropy_gradient)
    narrow = scaled[restriction.which].gather(1, restriction.ids).masked_fill(~restriction.valid, -torch.inf)
    picked = _pick(narrow, restriction.targets, entropy_gradient)
    if len(restriction.which) == len(targets):
        return picked
    free = torch.ones(len(targets), dtype=torch.bool, device=targets.device)
    free[restriction.which] = False
    order = torch.cat([restriction.which, free.nonzero()[:, 0]]).argsort()
    rest = _pick(scaled[free], targets[free], entropy_gradient)
    logprobs, entropy, hits = (torch.cat(pair)[order] for pair in zip(picked, rest, strict=True))
    return logprobs, entropy, hits


def _pick(logits: torch.Tensor, targets: torch.Tensor, entropy_gradient: bool) -> Triple:
    logprobs = logits.log_softmax(-1)
    chosen = logprobs.gather(1, targets[:, None])[:, 0]
    spread = entropies(logprobs if entropy_gradient else logprobs.detach())
    return chosen, spread, chosen.detach() >= logprobs.detach().amax(-1)
