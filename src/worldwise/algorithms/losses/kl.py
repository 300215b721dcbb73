"""Estimators of KL(pi || reference) from sampled tokens (Schulman, "Approximating KL divergence", 2020).

With d = log pi_ref - log pi of the sampled token: k1 = -d, k2 = d^2 / 2, k3 = exp(d) - 1 - d. k1 and k3 are
unbiased values. As a loss their gradients differ: that of k1 is zero in expectation, that of k2 is the
gradient of KL(pi || reference), that of k3 descends the opposite KL (arXiv:2512.21852). `k3_plus` has the
value of k3 and the gradient of k2. GRPO (arXiv:2402.03300, Eq. 4) uses k3.
"""

from __future__ import annotations

import torch

from worldwise.algorithms.losses.choices import KlEstimator

KL_LIMIT = 10.0
"""k3 is held within +-10 nats a token, as in verl and the public GiGPO release."""


def kl_tokens(logprobs: torch.Tensor, reference_logprobs: torch.Tensor, estimator: KlEstimator) -> torch.Tensor:
    """[N] nats per token, differentiable in `logprobs`.

    Raises:
        ValueError: unknown estimator.
    """
    difference = reference_logprobs - logprobs
    if estimator == "k1":
        return -difference
    if estimator == "abs":
        return difference.abs()
    if estimator == "k2":
        return 0.5 * difference.square()
    if estimator in ("k3", "k3_plus"):
        limited = difference.clamp(-20.0, 20.0)
        value = (limited.exp() - 1.0 - limited).clamp(-KL_LIMIT, KL_LIMIT)
        if estimator == "k3":
            return value
        slope = 0.5 * difference.square()
        return slope - slope.detach() + value.detach()
    raise ValueError(f"kl_estimator is {estimator!r}: choose k1, k2, k3, k3_plus or abs")
