"""Weights that correct for a sampler with other probabilities than the learner's, by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from worldwise.algorithms.losses.mismatch import mismatch_weights

# rho = 0.5 / 0.4 = 1.25, 0.5 / 0.2 = 2.5, 0.1 / 0.3 = 1/3
OLD = torch.tensor([0.5, 0.5, 0.1], dtype=torch.float64).log()
SAMPLER = torch.tensor([0.4, 0.2, 0.3], dtype=torch.float64).log()


def test_truncated_holds_large_weights_and_keeps_small_ones() -> None:
    result = mismatch_weights(OLD, SAMPLER, "truncated", cap=2.0)
    np.testing.assert_allclose(result.weights, [1.25, 2.0, 1 / 3], rtol=1e-12)
    assert result.changed.tolist() == [False, True, False]
    assert result.share == pytest.approx(1 / 3)


def test_masked_drops_both_sides() -> None:
    result = mismatch_weights(OLD, SAMPLER, "masked", cap=2.0)  # 1/3 < 1/2
    np.testing.assert_allclose(result.weights, [1.25, 0.0, 0.0], rtol=1e-12)
    assert result.changed.tolist() == [False, True, True]
    assert result.share == pytest.approx(2 / 3)
    np.testing.assert_allclose(mismatch_weights(OLD, SAMPLER, "masked", cap=3.5).weights, [1.25, 2.5, 1 / 3])


def test_sequences_have_the_product_of_their_tokens() -> None:
    """Sequence 1 has tokens 0 and 2: 1.25 / 3 = 0.41667; sequence 0 has token 1: 2.5."""
    units = torch.tensor([1, 0, 1])
    truncated = mismatch_weights(OLD, SAMPLER, "truncated", cap=2.0, units=units)
    np.testing.assert_allclose(truncated.weights, [1.25 / 3, 2.0, 1.25 / 3], rtol=1e-12)
    assert truncated.changed.tolist() == [False, True, False]
    masked = mismatch_weights(OLD, SAMPLER, "masked", cap=2.45, units=units)  # 1 / 2.45 = 0.40816
    np.testing.assert_allclose(masked.weights, [1.25 / 3, 0.0, 1.25 / 3], rtol=1e-12)
    assert mismatch_weights(OLD, SAMPLER, "masked", cap=2.0, units=units).weights.tolist() == [0.0, 0.0, 0.0]


def test_the_weight_at_the_cap_itself_stays() -> None:
    log_ratios = torch.tensor([2.0, 0.5], dtype=torch.float64).log()
    for correction in ("truncated", "masked"):
        result = mismatch_weights(log_ratios, torch.zeros_like(log_ratios), correction, cap=2.0)
        assert result.changed.tolist() == [False, False]


@pytest.mark.parametrize("correction", ["none", "truncated", "masked"])
def test_equal_log_probabilities_have_weights_of_exactly_one(correction: str) -> None:
    own = torch.tensor([-0.1, -3.7, -11.3])
    for units in (None, torch.tensor([0, 0, 1])):
        result = mismatch_weights(own, own.clone(), correction, units=units)  # type: ignore[arg-type]
        assert result.weights.tolist() == [1.0, 1.0, 1.0]
        assert result.share == 0.0


def test_weights_are_constants_and_extremes_stay_finite() -> None:
    own = torch.tensor([500.0, -500.0], requires_grad=True)
    for correction, expected in (("truncated", [2.0, 0.0]), ("masked", [0.0, 0.0])):
        result = mismatch_weights(own, torch.zeros(2), correction)  # type: ignore[arg-type]
        assert not result.weights.requires_grad
        np.testing.assert_allclose(result.weights, expected, atol=1e-8)
    assert mismatch_weights(torch.zeros(0), torch.zeros(0), "masked").share == 0.0


def test_wrong_arguments_are_refused_with_what_is_allowed() -> None:
    with pytest.raises(ValueError, match=r"mismatch_cap is 1.0: allowed are numbers > 1"):
        mismatch_weights(OLD, SAMPLER, "truncated", cap=1.0)
    with pytest.raises(ValueError, match="mismatch is 'clipped': choose none, truncated or masked"):
        mismatch_weights(OLD, SAMPLER, "clipped")  # type: ignore[arg-type]
