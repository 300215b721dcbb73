"""What an update does to the weights: against float64 formulas, and unchanged by how the batch is cut."""

from __future__ import annotations

import copy
import io
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from worldwise.episodes.sequences import Role, TrainingSequence
from worldwise.training.errors import LearnerError
from worldwise.training.learner import Learner, LearnerConfig
from worldwise.training.minibatch import split_by_group

from .toy import batch, full_logprobs, moved_by, on_policy, plain_config, toy_model, weights_of

PROPORTIONAL = {"epsilon": 100.0, "learning_rate": 1.0}
"""With these AdamW's first step is 0.01 * gradient, to a few parts in a thousand."""


def _scored(sequence: TrainingSequence) -> Any:
    return np.flatnonzero(sequence.roles == Role.RESPONSE)


def _drifted(count: int = 8, seed: int = 0) -> list[TrainingSequence]:
    """Rows whose recorded log-probabilities differ enough from the model's for the clip to bite."""
    return on_policy(toy_model(), batch(count, seed), drift=0.4)


def test_the_gradient_is_that_of_the_formula_in_float64() -> None:
    sequences, reference = _drifted(), toy_model(seed=7)
    config = plain_config(
        clip_low=0.2, clip_high=0.28, kl_coefficient=0.3, entropy_coefficient=0.05, aggregation="seq_mean_token_mean"
    )
    subject = toy_model()
    before = weights_of(subject)
    metrics = Learner(subject, config, 10, reference=reference).update(sequences)

    exact, anchor = toy_model().double(), copy.deepcopy(reference).double()
    total = torch.zeros((), dtype=torch.float64)
    clipped = 0
    for sequence in sequences:
        at = _scored(sequence)
        table = full_logprobs(exact, sequence.token_ids)[at]
        with torch.no_grad():
            fixed = full_logprobs(anchor, sequence.token_ids)[at]
        chosen = table[range(len(at)), sequence.token_ids[at].tolist()]
        held = fixed[range(len(at)), sequence.token_ids[at].tolist()]
        ratio = (chosen - torch.from_numpy(sequence.logprobs[at]).double()).exp()
        advantage = torch.from_numpy(sequence.advantages[at]).double()
        objective = torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.28) * advantage)
        objective = torch.where(advantage < 0, torch.maximum(objective, 3 * advantage), objective)
        kl = (held - chosen).exp() - 1 - (held - chosen)
        entropy = -(table.exp() * table).sum(-1)
        total = total + (-objective + 0.3 * kl.clamp(max=10) - 0.05 * entropy).mean() / len(sequences)
        clipped += int((ratio.clamp(0.8, 1.28) * advantage < ratio * advantage).sum())
    total.backward()
    gradient = np.concatenate([p.grad.numpy().ravel() for p in exact.parameters() if p.grad is not None])
    moved = weights_of(subject) - before
    np.testing.assert_allclose(moved, -0.1 * gradient / (np.abs(gradient) + 1.0), atol=2e-6)
    assert np.abs(moved).max() > 1e-3
    tokens = sum(len(_scored(s)) for s in sequences)
    assert 0 < clipped < tokens
    assert metrics["clip_fraction"] == pytest.approx(clipped / tokens)
    summed = metrics["policy_loss"] + metrics["kl_loss"] + metrics["entropy_loss"]
    assert summed == pytest.approx(float(total.detach()), abs=1e-5)
    assert metrics["grad_norm"] == pytest.approx(float(np.linalg.norm(gradient)), rel=1e-4)


@pytest.mark.parametrize("aggregation", ["token_mean", "seq_mean_token_mean", "seq_mean_token_sum", "constant"])
def test_one_by_eight_is_eight_by_one(aggregation: str) -> None:
    config = plain_config(aggregation=aggregation, aggregation_length=20, entropy_coefficient=0.01)
    sequences = _drifted()
    whole = moved_by(config, sequences)
    assert np.abs(whole).max() > 1e-3
    for budget in (32, 256):
        cut = moved_by(config.model_copy(update={"micro_batch_tokens": budget}), sequences)
        np.testing.assert_allclose(cut, whole, atol=2e-6)


@pytest.mark.parametrize("ratio", ["token", "turn", "sequence"])
def test_the_order_of_rows_does_not_matter(ratio: str) -> None:
    sequences = _drifted()
    config = plain_config(ratio=ratio, micro_batch_tokens=200)
    backwards = moved_by(config, sequences[::-1])
    np.testing.assert_allclose(backwards, moved_by(config, sequences), atol=2e-6)


