"""Losses on hand-computed values; their gradients against autograd on formulas written out in float64."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from worldwise.algorithms.losses.aggregation import aggregate, token_weights
from worldwise.algorithms.losses.choices import KlEstimator
from worldwise.algorithms.losses.entropy import entropies
from worldwise.algorithms.losses.kl import kl_tokens
from worldwise.algorithms.losses.policy import clipped_surrogate
from worldwise.algorithms.losses.value import value_losses


def _surrogate_written_out(ratio: float, advantage: float, low: float, high: float, dual: float | None) -> float:
    objective = min(ratio * advantage, min(max(ratio, 1 - low), 1 + high) * advantage)
    if dual is not None and advantage < 0:
        objective = max(objective, dual * advantage)
    return -objective


@pytest.mark.parametrize("dual", [None, 3.0])
def test_surrogate_values_and_slopes(dual: float | None) -> None:
    low, high, step = 0.2, 0.28, 1e-6
    log_ratios = torch.tensor([-1.0, -0.1, 0.0, 0.1, 0.26, 1.0, 1.5], dtype=torch.float64)
    for advantage in (2.0, -0.7, 0.0):
        logprobs = log_ratios.clone().requires_grad_(True)
        old, advantages = torch.zeros_like(log_ratios), torch.full_like(log_ratios, advantage)
        loss = clipped_surrogate(logprobs, old, advantages, clip_low=low, clip_high=high, dual_clip=dual)
        loss.losses.sum().backward()

        def written(x: float, advantage: float = advantage) -> float:
            return _surrogate_written_out(float(np.exp(x)), advantage, low, high, dual)

        values = [written(float(x)) for x in log_ratios]
        slopes = [(written(float(x) + step) - written(float(x) - step)) / (2 * step) for x in log_ratios]
        np.testing.assert_allclose(loss.losses.detach(), values, atol=1e-12)
        assert logprobs.grad is not None
        np.testing.assert_allclose(logprobs.grad, slopes, atol=1e-8)


def test_clipping_is_counted_where_the_gradient_stops() -> None:
    log_ratios = torch.tensor([0.5, -0.5, 0.5, -0.5, 2.0], requires_grad=True)
    advantages = torch.tensor([1.0, 1.0, -1.0, -1.0, -1.0])
    loss = clipped_surrogate(log_ratios, torch.zeros(5), advantages)
    loss.losses.sum().backward()
    assert loss.clipped.tolist() == [True, False, False, True, False]
    assert loss.dual_clipped.tolist() == [False, False, False, False, True]
    assert log_ratios.grad is not None
    stopped = (loss.clipped | loss.dual_clipped).tolist()
    assert [gradient == 0.0 for gradient in log_ratios.grad.tolist()] == stopped


def test_sequence_ratio_is_the_length_normalised_one_with_token_gradients() -> None:
    logprobs = torch.tensor([-1.0, -2.0, -0.5], dtype=torch.float64, requires_grad=True)
    old = torch.tensor([-1.2, -1.9, -0.4], dtype=torch.float64)
    units = torch.tensor([0, 0, 1])
    loss = clipped_surrogate(logprobs, old, torch.ones(3, dtype=torch.float64), clip_low=0.9, clip_high=9, units=units)
    first, second = np.exp((0.2 - 0.1) / 2), np.exp(-0.1)
    np.testing.assert_allclose(loss.ratios, [first, first, second], rtol=1e-12)
    # GSPO (Eq. 5) written out: mean over the unit's tokens of the ratio, differentiated through every token.
    aggregate(loss.losses, torch.tensor([0.5, 0.5, 1.0], dtype=torch.float64)).backward()
    free = logprobs.detach().clone().requires_grad_(True)
    (-((free - old)[:2].mean().exp()) - (free - old)[2].exp()).backward()
    torch.testing.assert_close(logprobs.grad, free.grad)


def test_extreme_log_ratios_stay_finite() -> None:
    logprobs = torch.tensor([500.0, -500.0], requires_grad=True)
    loss = clipped_surrogate(logprobs, torch.zeros(2), torch.tensor([-1.0, 1.0]), dual_clip=None)
    loss.losses.sum().backward()
    assert logprobs.grad is not None
    assert torch.isfinite(loss.losses).all()
    assert torch.isfinite(logprobs.grad).all()


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_kl_values_by_hand(estimator: KlEstimator) -> None:
    formulas: dict[str, Callable[[float], float]] = {
        "k1": lambda d: -d,
        "k2": lambda d: d * d / 2,
        "k3": lambda d: float(np.exp(d) - 1 - d),
    }
    logprobs, reference = torch.tensor([-1.0, -3.0]), torch.tensor([-1.5, -2.0])
    expected = [formulas[estimator](-0.5), formulas[estimator](1.0)]
    np.testing.assert_allclose(kl_tokens(logprobs, reference, estimator), expected, rtol=1e-6)


def test_expected_gradients_of_the_kl_estimators() -> None:
    """In expectation k2 and k3_plus follow KL(pi || ref), k3 follows KL(ref || pi), and k1 nothing at all."""
    logits = torch.tensor([0.3, -1.0, 0.9, 0.1], dtype=torch.float64, requires_grad=True)
    reference = torch.tensor([1.0, 0.0, -0.5, 0.2], dtype=torch.float64).log_softmax(0)

    def gradient(loss: torch.Tensor) -> torch.Tensor:
        (result,) = torch.autograd.grad(loss, logits)
        return result

    def expected(estimator: KlEstimator) -> torch.Tensor:
        logprobs = logits.log_softmax(0)
        return gradient((logprobs.detach().exp() * kl_tokens(logprobs, reference, estimator)).sum())

    logprobs = logits.log_softmax(0)
    reverse = gradient((logprobs.exp() * (logprobs - reference)).sum())
    forward = gradient((reference.exp() * (reference - logits.log_softmax(0))).sum())
    torch.testing.assert_close(expected("k1"), torch.zeros(4, dtype=torch.float64), atol=1e-12, rtol=0)
    torch.testing.assert_close(expected("k2"), reverse)
    torch.testing.assert_close(expected("k3_plus"), reverse)
    torch.testing.assert_close(expected("k3"), forward)


def test_k3_plus_has_the_value_of_k3() -> None:
    logprobs, reference = torch.tensor([-1.0, -3.0]), torch.tensor([-1.5, -2.0])
    torch.testing.assert_close(kl_tokens(logprobs, reference, "k3_plus"), kl_tokens(logprobs, reference, "k3"))


def test_k3_ratio_by_hand() -> None:
    """pi = 0.5, 0.2; ref = 0.25, 0.4; old = 0.4, 0.4. ratio 1.25, 0.5; k3 = 0.5 - 1 + ln 2, 2 - 1 - ln 2."""
    logprobs, reference = torch.tensor([0.5, 0.2]).log(), torch.tensor([0.25, 0.4]).log()
    values = kl_tokens(logprobs, reference, "k3_ratio", torch.tensor([0.4, 0.4]).log())
    # 1.25 * 0.193147 = 0.241434; 0.5 * 0.306853 = 0.153426
    np.testing.assert_allclose(values, [0.241434, 0.153426], atol=1e-6)


def test_k3_ratio_has_the_value_of_k3_on_policy_and_wants_the_old_log_probabilities() -> None:
    logprobs, reference = torch.tensor([-1.0, -3.0, -9.0]), torch.tensor([-1.5, -2.0, -1.0])
    values = kl_tokens(logprobs, reference, "k3_ratio", logprobs)
    assert (values == kl_tokens(logprobs, reference, "k3")).all()
    assert float(values[2]) == 10.0
    with pytest.raises(ValueError, match="old_logprobs is missing: kl_estimator 'k3_ratio'"):
        kl_tokens(logprobs, reference, "k3_ratio")


def test_k3_ratio_is_unbiased_in_value_and_gradient_off_policy_too() -> None:
    """Summed over all tokens with the probabilities they were drawn with, it is KL(pi || ref) and its gradient."""
    logits = torch.tensor([0.3, -1.0, 0.9, 0.1], dtype=torch.float64, requires_grad=True)
    reference = torch.tensor([1.0, 0.0, -0.5, 0.2], dtype=torch.float64).log_softmax(0)
    old = torch.tensor([0.9, -0.2, 0.0, -0.7], dtype=torch.float64).log_softmax(0)
    expected = (old.exp() * kl_tokens(logits.log_softmax(0), reference, "k3_ratio", old)).sum()
    logprobs = logits.log_softmax(0)
    exact = (logprobs.exp() * (logprobs - reference)).sum()
    torch.testing.assert_close(expected, exact)
    torch.testing.assert_close(torch.autograd.grad(expected, logits), torch.autograd.grad(exact, logits))


def test_aggregations_by_hand() -> None:
    units = np.array([7, 7, 7, 2])
    losses = torch.tensor([1.0, 2.0, 6.0, 10.0], dtype=torch.float64)

    def total(*arguments: object) -> float:
        return float(aggregate(losses, torch.from_numpy(token_weights(units, *arguments))))  # type: ignore[arg-type]

    assert total("token_mean") == pytest.approx(19 / 4)
    assert total("seq_mean_token_mean") == pytest.approx((3 + 10) / 2)
    assert total("seq_mean_token_sum") == pytest.approx((9 + 10) / 2)
    assert total("constant", 5) == pytest.approx((9 + 10) / 2 / 5)
    with pytest.raises(ValueError, match="constant_length is None"):
        total("constant")


def test_entropy_ignores_forbidden_tokens_and_has_a_gradient() -> None:
    logits = torch.tensor([[0.0, 0.0, -torch.inf], [1.0, 2.0, 3.0]], dtype=torch.float64, requires_grad=True)
    values = entropies(logits.log_softmax(-1))
    p = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64).softmax(0)
    np.testing.assert_allclose(values.detach(), [np.log(2), float(-(p * p.log()).sum())], rtol=1e-12)
    values.sum().backward()
    assert logits.grad is not None
    # dH/dlogit_i = -p_i (log p_i + H); the uniform pair sits at the top of the entropy.
    torch.testing.assert_close(logits.grad[0], torch.zeros(3, dtype=torch.float64))
    torch.testing.assert_close(logits.grad[1], -p * (p.log() + values[1].detach()))


def test_value_loss_takes_the_larger_error() -> None:
    losses, clipped = value_losses(torch.tensor([2.0, 1.1]), torch.tensor([1.0, 1.0]), torch.tensor([2.0, 2.0]), 0.5)
    torch.testing.assert_close(losses, torch.tensor([0.25, 0.81]))
    assert clipped.tolist() == [True, False]
