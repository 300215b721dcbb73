"""The critic's clipped squared error, as PPO implementations use it (after arXiv:1707.06347)."""

from __future__ import annotations

import torch


def value_losses(
    values: torch.Tensor, old_values: torch.Tensor, returns: torch.Tensor, clip: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """The larger squared error: of the value, or of the value held within `clip` of the old one.

    Args:
        values: [N], differentiable.
        old_values: [N], values at the time of collection.
        returns: [N], targets.
        clip: largest change that pays, > 0.

    Returns:
        Losses [N], and bool [N] where the clipped error was the larger.
    """
    held = torch.minimum(torch.maximum(values, old_values - clip), old_values + clip)
    plain, bounded = (values - returns).square(), (held - returns).square()
    return torch.maximum(plain, bounded), (bounded > plain).detach()
