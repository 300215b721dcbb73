"""Generalised advantage estimation over tokens (arXiv:1506.02438, Eq. 16), for PPO with a critic."""

from __future__ import annotations

import torch


def gae(
    rewards: torch.Tensor, values: torch.Tensor, mask: torch.Tensor, *, discount: float = 1.0, trace: float = 1.0
) -> tuple[torch.Tensor, torch.Tensor]:
    """Advantages and returns of trainable tokens.

    The recursion runs over trainable tokens only: a token between them (an observation, padding) neither
    discounts nor stops what lies behind it, and its value is never read. A reward belongs to
    the last trainable token before it.

    Args:
        rewards: [B, T], reward of each token; must be 0 where `mask` is 0.
        values: [B, T], the critic's values.
        mask: [B, T], 1 on trainable tokens.
        discount: gamma, 0..1, per trainable token.
        trace: lambda, 0..1.

    Returns:
        Advantages [B, T] and returns (advantages + values) [B, T], 0 where `mask` is 0.

    Raises:
        ValueError: a reward lies outside the mask.
    """
    kept = mask.bool()
    if bool((rewards[~kept] != 0).any()):
        raise ValueError("a reward lies on a token outside the mask: put it on the last trainable token before it")
    following = torch.zeros_like(values[:, 0])
    trail = torch.zeros_like(following)
    advantages = torch.zeros_like(values)
    for t in range(values.shape[1] - 1, -1, -1):
        delta = rewards[:, t] + discount * following - values[:, t]
        step = delta + discount * trace * trail
        following = torch.where(kept[:, t], values[:, t], following)
        trail = torch.where(kept[:, t], step, trail)
        advantages[:, t] = torch.where(kept[:, t], step, torch.zeros_like(step))
    return advantages, torch.where(kept, advantages + values, torch.zeros_like(values))


def whiten(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """`values` shifted and scaled to mean 0 and variance 1 (unbiased) over the mask; 0 elsewhere."""
    kept = mask.bool()
    inside = values[kept]
    variance = inside.var() if inside.numel() > 1 else torch.zeros_like(inside.sum())
    return torch.where(kept, (values - inside.mean()) * torch.rsqrt(variance + 1e-8), torch.zeros_like(values))
