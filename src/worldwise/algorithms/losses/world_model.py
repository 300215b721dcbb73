"""Losses of predicted observation tokens, for a world model that is learned beside the policy.

    clipped_mae     (1 - p) 1[p <= rho]      PaW, arXiv:2606.02388; half the absolute error to the one-hot target
    cross_entropy   -log p                   ECHO, arXiv:2605.24517

p is the probability of the observed token after everything before it. The gradient of 1 - p with respect to the token's
logit is -p (1 - p): it vanishes where a token cannot be foreseen, where that of the cross-entropy is largest. Above rho
there is none, so tokens become plausible and are not learned by heart.
"""

from __future__ import annotations

import torch

from worldwise.algorithms.losses.choices import WorldLoss


def world_model_losses(logprobs: torch.Tensor, loss: WorldLoss, rho: float) -> torch.Tensor:
    """[N]: the loss of each token.

    Args:
        logprobs: float [N], nats, of the observed tokens, differentiable.
        loss: one of the two above.
        rho: probability above which a token is left alone, (0, 1]; of `clipped_mae`.

    Raises:
        ValueError: unknown loss.
    """
    if loss == "cross_entropy":
        return -logprobs
    if loss == "clipped_mae":
        probabilities = logprobs.exp()
        # Not a product with a mask alone: what is above rho must not even pass a gradient of 0 * inf.
        return torch.where(probabilities.detach() <= rho, 1.0 - probabilities, torch.zeros_like(probabilities))
    raise ValueError(f"loss is {loss!r}: choose clipped_mae or cross_entropy")