def test_turn_ratios_differ_from_sequence_ratios() -> None:
    sequences = _drifted()
    turn, sequence = (moved_by(plain_config(ratio=ratio), sequences) for ratio in ("turn", "sequence"))
    assert np.abs(turn - sequence).max() > 1e-4


def test_a_dead_group_adds_exactly_nothing_but_counts_in_the_denominator() -> None:
    live = _drifted(4)
    dead = [replace(s, group_id="dead", advantages=np.zeros_like(s.advantages)) for s in _drifted(4, seed=9)]
    config = plain_config(**PROPORTIONAL)
    skipped = moved_by(config, live + dead)
    unskipped = moved_by(config.model_copy(update={"skip_zero_advantage": False}), live + dead)
    np.testing.assert_allclose(skipped, unskipped, atol=1e-6)
    assert np.abs(skipped).max() > 1e-4
    tokens = [sum(len(_scored(s)) for s in rows) for rows in (live, live + dead)]
    np.testing.assert_allclose(skipped * tokens[1] / tokens[0], moved_by(config, live), rtol=3e-3, atol=2e-6)


def test_only_dead_groups_leave_the_weights_bit_for_bit() -> None:
    dead = [replace(s, advantages=np.zeros_like(s.advantages)) for s in batch()]
    model = toy_model()
    learner = Learner(model, LearnerConfig(learning_rate=0.1, weight_decay=0.1, updates=2), 10)
    before = weights_of(model)
    metrics = learner.update(dead)
    assert (weights_of(model) == before).all()
    assert (metrics["optimizer_steps"], metrics["skipped_sequences"], learner.steps) == (0, 8, 2)


def test_a_positive_advantage_raises_the_probability_of_its_tokens_and_a_negative_one_lowers_it() -> None:
    for sign in (1.0, -1.0):
        model = toy_model()
        rows = [replace(s, advantages=(sign * (s.roles == Role.RESPONSE)).astype(np.float32)) for s in batch(4)]
        learner = Learner(model, LearnerConfig(learning_rate=1e-3), 10)
        rows = on_policy(model, rows)
        learner.update(rows)
        after = learner.log_probs(rows)
        change = sum(float((b - s.logprobs).sum()) for s, b in zip(rows, after, strict=True))
        assert sign * change > 1.0


def test_groups_are_never_cut_and_fill_the_mini_batches_evenly() -> None:
    sequences = batch(20, group_size=4)
    parts = split_by_group(sequences, 3)
    assert [len({s.group_id for s in part}) for part in parts] == [2, 1, 2]
    assert [s.sequence_id for part in parts for s in part] == [s.sequence_id for s in sequences]
    assert [len(part) for part in split_by_group(sequences, 99)] == [4] * 5


def test_updates_are_optimizer_steps_on_disjoint_groups() -> None:
    model = toy_model()
    learner = Learner(model, plain_config(updates=2), 10)
    sequences = _drifted()
    metrics = learner.update(sequences)
    assert (metrics["optimizer_steps"], learner.steps) == (2, 2)
    other = toy_model()
    second = Learner(other, plain_config(), 10)
    for part in split_by_group(sequences, 2):
        second.update(part)
    np.testing.assert_allclose(weights_of(model), weights_of(other), atol=1e-7)


def test_recomputed_old_log_probabilities_start_every_iteration_on_policy() -> None:
    sequences = [replace(s, logprobs=np.full_like(s.logprobs, np.nan)) for s in batch()]
    one = Learner(toy_model(), LearnerConfig(learning_rate=1e-3, old_logprobs="learner"), 10).update(sequences)
    assert (one["ratio_mean"], one["ratio_max"], one["kl_old"]) == (1.0, 1.0, 0.0)
    two = Learner(toy_model(), LearnerConfig(learning_rate=1e-3, old_logprobs="learner", updates=2), 10).update(batch())
    assert two["ratio_max"] > 1.0
    assert two["kl_old"] > 0.0


def test_recomputed_and_recorded_log_probabilities_train_alike_where_they_are_equal() -> None:
    rows = on_policy(toy_model(), batch())
    recorded = moved_by(plain_config(updates=2), rows)
    np.testing.assert_allclose(moved_by(plain_config(updates=2, old_logprobs="learner"), rows), recorded, atol=2e-6)


