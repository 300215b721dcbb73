"""From logits to a token: temperature, nucleus, restriction, and draws that no batch mate can change.

A response's random numbers come from its own stream (Philox keyed by the request's seed), one number a position,
and a token is read off the inverse of the cumulative distribution. Log-probabilities and entropies are those of
the distribution the token was drawn from, after all processing, because only that is the behaviour policy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from worldwise.generation.protocol import Sampling

Choices = Sequence[Sequence[int] | None]


class Draw(NamedTuple):
    """One token a row.

    Attributes:
        tokens: int64 [B].
        logprobs: float32 [B], nats.
        entropies: float32 [B], nats.
    """

    tokens: torch.Tensor
    logprobs: torch.Tensor
    entropies: torch.Tensor


def uniforms(seed: int, count: int) -> NDArray[np.float64]:
    """The response's own numbers in [0, 1), float64 [count]; number t decides token t."""
    return np.random.Generator(np.random.Philox(key=seed)).random(count)


def processed_logprobs(logits: torch.Tensor, sampling: Sampling, choices: Choices | None = None) -> torch.Tensor:
    """Log-probabilities of the distribution that tokens are drawn from.

    Order: restriction, temperature, nucleus (the fewest most probable tokens that reach top_p together),
    min-p (relative to the most probable token), then one normalisation.

    Args:
        logits: float32 [B, V].
        sampling: with temperature 0 the distribution is a point on the first most probable token.
        choices: per row the token ids that are allowed there, None for all.

    Returns:
        float32 [B, V], nats; -inf where a token cannot come.
    """
    if choices is not None and any(ids is not None for ids in choices):
        logits = logits + _restriction(logits, choices)
    if sampling.temperature == 0.0:
        point = torch.full_like(logits, -torch.inf)
        return point.scatter_(-1, logits.argmax(-1, keepdim=True), 0.0)
    logprobs = torch.log_softmax(logits / sampling.temperature, dim=-1)
    if sampling.top_p == 1.0 and sampling.min_p == 0.0:
        return logprobs
    if sampling.top_p < 1.0:
        ordered, order = logprobs.sort(dim=-1, descending=True, stable=True)
        probs = ordered.exp()
        # A token stays while those before it have not reached top_p: the one that crosses stays too.
        before = probs.cumsum(-1, dtype=torch.float64) - probs
        outside = (before >= sampling.top_p).scatter(-1, order, before >= sampling.top_p)
        logprobs = logprobs.masked_fill(outside, -torch.inf)
    if sampling.min_p > 0.0:
        floor = logprobs.amax(-1, keepdim=True) + float(np.log(sampling.min_p))
        logprobs = logprobs.masked_fill(logprobs < floor, -torch.inf)
    return torch.log_softmax(logprobs, dim=-1)


def draw(logits: torch.Tensor, numbers: torch.Tensor, sampling: Sampling, choices: Choices | None = None) -> Draw:
    """One token a row from the processed distribution.

    Args:
        logits: float32 [B, V].
        numbers: float64 [B] in [0, 1), one a row.
        sampling: the processing.
        choices: as in `processed_logprobs`.

    Raises:
        FloatingPointError: a row without a finite distribution (the weights hold NaN or infinity).
    """
    logprobs = processed_logprobs(logits, sampling, choices)
    probs = logprobs.exp()
    cumulative = probs.cumsum(-1, dtype=torch.float64)
    total = cumulative[:, -1:]
    if not bool(torch.isfinite(total).all()):
        raise FloatingPointError("the model's logits hold NaN or infinity: its weights are broken")
    # Below the total even where rounding would reach it, so that a token of probability 0 never comes.
    target = torch.minimum(numbers[:, None] * total, torch.nextafter(total, torch.zeros_like(total)))
    tokens = torch.searchsorted(cumulative, target, right=True)
    entropies = -(probs * logprobs.clamp(min=-1e30)).sum(-1)
    return Draw(tokens[:, 0], logprobs.gather(-1, tokens)[:, 0], entropies.clamp(min=0.0))


def _restriction(logits: torch.Tensor, choices: Choices) -> torch.Tensor:
    """0 where a token is allowed, -inf elsewhere, as `logits` [B, V]."""
    mask = torch.zeros_like(logits)
    for row, ids in enumerate(choices):
        if ids is not None:
            mask[row].fill_(-torch.inf)
            mask[row, torch.as_tensor(list(ids), device=logits.device)] = 0.0
    return mask
