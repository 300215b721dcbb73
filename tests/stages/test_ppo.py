"""PPO: which token gets which reward, what a critic changes, and that its training is resumed whole."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from pydantic import ValidationError

from worldwise.episodes.record import Episode
from worldwise.episodes.sequences import Role, TrainingSequence, sequences_from_episode
from worldwise.stages.actor import Checkpoint, StageContext
from worldwise.stages.estimators import EstimatorConfig
from worldwise.stages.ppo_rows import ppo_sequences, token_rows
from worldwise.stages.train_policy import PolicyConfig, train_policy
from worldwise.training.critic_config import CriticConfig
from worldwise.training.learner import LearnerConfig
from worldwise.worlds.contract import WorldFamily

FAST = LearnerConfig(learning_rate=1e-2, betas=(0.9, 0.95), clip_high=0.28, updates=2)
PLAIN = EstimatorConfig(algorithm="ppo", invalid_penalty=0.0)


def rows_of(*episodes: Episode) -> list[tuple[Episode, TrainingSequence]]:
    return [(e, s) for e in episodes for s in sequences_from_episode(e, [0.0] * len(e.turns))]


def on_responses(sequence: TrainingSequence, values: np.ndarray) -> list[float]:
    assert not values[sequence.roles != Role.RESPONSE].any()
    return [float(value) for value in values[sequence.roles == Role.RESPONSE]]


def test_rewards_are_paid_at_the_last_token_of_their_turn(make_episode: Callable[..., Episode]) -> None:
    rows = rows_of(make_episode("a", success=True), make_episode("b"))
    found = token_rows(rows, PLAIN)
    # Two turns of two tokens each; the first episode solves its task with its second turn.
    assert found.rewards.tolist() == [0, 0, 0, 1, 0, 0, 0, 0]
    assert found.chains == ["g/a"] * 4 + ["g/b"] * 4
    alone = token_rows(rows, EstimatorConfig(algorithm="ppo", scope="turn", invalid_penalty=0.0))
    assert alone.rewards.tolist() == [0, 1, 0, 1, 0, 0, 0, 0]
    assert alone.chains == ["g/a#0"] * 2 + ["g/a#1"] * 2 + ["g/b#0"] * 2 + ["g/b#1"] * 2


def test_costs_are_taken_off_their_tokens(make_episode: Callable[..., Episode]) -> None:
    rows = rows_of(make_episode("a", success=True))
    costs = [np.where(sequence.roles == Role.RESPONSE, 0.25, 9.0).astype(np.float32) for _, sequence in rows]
    assert token_rows(rows, PLAIN, costs).rewards.tolist() == [-0.25, -0.25, -0.25, 0.75]


@pytest.mark.parametrize("constant", [0.0, 0.4])
def test_a_constant_critic_gives_whitened_monte_carlo(make_episode: Callable[..., Episode], constant: float) -> None:
    rows = rows_of(make_episode("a", success=True), make_episode("b"))
    plain = [sequence for _, sequence in rows]
    values = [np.full(len(sequence), constant, dtype=np.float32) for sequence in plain]
    made = ppo_sequences(plain, token_rows(rows, PLAIN), values, PLAIN)
    # Returns 1 on four tokens, 0 on four: mean 1/2, variance 8 * 1/4 / 7 = 2/7.
    unit = 0.5 / np.sqrt(2 / 7)
    np.testing.assert_allclose(on_responses(made[0], made[0].advantages), [unit] * 4, rtol=1e-6)
    np.testing.assert_allclose(on_responses(made[1], made[1].advantages), [-unit] * 4, rtol=1e-6)
    assert made[0].returns is not None
    assert made[0].values is not None
    np.testing.assert_allclose(on_responses(made[0], made[0].returns), [1.0] * 4, rtol=1e-6)
    np.testing.assert_allclose(on_responses(made[0], made[0].values), [constant] * 4)


def test_a_penalty_stays_in_its_turn(make_episode: Callable[..., Episode], make_turn: Callable[..., object]) -> None:
    bad = make_episode("b", turns=[make_turn(0, valid=False), make_turn(1)])
    config = EstimatorConfig(algorithm="ppo", invalid_penalty=0.1)
    advantages = []
    for settings in (PLAIN, config):
        rows = rows_of(make_episode("a", success=True), bad)
        plain = [sequence for _, sequence in rows]
        nothing = [np.zeros(len(sequence), dtype=np.float32) for sequence in plain]
        made = ppo_sequences(plain, token_rows(rows, settings), nothing, settings)
        advantages.append([on_responses(sequence, sequence.advantages) for sequence in made])
    (free_a, free_b), (fined_a, fined_b) = advantages
    assert fined_a == free_a
    assert fined_b[2:] == free_b[2:]
    np.testing.assert_allclose(np.subtract(free_b[:2], fined_b[:2]), [0.1 / np.sqrt(2 / 7)] * 2, rtol=1e-6)


@pytest.mark.parametrize(("trunk", "rate"), [("own", 1e-2), ("shared", 1e-2)])
def test_ppo_learns_to_reach_the_goal(
    start: Checkpoint, family: WorldFamily, context: StageContext, trunk: str, rate: float
) -> None:
    critic = CriticConfig.model_validate({"trunk": trunk, "learning_rate": rate})
    config = PolicyConfig(
        algorithm="ppo",
        iterations=12,
        tasks_per_iteration=4,
        group_size=8,
        learner=FAST.model_copy(update={"critic": critic}),
    )
    curve = train_policy(start, family.tasks("train"), [], config, context, "policy").curve
    first, last = np.mean([row["success"] for row in curve[:2]]), np.mean([row["success"] for row in curve[-2:]])
    assert last > first + 0.3
    assert {"learner_value_loss", "learner_explained_variance", "learner_critic_grad_norm"} <= set(curve[0])


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"algorithm": "ppo"}, "learner.critic is null"),
        ({"algorithm": "gigpo", "learner": {"critic": {}}}, "learner.critic is given and algorithm is gigpo"),
        ({"algorithm": "grpo", "group_size": 1}, "group_size is 1"),
        ({"learner": {"critic": {"coefficient": 0.5}}}, "coefficient is 0.5 and trunk is 'own'"),
        ({"learner": {"kl_in": "reward", "kl_estimator": "k3_ratio"}}, "kl_estimator is k3_ratio"),
    ],
)
def test_what_does_not_fit_is_named(settings: dict[str, object], told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        PolicyConfig.model_validate(settings)


def test_ppo_needs_no_groups() -> None:
    config = PolicyConfig.model_validate({"algorithm": "ppo", "group_size": 1, "learner": {"critic": {}}})
    assert config.learner.critic == CriticConfig()


def test_a_kl_in_the_reward_is_zero_while_the_policy_is_the_reference(
    start: Checkpoint, family: WorldFamily, context: StageContext
) -> None:
    """Before the first step policy and reference are the same, so the first update is that without a KL."""
    curves = []
    for changes in ({}, {"kl_coefficient": 0.5, "kl_in": "reward", "kl_estimator": "k1"}):
        config = PolicyConfig(
            algorithm="reinforce_pp",
            iterations=3,
            tasks_per_iteration=2,
            group_size=4,
            learner=LearnerConfig.model_validate({"learning_rate": 1e-2, **changes}),
        )
        subject = replace(start, model=copy.deepcopy(start.model))
        curves.append(train_policy(subject, family.tasks("train"), [], config, context, "policy").curve)
    plain, held = curves
    assert held[0]["learner_advantage_size"] == pytest.approx(plain[0]["learner_advantage_size"], abs=1e-5)
    assert held[2]["learner_advantage_size"] != pytest.approx(plain[2]["learner_advantage_size"], abs=1e-3)
    assert "learner_kl_loss" not in held[0]


def test_dynamic_sampling_plays_on_until_groups_differ(
    start: Checkpoint, family: WorldFamily, context: StageContext
) -> None:
    config = PolicyConfig(
        algorithm="grpo", iterations=3, tasks_per_iteration=2, group_size=2, sampling_rounds=4, learner=FAST
    )
    result = train_policy(start, family.tasks("train"), [], config, context, "policy")
    rounds = [row["sampling_rounds"] for row in result.curve]
    assert max(rounds) > 1
    assert all(1 <= count <= 4 for count in rounds)
    # A later round leaves out tasks that the iteration has played, so it may have fewer groups of two.
    played = [row["episodes"] for row in result.curve]
    assert all(own == 4 if count == 1 else 4 < own <= 4 * count for own, count in zip(played, rounds, strict=True))
    assert result.summary["episodes"] == sum(played)
    assert all(row["learner_sequences"] <= 4 for row in result.curve)
