"""The critic: values from the state before a token, its loss by hand, and that it learns what returns depend on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from worldwise.episodes.sequences import Role, TrainingSequence
from worldwise.training.critic import Critic, Targets, explained_variance
from worldwise.training.critic_config import CriticConfig
from worldwise.training.errors import LearnerError
from worldwise.training.learner import Learner, LearnerConfig
from worldwise.training.metrics import Means

from .toy import batch, on_policy, toy_model


def with_targets(sequences: list[TrainingSequence], returns: list[float]) -> list[TrainingSequence]:
    """The sequences with one return for all response tokens, and values of 0."""
    found = []
    for sequence, value in zip(sequences, returns, strict=True):
        responses = (sequence.roles == Role.RESPONSE).astype(np.float32)
        found.append(replace(sequence, returns=value * responses, values=0.0 * responses))
    return found


@pytest.mark.parametrize("trunk", ["own", "shared"])
def test_values_begin_at_zero_and_belong_to_responses(trunk: str) -> None:
    critic = CriticConfig.model_validate({"trunk": trunk})
    learner = Learner(toy_model(), LearnerConfig(critic=critic), 1)
    sequences = batch(3)
    for sequence, values in zip(sequences, learner.values(sequences), strict=True):
        assert values.shape == (len(sequence),)
        assert not values.any()
    assert learner.critic is not None
    with torch.no_grad():
        learner.critic.head.bias.fill_(0.5)
    for sequence, values in zip(sequences, learner.values(sequences), strict=True):
        assert values[sequence.roles == Role.RESPONSE].tolist() == [0.5] * int((sequence.roles == Role.RESPONSE).sum())
        assert not values[sequence.roles != Role.RESPONSE].any()


def test_a_value_does_not_see_the_token_it_stands_for() -> None:
    learner = Learner(toy_model(), LearnerConfig(critic=CriticConfig()), 1)
    assert learner.critic is not None
    torch.manual_seed(0)
    torch.nn.init.normal_(learner.critic.head.weight)
    sequence = batch(1)[0]
    place = int(np.flatnonzero(sequence.roles == Role.RESPONSE)[1])
    changed = sequence.token_ids.copy()
    changed[place] = (changed[place] + 1) % 61
    before, after = learner.values([sequence])[0], learner.values([replace(sequence, token_ids=changed)])[0]
    assert before[: place + 1] == pytest.approx(after[: place + 1], abs=1e-6)
    assert before[place + 1] != pytest.approx(after[place + 1], abs=1e-3)


@pytest.mark.parametrize(("clip", "expected"), [(None, (0.25 + 4.0) / 2), (0.5, (0.25 + 6.25) / 2)])
def test_the_loss_by_hand(clip: float | None, expected: float) -> None:
    # Value 1.5, return 1, before 1.5: error 1/4 either way. Value 2, return 0, before 3: error 4; held at 2.5: 25/4.
    critic = Critic(toy_model(), CriticConfig(clip=clip))
    targets = Targets(torch.tensor([1.0, 0.0]), torch.tensor([1.5, 3.0]))
    loss = critic.loss(torch.tensor([1.5, 2.0]), targets, 2, Means())
    assert float(loss) == pytest.approx(0.5 * expected)


@pytest.mark.parametrize("trunk", ["own", "shared"])
def test_a_critic_learns_what_the_return_depends_on(trunk: str) -> None:
    sequences = with_targets(on_policy(toy_model(), batch(8)), [0.0, 1.0] * 4)
    critic = CriticConfig.model_validate(
        {"trunk": trunk, "learning_rate": 3e-3, "clip": None, **({"coefficient": 1.0} if trunk == "shared" else {})}
    )
    learner = Learner(toy_model(), LearnerConfig(learning_rate=1e-3, critic=critic), 40)
    rows = [learner.update(sequences) for _ in range(40)]
    # Zeros where half of the returns are 1: half the mean square.
    assert rows[0]["value_loss"] == pytest.approx(0.5 * rows[0]["return_mean"], rel=1e-4)
    assert rows[0]["explained_variance"] < 0.0
    assert rows[-1]["explained_variance"] > 0.8


def test_a_trunk_of_its_own_leaves_the_policy_alone() -> None:
    """With advantages of 0 the policy has nothing to learn; its own trunk keeps it so, a shared one does not."""
    sequences = [
        replace(sequence, advantages=np.zeros_like(sequence.advantages))
        for sequence in with_targets(on_policy(toy_model(), batch(8)), [0.0, 1.0] * 4)
    ]
    moved = {}
    for trunk in ("own", "shared"):
        model = toy_model()
        before = {name: value.clone() for name, value in model.state_dict().items()}
        config = LearnerConfig(
            learning_rate=1e-2,
            weight_decay=0.0,
            critic=CriticConfig.model_validate({"trunk": trunk, "learning_rate": 0.1}),
        )
        learner = Learner(model, config, 3)
        for _ in range(3):
            learner.update(sequences)
        moved[trunk] = any(not torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert moved == {"own": False, "shared": True}


def test_accumulation_does_not_change_a_step_with_a_critic() -> None:
    sequences = with_targets(on_policy(toy_model(), batch(8)), [0.0, 1.0] * 4)
    weights = []
    for budget in (64, 100_000):
        critic = CriticConfig(learning_rate=0.1)
        learner = Learner(toy_model(), LearnerConfig(critic=critic, micro_batch_tokens=budget), 2)
        learner.update(sequences)
        assert learner.critic is not None
        weights.append(learner.critic.head.weight.detach().numpy())
    np.testing.assert_allclose(*weights, atol=1e-5)


def test_explained_variance() -> None:
    # Returns 0 and 2: mean 1, mean square 2, variance 1. A mean squared error of 1/4 leaves three quarters.
    found = explained_variance({"value_error": 0.25, "return_square": 2.0, "return_mean": 1.0})
    assert found == {"return_mean": 1.0, "explained_variance": 0.75}
    assert explained_variance({"value_error": 0.1, "return_square": 1.0, "return_mean": 1.0}) == {"return_mean": 1.0}
    assert explained_variance({"loss": 1.0}) == {"loss": 1.0}


def test_what_is_missing_is_named() -> None:
    learner = Learner(toy_model(), LearnerConfig(critic=CriticConfig()), 1)
    with pytest.raises(LearnerError, match=r"a sequence has no returns: set policy\.algorithm to ppo"):
        learner.update(on_policy(toy_model(), batch(4)))
    with pytest.raises(LearnerError, match="the learner has no critic"):
        Learner(toy_model(), LearnerConfig(), 1).values(batch(1))
    with pytest.raises(LearnerError, match="no reference is kept"):
        learner.reference_kl(batch(1))
