"""Corrections for what the samples were really drawn from: the unbiased KL term and the sampler's own probabilities."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from worldwise.episodes.sequences import Role, TrainingSequence
from worldwise.training.errors import LearnerError
from worldwise.training.learner import Learner, LearnerConfig

from .toy import batch, full_logprobs, moved_by, on_policy, plain_config, toy_model, weights_of

CORRECTIONS = [(kind, level) for kind in ("truncated", "masked") for level in ("token", "sequence")]


def _config(**changes: Any) -> LearnerConfig:
    return plain_config(**{"old_logprobs": "learner", **changes})


def _responses(sequence: TrainingSequence) -> Any:
    return np.flatnonzero(sequence.roles == Role.RESPONSE)


def _tokens(sequences: list[TrainingSequence], name: str) -> Any:
    return np.concatenate([getattr(s, name)[_responses(s)] for s in sequences]).astype(np.float64)


def _shifted(sequences: list[TrainingSequence], row: int, token: int, nats: float) -> list[TrainingSequence]:
    """The recorded log-probability of one response token, moved."""
    logprobs = sequences[row].logprobs.copy()
    logprobs[_responses(sequences[row])[token]] += nats
    return [replace(s, logprobs=logprobs) if i == row else s for i, s in enumerate(sequences)]


def test_k3_ratio_has_the_value_of_k3_in_the_first_step_but_another_gradient() -> None:
    results, moves = [], []
    for estimator in ("k3", "k3_ratio"):
        subject = toy_model()
        before = weights_of(subject)
        config = _config(kl_coefficient=0.5, kl_estimator=estimator)
        results.append(Learner(subject, config, 10, reference=toy_model(seed=7)).update(batch()))
        moves.append(weights_of(subject) - before)
    assert results[0]["kl_loss"] == results[1]["kl_loss"] > 0.1
    assert results[0]["kl_reference"] == results[1]["kl_reference"]
    assert np.abs(moves[0] - moves[1]).max() > 1e-3


@pytest.mark.parametrize("old", ["sampler", "learner"])
def test_the_gradient_of_k3_ratio_is_that_of_the_formula_in_float64(old: str) -> None:
    """Slope in log pi: r times -d, with d = log ref - log pi held within 10 nats; r = 1 where old is the learner."""
    dead = [replace(s, advantages=np.zeros_like(s.advantages)) for s in on_policy(toy_model(), batch(), drift=0.4)]
    subject, reference = toy_model(), toy_model(seed=7)
    before = weights_of(subject)
    config = plain_config(old_logprobs=old, kl_coefficient=0.5, kl_estimator="k3_ratio")
    metrics = Learner(subject, config, 10, reference=reference).update(dead)

    exact, anchor = toy_model().double(), copy.deepcopy(reference).double()
    total, value = torch.zeros((), dtype=torch.float64), 0.0
    count = len(_tokens(dead, "logprobs"))
    for sequence in dead:
        at = _responses(sequence)
        chosen = full_logprobs(exact, sequence.token_ids)[at, sequence.token_ids[at]]
        with torch.no_grad():
            d = full_logprobs(anchor, sequence.token_ids)[at, sequence.token_ids[at]] - chosen
            recorded = torch.from_numpy(sequence.logprobs[at]).double()
            r = (chosen - recorded).exp() if old == "sampler" else torch.ones_like(d)
            value += 0.5 * float((r * (d.exp() - 1 - d).clamp(max=10)).sum()) / count
        total = total + 0.5 * (r * (-d).clamp(-10, 10) * chosen).sum() / count
    total.backward()
    gradient = np.concatenate([p.grad.numpy().ravel() for p in exact.parameters() if p.grad is not None])
    np.testing.assert_allclose(weights_of(subject) - before, -0.1 * gradient / (np.abs(gradient) + 1.0), atol=2e-6)
    assert metrics["kl_loss"] == pytest.approx(value, rel=1e-5)


@pytest.mark.parametrize(("kind", "level"), CORRECTIONS)
@pytest.mark.parametrize("updates", [1, 2])
def test_equal_log_probabilities_of_sampler_and_learner_change_nothing(kind: str, level: str, updates: int) -> None:
    rows = on_policy(toy_model(), batch())
    plain = moved_by(_config(updates=updates), rows)
    subject = toy_model()
    before = weights_of(subject)
    config = _config(updates=updates, mismatch=kind, mismatch_level=level)
    metrics = Learner(subject, config, 10).update(rows)
    np.testing.assert_allclose(weights_of(subject) - before, plain, atol=1e-7)
    assert np.abs(plain).max() > 1e-3
    assert metrics["mismatch_weight_mean"] == pytest.approx(1.0, abs=1e-4)
    assert metrics["mismatch_share"] == 0.0
    assert metrics["mismatch_kl"] == pytest.approx(0.0, abs=1e-7)


@pytest.mark.parametrize(("kind", "level"), CORRECTIONS)
def test_weights_are_those_of_the_weights_before_the_first_step(kind: str, level: str) -> None:
    """By hand from the log-probabilities of the untouched model, in both mini-batches, whatever step 1 did."""
    model = toy_model()
    rows = on_policy(model, batch(), drift=0.3)
    own = Learner(model, LearnerConfig(), 1).log_probs(rows)
    ratios, gaps = [], []
    for sequence, values in zip(rows, own, strict=True):
        at = _responses(sequence)
        gap = (values - sequence.logprobs)[at].astype(np.float64)
        ratios.append(np.exp(gap) if level == "token" else np.full(len(at), np.exp(gap.sum())))
        gaps.append(gap)
    rho, gap = np.concatenate(ratios), np.concatenate(gaps)
    cap = 1.5 if level == "token" else 4.0
    changed = (rho > cap) | ((rho < 1 / cap) & (kind == "masked"))
    weights = np.minimum(rho, cap) if kind == "truncated" else np.where(changed, 0.0, rho)
    config = _config(learning_rate=1.0, updates=2, mismatch=kind, mismatch_level=level, mismatch_cap=cap)
    metrics = Learner(model, config, 10).update(rows)
    assert metrics["kl_old"] > 1e-3
    assert 0.0 < changed.mean() < 1.0
    assert metrics["mismatch_weight_mean"] == pytest.approx(weights.mean(), rel=1e-4)
    assert metrics["mismatch_share"] == pytest.approx(changed.mean())
    assert metrics["mismatch_kl"] == pytest.approx((np.exp(gap) - 1 - gap).mean(), rel=1e-3)


def test_the_policy_loss_of_the_first_step_is_the_weighted_advantage() -> None:
    """With ratios of 1 the loss of a token is -A; the mean is over all tokens, the masked ones included."""
    rows = on_policy(toy_model(), batch(), drift=0.4)
    gap = _tokens(on_policy(toy_model(), rows), "logprobs") - _tokens(rows, "logprobs")
    rho, advantages = np.exp(gap), _tokens(rows, "advantages")
    for kind, weights in (
        ("truncated", np.minimum(rho, 1.3)),
        ("masked", np.where((rho > 1.3) | (rho < 1 / 1.3), 0.0, rho)),
    ):
        metrics = Learner(toy_model(), _config(mismatch=kind, mismatch_cap=1.3), 10).update(rows)
        assert metrics["policy_loss"] == pytest.approx(-(weights * advantages).mean(), abs=1e-5)


@pytest.mark.parametrize("nats", [3.0, -3.0])
def test_masked_drops_a_token(nats: float) -> None:
    rows = on_policy(toy_model(), batch())
    advantages = rows[2].advantages.copy()
    advantages[_responses(rows[2])[4]] = 0.0
    without = [replace(s, advantages=advantages) if i == 2 else s for i, s in enumerate(rows)]
    masked = moved_by(_config(mismatch="masked"), _shifted(rows, 2, 4, nats))
    np.testing.assert_allclose(masked, moved_by(_config(), without), atol=1e-7)
    assert np.abs(masked - moved_by(_config(), rows)).max() > 1e-4


def test_masked_by_sequence_drops_the_whole_sequence_and_no_other() -> None:
    rows = on_policy(toy_model(), batch())
    without = [replace(s, advantages=np.zeros_like(s.advantages)) if i == 2 else s for i, s in enumerate(rows)]
    masked = moved_by(_config(mismatch="masked", mismatch_level="sequence"), _shifted(rows, 2, 4, 3.0))
    np.testing.assert_allclose(masked, moved_by(_config(), without), atol=1e-6)
    shares = len(_responses(rows[2])) / len(_tokens(rows, "logprobs"))
    metrics = Learner(toy_model(), _config(mismatch="masked", mismatch_level="sequence"), 10).update(
        _shifted(rows, 2, 4, 3.0)
    )
    assert metrics["mismatch_share"] == pytest.approx(shares)


@pytest.mark.parametrize(("kind", "level"), CORRECTIONS)
def test_one_by_eight_is_eight_by_one_with_a_correction(kind: str, level: str) -> None:
    rows = on_policy(toy_model(), batch(), drift=0.3)
    config = _config(updates=2, mismatch=kind, mismatch_level=level, mismatch_cap=1.5, kl_estimator="k3_ratio")
    whole = moved_by(config, rows)
    assert np.abs(whole).max() > 1e-3
    for budget in (32, 256):
        cut = moved_by(config.model_copy(update={"micro_batch_tokens": budget}), rows)
        np.testing.assert_allclose(cut, whole, atol=2e-6)


def test_the_correction_leaves_kl_and_entropy_alone() -> None:
    """Every token is masked: no policy loss is left, and the others are what they were."""
    rows = [replace(s, logprobs=s.logprobs - 5.0) for s in on_policy(toy_model(), batch())]
    settings = {"kl_coefficient": 0.2, "entropy_coefficient": 0.1}
    plain, masked = (
        Learner(toy_model(), _config(mismatch=kind, **settings), 10, reference=toy_model(seed=7)).update(rows)
        for kind in ("none", "masked")
    )
    assert masked["mismatch_share"] == 1.0
    assert masked["policy_loss"] == 0.0 != plain["policy_loss"]
    assert (masked["kl_loss"], masked["entropy_loss"]) == (plain["kl_loss"], plain["entropy_loss"])
    assert not [name for name in plain if name.startswith("mismatch")]


def test_what_cannot_be_corrected_is_refused_with_its_reason() -> None:
    with pytest.raises(ValueError, match=r"mismatch is truncated and old_logprobs is sampler.*the same numbers"):
        LearnerConfig(mismatch="truncated")
    with pytest.raises(ValueError, match="greater than 1"):
        LearnerConfig(old_logprobs="learner", mismatch="masked", mismatch_cap=1.0)
    rows = [replace(s, logprobs=np.full_like(s.logprobs, np.nan)) for s in batch(2)]
    with pytest.raises(LearnerError, match="mismatch is masked and a recorded log-probability is not finite"):
        Learner(toy_model(), _config(mismatch="masked"), 10).update(rows)
