"""The clipped policy-gradient surrogate (PPO, arXiv:1707.06347, Eq. 7) and its relatives.

All functions take one-dimensional tensors over the response tokens of some rows and return one loss per
token.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

LOG_RATIO_LIMIT = 20.0
"""Log-ratios are held within +-20 nats before exp, as in verl: exp(20) is finite in every float type used."""


@dataclass(frozen=True, slots=True)
class PolicyLoss:
    """Per token (all tensors [N]).

    Attributes:
        losses: differentiable.
        ratios: float, pi / pi_old (of the token, or of its unit), detached.
        clipped: bool, the ratio was outside the clip range on the side where the gradient stops.
        dual_clipped: bool, the loss of a negative advantage was capped by `dual_clip`.
    """

    losses: torch.Tensor
    ratios: torch.Tensor
    clipped: torch.Tensor
    dual_clipped: torch.Tensor


def clipped_surrogate(
    logprobs: torch.Tensor,
    old_logprobs: torch.Tensor,
    advantages: torch.Tensor,
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    dual_clip: float | None = 3.0,
    units: torch.Tensor | None = None,
) -> PolicyLoss:
    """-min(r A, clip(r, 1 - low, 1 + high) A), with r = exp(logprobs - old_logprobs).

    With `clip_high > clip_low` this is DAPO's clip-higher (arXiv:2503.14476, Eq. 10). `dual_clip` c > 1
    bounds the loss by -c A where A < 0 (arXiv:1912.09729, Eq. 5).

    With `units` the ratio is that of the whole unit, length-normalised, with the gradient of each token's own
    log-probability (GSPO-token, arXiv:2507.18071, Eq. 13-15); for equal advantages within a unit
    that equals GSPO (Eq. 5-7).

    Args:
        logprobs: [N], nats, current policy, differentiable.
        old_logprobs: [N], nats, behaviour policy.
        advantages: [N].
        clip_low, clip_high: >= 0.
        dual_clip: > 1, or None for no bound.
        units: int64 [N], 0..U-1, or None for token ratios. All tokens of a unit must be present.
    """
    log_ratios = logprobs - old_logprobs
    if units is not None:
        log_ratios = logprobs - logprobs.detach() + unit_means(log_ratios.detach(), units)
    ratios = log_ratios.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp()
    plain = -advantages * ratios
    bounded = -advantages * ratios.clamp(1.0 - clip_low, 1.0 + clip_high)
    losses = torch.maximum(plain, bounded)
    clipped = bounded > plain
    dual = torch.zeros_like(clipped)
    if dual_clip is not None:
        ceiling = -advantages * dual_clip
        dual = (advantages < 0) & (ceiling < losses)
        losses = torch.where(advantages < 0, torch.minimum(losses, ceiling), losses)
    return PolicyLoss(losses, ratios.detach(), clipped.detach(), dual.detach())


def unit_means(values: torch.Tensor, units: torch.Tensor) -> torch.Tensor:
    """[N]: the mean of `values` over each token's unit."""
    return unit_sums(values, units) / unit_sums(torch.ones_like(values), units)


def unit_sums(values: torch.Tensor, units: torch.Tensor) -> torch.Tensor:
    """[N]: the sum of `values` over each token's unit; `units` int64 [N], 0..U-1."""
    count = int(units.max()) + 1 if units.numel() else 0
    return values.new_zeros(count).index_add_(0, units, values)[units]
