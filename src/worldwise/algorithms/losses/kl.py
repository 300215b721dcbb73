"""Estimators of KL(pi || reference) from sampled tokens (Schulman, "Approximating KL divergence", 2020).

With d = log pi_ref - log pi of the sampled token: k1 = -d, k2 = d^2 / 2, k3 = exp(d) - 1 - d. k1 and k3 are
unbiased values. As a loss their gradients differ: that of k1 is zero in expectation, that of k2 is the
gradient of KL(pi || reference), that of k3 descends the opposite KL (arXiv:2512.21852). `k3_plus` has the
value of k3 and the gradient of k2. GRPO (arXiv:2402.03300, Eq. 4) uses k3.

`k3_ratio` is k3 times the differentiable ratio pi / pi_old of the token (DeepSeek-V3.2, arXiv:2512.02556,
section 3.1, Eq. 7): value and gradient are unbiased for KL(pi || reference) also where the tokens were drawn
from pi_old. Its gradient is -d * (pi / pi_old) * grad log pi, since the two terms exp(d) - 1 cancel.

Per token of weight 1, slope in log pi (r = pi / pi_old; what holds outside the limits is in `kl_tokens`):

    k1  1      abs  -sign(d)      k2, k3_plus  -d      k3  1 - exp(d)      k3_ratio  -d r
"""

from __future__ import annotations

import torch

from worldwise.algorithms.losses.choices import KlEstimator
from worldwise.algorithms.losses.policy import LOG_RATIO_LIMIT

KL_LIMIT = 10.0
"""k3 is held within +-10 nats a token, as in verl and the public GiGPO release."""


def kl_tokens(
    logprobs: torch.Tensor,
    reference_logprobs: torch.Tensor,
    estimator: KlEstimator,
    old_logprobs: torch.Tensor | None = None,
) -> torch.Tensor:
    """[N] nats per token, differentiable in `logprobs`.

    The value of k3 is held at `KL_LIMIT` nats (reached at d = 2.61 and d = -11). There k3 has no gradient any
    more, as in verl. `k3_ratio` keeps one, -d r with d held within +-`KL_LIMIT`: if only its k3 were held, what
    remained would be the ratio's gradient, 10 r, which pushes tokens that the reference finds far more probable
    the wrong way. `k3_plus` has the held value of k3 and the unbounded gradient of k2.

    Args:
        logprobs: float [N], nats, of the sampled tokens under pi.
        reference_logprobs: float [N], nats.
        estimator: one of the above.
        old_logprobs: float [N], nats, under the policy that the tokens were drawn from; no gradient goes through
            it. Only `k3_ratio` reads it.

    Raises:
        ValueError: unknown estimator, or `k3_ratio` without `old_logprobs`.
    """
    difference = reference_logprobs - logprobs
    if estimator == "k1":
        return -difference
    if estimator == "abs":
        return difference.abs()
    if estimator == "k2":
        return 0.5 * difference.square()
    if estimator == "k3":
        return _held_k3(difference)
    if estimator == "k3_plus":
        slope = 0.5 * difference.square()
        return slope - slope.detach() + _held_k3(difference).detach()
    if estimator == "k3_ratio":
        if old_logprobs is None:
            raise ValueError(
                "old_logprobs is missing: kl_estimator 'k3_ratio' multiplies by exp(logprobs - old_logprobs); "
                "give the log-probabilities the tokens were drawn with, or choose k3"
            )
        ratio = (logprobs - old_logprobs.detach()).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp()
        slope = -difference.detach().clamp(-KL_LIMIT, KL_LIMIT) * ratio
        return slope - slope.detach() + (_held_k3(difference) * ratio).detach()
    raise ValueError(f"kl_estimator is {estimator!r}: choose k1, k2, k3, k3_plus, k3_ratio or abs")


def _held_k3(difference: torch.Tensor) -> torch.Tensor:
    limited = difference.clamp(-20.0, 20.0)
    return (limited.exp() - 1.0 - limited).clamp(-KL_LIMIT, KL_LIMIT)