def test_the_reference_is_a_frozen_copy_and_absent_without_kl() -> None:
    model = toy_model()
    learner = Learner(model, LearnerConfig(learning_rate=1e-2, kl_coefficient=0.1), 10)
    assert learner.reference is not None
    before = weights_of(model)
    rows = on_policy(model, batch())
    first, second = learner.update(rows), learner.update(rows)
    assert (weights_of(learner.reference) == before).all()
    assert first["kl_reference"] == pytest.approx(0.0, abs=1e-9)
    assert second["kl_reference"] > 1e-4
    assert Learner(model, LearnerConfig(), 10).reference is None


def test_the_kl_term_holds_the_policy_back() -> None:
    drifts = []
    for coefficient in (1e-6, 10.0):
        model = toy_model()
        rows = on_policy(model, batch())
        learner = Learner(model, LearnerConfig(learning_rate=3e-3, kl_coefficient=coefficient), 10)
        drifts.append([learner.update(rows)["kl_reference"] for _ in range(6)][-1])
    assert drifts[1] < 0.5 * drifts[0]


def test_the_entropy_bonus_raises_entropy() -> None:
    model = toy_model()
    dead = [replace(s, advantages=np.zeros_like(s.advantages)) for s in on_policy(model, batch())]
    learner = Learner(model, LearnerConfig(learning_rate=1e-3, entropy_coefficient=1.0), 10)
    entropies = [learner.update(dead)["entropy"] for _ in range(4)]
    assert entropies[-1] > entropies[0] + 0.05


def test_metrics_of_a_batch_do_not_depend_on_padding() -> None:
    names = ("entropy", "kl_old", "clip_fraction", "ratio_mean", "ratio_max", "policy_loss", "grad_norm")
    results = [
        Learner(toy_model(), plain_config(micro_batch_tokens=budget), 10).update(_drifted()) for budget in (32, 100_000)
    ]
    assert results[1]["pad_ratio"] > results[0]["pad_ratio"] >= 0.0
    for name in names:
        assert results[0][name] == pytest.approx(results[1][name], rel=1e-4), name
    assert results[0]["response_tokens"] == sum(len(_scored(s)) for s in _drifted())


def test_gradient_clipping_bounds_the_step_and_reports_the_norm_before_it() -> None:
    config = plain_config(**PROPORTIONAL)
    free = moved_by(config, _drifted())
    held = moved_by(config.model_copy(update={"gradient_clip": 0.01}), _drifted())
    norm = Learner(toy_model(), config.model_copy(update={"gradient_clip": 0.01}), 10).update(_drifted())["grad_norm"]
    assert norm > 0.1
    assert np.linalg.norm(held) == pytest.approx(0.01 * 0.01, rel=1e-2)
    assert np.dot(held, free) == pytest.approx(np.linalg.norm(held) * np.linalg.norm(free), rel=1e-3)


def test_weight_decay_touches_matrices_only() -> None:
    model = toy_model()
    learner = Learner(model, LearnerConfig(learning_rate=1e-2, weight_decay=1.0, gradient_clip=1e-9), 10)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    learner.update(_drifted())
    after = dict(model.named_parameters())
    norms = [name for name in before if before[name].ndim == 1]
    assert norms
    for name in norms:
        assert (after[name] - before[name]).abs().max() < 1.1e-2
    matrix = "model.layers.0.mlp.up_proj.weight"
    torch.testing.assert_close(after[matrix].norm(), 0.99 * before[matrix].norm(), rtol=2e-3, atol=0)


def test_the_schedule_sets_the_rate_of_each_step() -> None:
    learner = Learner(toy_model(), LearnerConfig(learning_rate=0.1, schedule="linear", warmup_steps=2), 4)
    rates = [learner.update(_drifted(2))["learning_rate"] for _ in range(5)]
    assert rates == pytest.approx([0.05, 0.1, 0.1, 0.05, 0.0])


def test_bf16_is_close_to_fp32_and_keeps_float32_weights() -> None:
    exact = moved_by(plain_config(), _drifted())
    rough = moved_by(plain_config(precision="bf16"), _drifted())
    assert 0.9 < float(np.dot(exact, rough) / np.dot(exact, exact)) < 1.1
    assert np.linalg.norm(exact - rough) < 0.3 * np.linalg.norm(exact)
    assert (exact != rough).any()


