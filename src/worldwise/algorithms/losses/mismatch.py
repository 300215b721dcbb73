"""Importance correction where the sampler's probabilities are not the learner's, though the weights are the same.

Another precision, other kernels or a truncated distribution (top-p) make the sampler a slightly different policy.
With rho = pi_learner_old / pi_sampler of a token that the sampler drew, the policy loss of the token is
multiplied by a constant:

    truncated   min(rho, cap)                     TIS: Yao et al., "Your efficient RL framework secretly brings you
                                                  off-policy RL training", 2025
    masked      rho if 1/cap <= rho <= cap, or 0  IcePop: Ring-1T, arXiv:2510.18855, section on IcePop (there
                                                  0.5 <= rho <= 5); MIS: Liu et al., "When speed kills
                                                  stability", 2025

The ratio of the clipped surrogate stays pi / pi_learner_old, so the clip range bounds the update and not the mismatch.

On the level of sequences rho is the product over the sequence's response tokens, not length-normalised: that is
the importance weight of the sequence (Liu et al.), and its spread grows with the length. For sequences of many
hundred tokens raise `cap`, or stay with tokens (biased, but with little variance).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from worldwise.algorithms.losses.choices import Mismatch
from worldwise.algorithms.losses.policy import LOG_RATIO_LIMIT, unit_sums


@dataclass(frozen=True, slots=True)
class MismatchWeights:
    """Per token (all tensors [N], constants).

    Attributes:
        weights: float, what the token's policy loss is multiplied by.
        changed: bool, the weight was truncated or masked.
    """

    weights: torch.Tensor
    changed: torch.Tensor

    @property
    def share(self) -> float:
        """Share of the tokens whose weight was truncated or masked, 0 without tokens."""
        return float(self.changed.double().mean()) if self.changed.numel() else 0.0


def mismatch_weights(
    old_logprobs: torch.Tensor,
    sampler_logprobs: torch.Tensor,
    correction: Mismatch,
    *,
    cap: float = 2.0,
    units: torch.Tensor | None = None,
) -> MismatchWeights:
    """The weights of some tokens; masked tokens still count in the denominators of the aggregation.

    Args:
        old_logprobs: float [N], nats, the learner's own before the first step on these tokens.
        sampler_logprobs: float [N], nats, as the sampler recorded them.
        correction: one of the above; `none` gives ones.
        cap: largest weight, > 1.
        units: int64 [N], 0..U-1, sequence of each token for weights per sequence; None for weights per token. All
            response tokens of a sequence must be present.

    Raises:
        ValueError: unknown correction, or a cap that is not above 1.
    """
    if not cap > 1.0:
        raise ValueError(f"mismatch_cap is {cap}: allowed are numbers > 1; give a larger one (2 is usual)")
    log_ratios = (old_logprobs - sampler_logprobs).detach()
    if correction == "none":
        return MismatchWeights(torch.ones_like(log_ratios), torch.zeros_like(log_ratios, dtype=torch.bool))
    if units is not None:
        log_ratios = unit_sums(log_ratios, units)
    ratios = log_ratios.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp()
    if correction == "truncated":
        return MismatchWeights(ratios.clamp(max=cap), ratios > cap)
    if correction == "masked":
        outside = (ratios > cap) | (ratios < 1.0 / cap)
        return MismatchWeights(ratios.masked_fill(outside, 0.0), outside)
    raise ValueError(f"mismatch is {correction!r}: choose none, truncated or masked")
