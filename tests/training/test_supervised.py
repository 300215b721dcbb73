"""Supervised updates: the loss by hand, its weights, and that it teaches."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from worldwise.episodes.sequences import Role
from worldwise.training.errors import LearnerError
from worldwise.training.learner import Learner, LearnerConfig

from .toy import batch, full_logprobs, plain_config, toy_model, weights_of


def test_the_loss_is_the_weighted_mean_over_the_whole_step() -> None:
    sequences, model = batch(5), toy_model()
    rng = np.random.default_rng(0)
    weights = [(rng.random(len(s)) * (np.arange(len(s)) > 0)).astype(np.float32) for s in sequences]
    total = mass = 0.0
    for sequence, weight in zip(sequences, weights, strict=True):
        with torch.no_grad():
            table = full_logprobs(model, sequence.token_ids).numpy()
        total -= float((weight * table[np.arange(len(sequence)), sequence.token_ids]).sum())
        mass += float(weight.sum())
    for budget in (32, 100_000):
        metrics = Learner(toy_model(), plain_config(micro_batch_tokens=budget), 1).supervised_update(
            sequences, weights=weights
        )
        assert metrics["loss"] == pytest.approx(total / mass, rel=1e-5)


def test_observations_weigh_what_they_are_told_to() -> None:
    sequences, model = batch(3), toy_model()
    sums = {Role.RESPONSE: [0.0, 0.0], Role.OBSERVATION: [0.0, 0.0]}
    for sequence in sequences:
        with torch.no_grad():
            table = full_logprobs(model, sequence.token_ids).numpy()
        picked = table[np.arange(len(sequence)), sequence.token_ids]
        for role, entry in sums.items():
            entry[0] -= float(picked[sequence.roles == role].sum())
            entry[1] += int((sequence.roles == role).sum())
    responses, observations = sums[Role.RESPONSE], sums[Role.OBSERVATION]
    plain = Learner(toy_model(), plain_config(), 1).supervised_update(sequences)
    both = Learner(toy_model(), plain_config(), 1).supervised_update(sequences, observation_weight=0.25)
    assert plain["loss"] == pytest.approx(responses[0] / responses[1], rel=1e-5)
    expected = (responses[0] + 0.25 * observations[0]) / (responses[1] + 0.25 * observations[1])
    assert both["loss"] == pytest.approx(expected, rel=1e-5)
    assert both["response_tokens"] == responses[1] + observations[1]


def test_temperature_and_restrictions_do_not_matter() -> None:
    sequences = batch(3)
    greedy = [replace(s, temperature=0.0, allowed=[np.array([1], dtype=np.int32)] * len(s)) for s in sequences]
    left, right = (Learner(toy_model(), plain_config(), 1).supervised_update(s)["loss"] for s in (sequences, greedy))
    assert left == right


def test_repeated_updates_teach_the_sequences() -> None:
    model = toy_model()
    learner = Learner(model, LearnerConfig(learning_rate=1e-2, weight_decay=0.0), 40)
    curve = [learner.supervised_update(batch(3)) for _ in range(40)]
    assert curve[-1]["loss"] < 0.2 * curve[0]["loss"]
    assert curve[-1]["token_accuracy"] > 0.95 > curve[0]["token_accuracy"]


def test_nothing_to_learn_is_refused() -> None:
    model = toy_model()
    before = weights_of(model)
    learner = Learner(model, LearnerConfig(), 1)
    with pytest.raises(LearnerError, match="no token has a weight"):
        learner.supervised_update(batch(1), weights=[np.zeros(len(batch(1)[0]), dtype=np.float32)])
    with pytest.raises(LearnerError, match="weights has 1 arrays for 2 sequences"):
        learner.supervised_update(batch(2), weights=[np.ones(3, dtype=np.float32)])
    assert (weights_of(model) == before).all()