def test_a_resumed_learner_goes_on_bit_for_bit() -> None:
    config = LearnerConfig(learning_rate=1e-2, schedule="cosine", warmup_steps=1, updates=2)
    straight = toy_model()
    learner = Learner(straight, config, 6)
    for seed in range(3):
        learner.update(_drifted(seed=seed))
    resumed = toy_model()
    first = Learner(resumed, config, 6)
    first.update(_drifted(seed=0))
    stored = io.BytesIO()
    torch.save({"model": resumed.state_dict(), "learner": first.state_dict()}, stored)
    stored.seek(0)
    state = torch.load(stored, weights_only=True)
    fresh = toy_model(seed=5)
    fresh.load_state_dict(state["model"])
    second = Learner(fresh, config, 6)
    second.load_state_dict(state["learner"])
    for seed in (1, 2):
        second.update(_drifted(seed=seed))
    assert (weights_of(fresh) == weights_of(straight)).all()
    with pytest.raises(LearnerError, match="plans 6 optimizer steps, this learner 7"):
        Learner(fresh, config, 7).load_state_dict(state["learner"])


def test_the_sampler_gap_is_measured_and_a_wrong_temperature_is_found() -> None:
    model = toy_model()
    rows = on_policy(model, [replace(s, temperature=0.8) for s in batch(3)])
    learner = Learner(model, LearnerConfig(precision="bf16"), 1)
    assert learner.check_sampler_gap(rows).largest < 1e-5
    wrong = [replace(rows[0]), replace(rows[1], temperature=1.0)]
    with pytest.raises(LearnerError, match="most in sequence s1"):
        learner.check_sampler_gap(wrong)
    assert learner.check_sampler_gap(wrong, limit=math.inf).largest > 0.1
    with pytest.raises(LearnerError, match="disagree by nan"):
        learner.check_sampler_gap([replace(rows[0], logprobs=np.full_like(rows[0].logprobs, np.nan))], limit=math.inf)


def test_numbers_that_are_not_finite_stop_the_run_before_the_weights_change() -> None:
    model = toy_model()
    before = weights_of(model)
    learner = Learner(model, LearnerConfig(), 10)
    with pytest.raises(LearnerError, match="must be finite"):
        learner.update([replace(s, logprobs=np.full_like(s.logprobs, np.nan)) for s in batch(2)])
    assert (weights_of(model) == before).all()
    with pytest.raises(LearnerError, match="an advantage is not finite"):
        learner.update([replace(s, advantages=np.full_like(s.advantages, np.nan)) for s in batch(2)])


def test_bad_set_up_is_refused_with_its_reason() -> None:
    with pytest.raises(LearnerError, match="load it with dtype float32"):
        Learner(toy_model().to(torch.bfloat16), LearnerConfig(), 10)
    with pytest.raises(LearnerError, match="total_steps is 0"):
        Learner(toy_model(), LearnerConfig(), 0)
    with pytest.raises(LearnerError, match="no sequences"):
        Learner(toy_model(), LearnerConfig(), 1).update([])
    mute = [replace(s, roles=np.zeros_like(s.roles)) for s in batch(2)]
    with pytest.raises(LearnerError, match="no response tokens"):
        Learner(toy_model(), LearnerConfig(), 1).update(mute)
    with pytest.raises(ValueError, match="aggregation_length is missing"):
        LearnerConfig(aggregation="constant")
    with pytest.raises(ValueError, match="betas are"):
        LearnerConfig(betas=(0.9, 1.0))


def test_threads_are_given_back() -> None:
    before = torch.get_num_threads()
    Learner(toy_model(), LearnerConfig(threads=before + 1), 10).update(_drifted(2))
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("old", ["sampler", "learner"])
@pytest.mark.parametrize("updates", [1, 2])
def test_how_far_an_update_went_is_seen_whatever_its_steps_are(old: str, updates: int) -> None:
    """With one step the ratios before it are 1 and say nothing."""
    sequences = on_policy(toy_model(), batch(8))
    moved = []
    for rate in (1e-5, 0.05):
        config = LearnerConfig(learning_rate=rate, updates=updates, old_logprobs=old)  # type: ignore[arg-type]
        moved.append(Learner(toy_model(), config, 10).update(sequences)["kl_update"])
    assert moved[0] < 1e-3
    assert moved[1] > 0.1
