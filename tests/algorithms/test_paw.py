"""PaW's choices and weights on hand-computed values, and the gradient of its loss against the formula."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from worldwise.algorithms.losses.world_model import world_model_losses
from worldwise.algorithms.paw import group_weights, most_uncertain, moving_weight, shuffled_targets, uncertainty


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_uncertainty_is_a_mean_over_the_action() -> None:
    entropies, logprobs = [9.0, 1.0, 2.0, 9.0], [-7.0, -0.5, -1.5, -7.0]
    assert uncertainty(entropies, logprobs, (1, 3)) == 1.5
    assert uncertainty(entropies, logprobs, (1, 3), "surprise") == 1.0
    assert uncertainty(entropies, logprobs, None) == 5.25
    assert uncertainty(entropies, logprobs, (0, 0), "surprise") == 4.0, "a response without an action"
    assert uncertainty([], [], (0, 0)) == 0.0


@pytest.mark.parametrize(("alpha", "count"), [(0.0, 0), (0.01, 1), (0.5, 2), (0.51, 3), (0.75, 3), (0.76, 4), (1.0, 4)])
def test_the_most_uncertain_are_chosen(alpha: float, count: int) -> None:
    chosen = most_uncertain([0.1, 0.9, 0.5, 0.7], alpha, rng())
    assert np.flatnonzero(chosen).tolist() == sorted([1, 3, 2, 0][:count])


def test_a_share_that_floating_point_misses_is_not_rounded_up() -> None:
    assert 0.07 * 100 > 7
    assert most_uncertain(np.arange(100.0), 0.07, rng()).sum() == 7


def test_ties_are_broken_by_the_seed() -> None:
    draws = {tuple(most_uncertain([1.0, 1.0, 1.0, 5.0], 0.5, rng(seed)).tolist()) for seed in range(50)}
    assert draws == {(True, False, False, True), (False, True, False, True), (False, False, True, True)}
    assert (most_uncertain(np.zeros(9), 0.5, rng(3)) == most_uncertain(np.zeros(9), 0.5, rng(3))).all()


def test_weights_of_groups() -> None:
    # 1 - (1 + 0 + 0 + 0) / 4 / 1; all failed; all solved; returns above the largest or below 0 are held.
    found = group_weights([1, 0, 0, 0, 0, 0, 1, 1, 2.5, -0.5], list("aaaabbccde"), 1.0)
    assert found == {"a": 0.75, "b": 1.0, "c": 0.0, "d": 0.0, "e": 1.0}
    assert group_weights([10.0, 0.0], ["a", "a"], 10.0) == {"a": 0.5}
    with pytest.raises(ValueError, match="largest is 0"):
        group_weights([1.0], ["a"], 0.0)


def test_the_moving_weight() -> None:
    mean, weight = moving_weight(None, [1.0, 0.0], 1.0, 0.9)
    assert (mean, weight) == (0.5, 0.5)
    mean, weight = moving_weight(mean, [1.0, 1.0], 1.0, 0.9)
    # 0.9 x 0.5 + 0.1 x 1
    assert (mean, weight) == (pytest.approx(0.55), pytest.approx(0.45))


def test_shuffled_targets_are_of_another_transition() -> None:
    targets = [np.asarray([own] * length, dtype=np.int32) for own, length in ((1, 2), (2, 5), (3, 3), (4, 1))]
    for seed in range(20):
        shuffled = shuffled_targets(targets, rng(seed))
        assert [len(own) for own in shuffled] == [2, 5, 3, 1]
        assert all(set(new.tolist()) != set(old.tolist()) for new, old in zip(shuffled, targets, strict=True))
        assert sorted(int(own[0]) for own in shuffled) == [1, 2, 3, 4]
    assert [own.tolist() for own in shuffled_targets(targets[:1], rng())] == [[1, 1]]
    assert shuffled_targets([], rng()) == []


def test_the_loss_by_hand() -> None:
    logprobs = torch.tensor([math.log(p) for p in (0.05, 0.2, 0.3, 0.9)], dtype=torch.float64)
    # ln 0.2 comes back as 0.2 exactly, or a rounding above it: both sides are held apart from the edge.
    found = world_model_losses(logprobs[[0, 2, 3]], "clipped_mae", 0.2)
    assert found.tolist() == pytest.approx([0.95, 0.0, 0.0])
    assert world_model_losses(logprobs, "clipped_mae", 1.0).tolist() == pytest.approx([0.95, 0.8, 0.7, 0.1])
    assert world_model_losses(logprobs, "cross_entropy", 0.2).tolist() == pytest.approx((-logprobs).tolist())
    with pytest.raises(ValueError, match="loss is 'mse'"):
        world_model_losses(logprobs, "mse", 0.2)  # type: ignore[arg-type]


@pytest.mark.parametrize("loss", ["clipped_mae", "cross_entropy"])
def test_the_gradient_of_the_logits(loss: str) -> None:
    """-p (1 - p) for the token itself where p <= rho, p q for one of probability q; cross-entropy: -(1 - p) and q."""
    logits = torch.tensor(
        [[2.0, -1.0, 0.5], [0.1, 0.0, 4.0], [-9.0, 0.0, 0.0]], dtype=torch.float64, requires_grad=True
    )
    picked = torch.tensor([0, 1, 0])
    logprobs = logits.log_softmax(-1)[torch.arange(3), picked]
    (gradient,) = torch.autograd.grad(world_model_losses(logprobs, loss, 0.2).sum(), logits)  # type: ignore[arg-type]
    probabilities = logits.detach().softmax(-1)
    for row, token in enumerate(picked.tolist()):
        p = float(probabilities[row, token])
        for other, q in enumerate(probabilities[row].tolist()):
            own = -p * (1 - p) if other == token else p * q
            if loss == "cross_entropy":
                own /= p
            elif p > 0.2:
                own = 0.0
            assert float(gradient[row, other]) == pytest.approx(own, rel=1e-9, abs=1e-15)
    assert float(probabilities[2, 0]) < 1e-4, "what cannot be foreseen pulls hardly"


def test_a_hopeless_token_gives_no_nan() -> None:
    logprobs = torch.tensor([-400.0, -1e-9], dtype=torch.float32, requires_grad=True)
    loss = world_model_losses(logprobs, "clipped_mae", 0.2).sum()
    (gradient,) = torch.autograd.grad(loss, logprobs)
    assert gradient.tolist() == [0.0, 0.0]
    assert float(loss.detach()) == 1.0
