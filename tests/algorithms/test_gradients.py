"""The gradient of every loss against its formula written out by hand, in float64."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch

from worldwise.algorithms.losses.aggregation import aggregate, token_weights
from worldwise.algorithms.losses.choices import KlEstimator
from worldwise.algorithms.losses.entropy import entropies
from worldwise.algorithms.losses.kl import kl_tokens
from worldwise.algorithms.losses.mismatch import mismatch_weights
from worldwise.algorithms.losses.policy import clipped_surrogate
from worldwise.algorithms.losses.value import value_losses


def _leaf(values: list[float]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


def _fixed(values: list[float]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def _gradient(loss: torch.Tensor, leaf: torch.Tensor) -> torch.Tensor:
    (result,) = torch.autograd.grad(loss, leaf)
    return result


RATIOS = [0.1, 0.7, 0.79, 0.81, 1.0, 1.19, 1.27, 1.29, 2.9, 3.1, 20.0]
"""On both sides of 1 - 0.2, 1 + 0.28 and of the dual clip at 3."""


@pytest.mark.parametrize("dual", [None, 3.0])
@pytest.mark.parametrize("advantage", [1.7, -0.6])
def test_clipped_surrogate(advantage: float, dual: float | None) -> None:
    """-A r where the ratio may still move, 0 where it may not.

    A > 0: stopped above 1 + high only. A < 0: stopped below 1 - low, and with dual clip c above c.
    """

    def slope(r: float) -> float:
        stopped = r > 1.28 if advantage > 0 else r < 0.8 or (dual is not None and r > dual)
        return 0.0 if stopped else -advantage * r

    old = _fixed([-0.3] * len(RATIOS))
    logprobs = _leaf([-0.3 + math.log(r) for r in RATIOS])
    advantages = torch.full_like(old, advantage)
    loss = clipped_surrogate(logprobs, old, advantages, clip_low=0.2, clip_high=0.28, dual_clip=dual)
    gradient = _gradient(loss.losses.sum(), logprobs)
    np.testing.assert_allclose(gradient, [slope(r) for r in RATIOS], rtol=1e-12)
    stopped = (loss.clipped | loss.dual_clipped).tolist()
    assert stopped == [slope(r) == 0.0 for r in RATIOS]


def test_unit_ratios() -> None:
    """GSPO-token: token t of unit u gets -w_t A_t s_u, with s_u = exp(mean of the unit's log-ratios), 0 if clipped.

    Unit 0 (tokens 0, 2, 3): log-ratios 0.3, -0.1, 0.1, mean 0.1, s = 1.10517: inside 1 +- 0.2, though the ratio
    1.34986 of its first token is not. Unit 1 (token 1): 0.4, s = 1.49182, A > 0: clipped. Unit 2 (tokens 4, 5):
    0.5 and 0.3, s = exp(0.4), A < 0: not clipped, below the dual clip.
    """
    log_ratios = [0.3, 0.4, -0.1, 0.1, 0.5, 0.3]
    units = torch.tensor([0, 1, 0, 0, 2, 2])
    advantages = _fixed([1.0, 2.0, 1.0, 1.0, -0.5, -0.5])
    weights = _fixed([0.1, 0.2, 0.1, 0.1, 0.25, 0.25])
    old = _fixed([-1.0, -0.2, -2.0, -0.7, -1.1, -3.0])
    logprobs = _leaf((old + _fixed(log_ratios)).tolist())
    loss = clipped_surrogate(logprobs, old, advantages, units=units)
    s0, s2 = math.exp(0.1), math.exp(0.4)
    expected = [-0.1 * s0, 0.0, -0.1 * s0, -0.1 * s0, 0.125 * s2, 0.125 * s2]
    np.testing.assert_allclose(_gradient(aggregate(loss.losses, weights), logprobs), expected, rtol=1e-12)
    assert loss.clipped.tolist() == [False, True, False, False, False, False]


def test_unit_ratios_are_gspo_where_a_units_advantages_are_equal() -> None:
    """GSPO (Eq. 5-7) differentiates -A exp(1/n sum of log-ratios): every token gets -A s / n."""
    old, logprobs = _fixed([-1.0, -2.0, -0.5]), _leaf([-0.9, -2.1, -0.4])
    s = math.exp((0.1 - 0.1 + 0.1) / 3)
    loss = clipped_surrogate(logprobs, old, _fixed([0.7] * 3), units=torch.zeros(3, dtype=torch.int64))
    weights = torch.from_numpy(token_weights(np.zeros(3, dtype=np.int64), "seq_mean_token_mean"))
    gradient = _gradient(aggregate(loss.losses, weights), logprobs)
    np.testing.assert_allclose(gradient, [-0.7 * s / 3] * 3, rtol=1e-12)


DIFFERENCES = [-15.0, -10.5, -9.5, -1.0, -0.2, 0.0, 0.3, 2.5, 2.7, 9.5, 12.0]
"""d = log ref - log pi: k3 passes 10 at d = -11 and d = 2.61, |d| passes 10 between -10.5 and -9.5."""

SLOPES: dict[KlEstimator, Callable[[float, float], float]] = {
    "k1": lambda d, r: 1.0,
    "abs": lambda d, r: -float(np.sign(d)),
    "k2": lambda d, r: -d,
    "k3_plus": lambda d, r: -d,
    "k3": lambda d, r: 1.0 - math.exp(d) if -11.0 < d < 2.6 else 0.0,
    "k3_ratio": lambda d, r: r * min(max(-d, -10.0), 10.0),
}


@pytest.mark.parametrize("estimator", list(SLOPES))
def test_kl_estimators(estimator: KlEstimator) -> None:
    logprobs = _leaf([-3.0] * len(DIFFERENCES))
    reference = logprobs.detach() + _fixed(DIFFERENCES)
    ratios = [0.5 + 0.2 * i for i in range(len(DIFFERENCES))]
    old = logprobs.detach() - _fixed(ratios).log()
    values = kl_tokens(logprobs, reference, estimator, old)
    expected = [SLOPES[estimator](d, r) for d, r in zip(DIFFERENCES, ratios, strict=True)]
    np.testing.assert_allclose(_gradient(values.sum(), logprobs), expected, rtol=1e-12, atol=1e-12)


def test_k3_ratio_is_the_product_that_autograd_differentiates_where_nothing_is_held() -> None:
    """The paper's expression as it stands, exp(log pi - log old) * (exp(d) - 1 - d), for -10 < d < 2.6."""
    reference, old = _fixed([-1.5, -2.0, -0.4, -6.0]), _fixed([-1.2, -2.5, -0.8, -0.5])
    logprobs = _leaf([-1.0, -3.0, -0.4, -0.3])
    d = reference - logprobs
    written = (logprobs - old).exp() * (d.exp() - 1.0 - d)
    values = kl_tokens(logprobs, reference, "k3_ratio", old)
    torch.testing.assert_close(values, written)
    torch.testing.assert_close(_gradient(values.sum(), logprobs), _gradient(written.sum(), logprobs))


def test_entropy() -> None:
    """dH / d logit_i = -p_i (log p_i + H); forbidden tokens get nothing."""
    logits = torch.tensor([[0.2, -1.0, 3.0, 0.0], [1.0, -math.inf, 0.4, -2.0]], dtype=torch.float64).requires_grad_(
        True
    )
    gradient = _gradient((entropies(logits.log_softmax(-1)) * _fixed([0.3, 0.7])).sum(), logits)
    p = logits.detach().softmax(-1)
    log_p = p.clamp_min(1e-300).log()
    h = -(p * log_p).sum(-1, keepdim=True)
    torch.testing.assert_close(gradient, _fixed([0.3, 0.7])[:, None] * -p * (log_p + h))
    assert float(gradient[1, 1]) == 0.0


def test_value_loss() -> None:
    """2 (v - R) where the plain error is the larger or v is within the clip range, 0 where the held one is larger.

    Old values 1, clip 0.5, so held = v within [0.5, 1.5]:
      v 1.2, R 3: inside, 2 (1.2 - 3) = -3.6          v 2.0, R 1: plain 1 > held 0.25, 2 (2 - 1) = 2
      v 2.0, R 3: plain 1 < held 2.25, 0               v 0.0, R 1: plain 1 > held 0.25, -2
      v 0.0, R -1: plain 1 < held 2.25, 0              v 0.9, R 0.9: 0
    """
    values, returns = _leaf([1.2, 2.0, 2.0, 0.0, 0.0, 0.9]), _fixed([3.0, 1.0, 3.0, 1.0, -1.0, 0.9])
    losses, clipped = value_losses(values, torch.ones_like(returns), returns, 0.5)
    np.testing.assert_allclose(_gradient(losses.sum(), values), [-3.6, 2.0, 0.0, -2.0, 0.0, 0.0], rtol=1e-12)
    assert clipped.tolist() == [False, False, True, False, True, False]


@pytest.mark.parametrize(
    ("aggregation", "expected"),
    [
        ("token_mean", [1 / 5] * 5),
        ("seq_mean_token_mean", [1 / 9, 1 / 3, 1 / 9, 1 / 9, 1 / 3]),
        ("seq_mean_token_sum", [1 / 3] * 5),
        ("constant", [1 / 24] * 5),
    ],
)
def test_aggregation(aggregation: str, expected: list[float]) -> None:
    """Five tokens of three units with 3, 1 and 1 tokens; the constant length is 8. Cut in two it is the same."""
    units = np.array([4, 0, 4, 4, 9])
    weights = torch.from_numpy(token_weights(units, aggregation, 8))  # type: ignore[arg-type]
    losses = _leaf([1.0, -2.0, 0.5, 3.0, 0.1])
    np.testing.assert_allclose(_gradient(aggregate(losses, weights), losses), expected, rtol=1e-12)
    cut = aggregate(losses[:2], weights[:2]) + aggregate(losses[2:], weights[2:])
    np.testing.assert_allclose(_gradient(cut, losses), expected, rtol=1e-12)


def test_the_whole_loss_with_respect_to_the_logits() -> None:
    """Per token g (onehot - p) + c_H p (log p + H), with g = w * slope of the surrogate + c_KL * slope of k3_ratio.

    Slopes of the surrogate: -A r of the first two tokens (ratios exp(0.1) and exp(-0.5), A = 1 and 2), 0 of the
    third (ratio exp(0.5), A = 1). Mismatch: weights min(rho, 2), with rho = exp(0.2), exp(1) and 1.
    """
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(3, 6, generator=generator, dtype=torch.float64).requires_grad_(True)
    reference_table = torch.randn(3, 6, generator=generator, dtype=torch.float64).log_softmax(-1)
    chosen = torch.tensor([[1], [4], [0]])
    table = logits.log_softmax(-1)
    logprobs, reference = table.gather(1, chosen)[:, 0], reference_table.gather(1, chosen)[:, 0]
    old = logprobs.detach() - _fixed([0.1, -0.5, 0.5])
    advantages, weights = _fixed([1.0, 2.0, 1.0]), _fixed([0.5, 0.25, 0.25])
    correction = mismatch_weights(old, old - _fixed([0.2, 1.0, 0.0]), "truncated").weights
    loss = (
        aggregate(clipped_surrogate(logprobs, old, advantages).losses * correction, weights)
        + 0.3 * aggregate(kl_tokens(logprobs, reference, "k3_ratio", old), weights)
        - 0.1 * aggregate(entropies(table), weights)
    )
    r = _fixed([math.exp(0.1), math.exp(-0.5), math.exp(0.5)])
    surrogate = _fixed([math.exp(0.2), 2.0, 1.0]) * _fixed([-math.exp(0.1), -2.0 * math.exp(-0.5), 0.0])
    g = weights * (surrogate - 0.3 * r * (reference - logprobs).detach())
    p = table.detach().exp()
    h = -(p * p.log()).sum(-1, keepdim=True)
    onehot = torch.zeros_like(p).scatter(1, chosen, 1.0)
    expected = g[:, None] * (onehot - p) + 0.1 * weights[:, None] * p * (p.log() + h)
    torch.testing.assert_close(_gradient(loss, logits), expected)
