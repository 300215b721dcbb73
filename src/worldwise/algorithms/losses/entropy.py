"""Entropy of the next-token distribution."""

from __future__ import annotations

import torch


def entropies(logprobs: torch.Tensor) -> torch.Tensor:
    """[N] nats: -sum p log p of normalised log-probabilities [N, V]; -inf (a forbidden token) counts as p = 0."""
    return -(logprobs.exp() * logprobs.clamp_min(torch.finfo(logprobs.dtype).min)).sum(-1)
