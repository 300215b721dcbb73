"""Entropy of the next-token distribution."""

from __future__ import annotations

import torch


def entropies(logits: torch.Tensor) -> torch.Tensor:
    """[N] nats, of softmax(logits [N, V]); -inf logits (forbidden tokens) count as probability 0."""
    logprobs = logits.log_softmax(-1)
    return -(logprobs.exp() * logprobs.masked_fill(logprobs == -torch.inf, 0.0)).sum(-1)
