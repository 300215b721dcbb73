"""Advantages straight from episodes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from worldwise.algorithms.advantages.episodes import AdvantageConfig, credit_episodes
from worldwise.algorithms.advantages.gigpo import gigpo
from worldwise.episodes.record import Episode, Termination, Turn
from worldwise.episodes.sequences import Role, sequences_from_episode


def _turn(index: int, observation: str, reward: float, format_valid: bool = True) -> Turn:
    return Turn(
        index=index,
        observation=observation,
        context_ids=np.array([1, 2], dtype=np.int32),
        restart=index == 0,
        observation_span=(0, 1),
        response_ids=np.array([3, 4, 5], dtype=np.int32),
        logprobs=np.full(3, -1.0, dtype=np.float32),
        entropies=np.zeros(3, dtype=np.float32),
        response_text="look",
        action="look",
        action_span=(0, 2),
        format_valid=format_valid,
        finished=True,
        accepted=True,
        reward=reward,
        progress=0.0,
        next_observation="",
        terminated=False,
        truncated=False,
    )


def _episode(name: str, group: str, turns: list[Turn]) -> Episode:
    return Episode(
        episode_id=name,
        group_id=group,
        world="household",
        task_id=group,
        task_type="look",
        split="train",
        sample=0,
        iteration=0,
        seed=0,
        model_version="base",
        turns=tuple(turns),
        termination=Termination.SOLVED,
        success=True,
        progress=1.0,
        reward_valid=True,
        temperature=1.0,
        restricted=False,
        context="conversation",
    )


def _batch() -> list[Episode]:
    return [
        _episode("a", "g", [_turn(0, "door", 0.0), _turn(1, "hall", 1.0)]),
        _episode("b", "g", [_turn(0, "door", 0.0), _turn(1, "door", 0.0, format_valid=False), _turn(2, "hall", 0.0)]),
        _episode("c", "h", [_turn(0, "door", 0.0)]),
        _episode("d", "h", [_turn(0, "door", 0.0)]),
    ]


def test_grpo_spreads_the_episode_advantage_over_its_turns() -> None:
    credit = credit_episodes(_batch(), AdvantageConfig(normalize="none"))
    assert [turns.tolist() for turns in credit.turns] == [[0.5, 0.5], [-0.5, -0.5, -0.5], [0.0], [0.0]]
    assert credit.metrics == {
        "return_mean": 0.25,
        "mixed_groups": 0.5,
        "zero_advantage_turns": 2 / 7,
        "invalid_turns": 1 / 7,
    }


def test_rloo_and_reward_scale() -> None:
    credit = credit_episodes(_batch(), AdvantageConfig(estimator="rloo", reward_scale=10.0))
    assert [turns[0] for turns in credit.turns] == [10.0, -10.0, 0.0, 0.0]


def test_gigpo_groups_turns_by_observation() -> None:
    config = AdvantageConfig(estimator="gigpo", discount=0.9, step_weight=0.5, normalize="none", invalid_penalty=0.1)
    credit = credit_episodes(_batch(), config)
    expected = gigpo(
        [0, 1, 0, 0, 0, 0, 0],
        list("ggggghh"),
        list("aabbbcd"),
        ["door", "hall", "door", "door", "hall", "door", "door"],
        discount=0.9,
        step_weight=0.5,
        normalize="none",
        penalties=[0, 0, 0, 0.1, 0, 0, 0],
    )
    np.testing.assert_allclose(np.concatenate(credit.turns), expected.total)
    assert credit.metrics["state_group_size"] == pytest.approx((3 * 3 + 2 * 2 + 2 * 2) / 7)
    assert credit.metrics["lone_states"] == 0.0


def test_an_infrastructure_failure_is_not_a_zero_reward() -> None:
    episodes = _batch()
    failed = replace(episodes[1], episode_id="x", reward_valid=False, termination=Termination.TIMEOUT)
    nothing = replace(failed, episode_id="y", turns=())
    usual = credit_episodes(episodes, AdvantageConfig())
    credit = credit_episodes([failed, *episodes, nothing], AdvantageConfig())
    assert [turns.tolist() for turns in credit.turns[1:-1]] == [turns.tolist() for turns in usual.turns]
    assert credit.turns[0].tolist() == [0.0, 0.0, 0.0]
    assert credit.turns[-1].tolist() == []
    assert credit.metrics == usual.metrics


def test_no_valid_episode_gives_no_credit() -> None:
    credit = credit_episodes([replace(_batch()[0], reward_valid=False)], AdvantageConfig(estimator="gigpo"))
    assert credit.turns[0].tolist() == [0.0, 0.0]
    assert credit.metrics["mixed_groups"] == 0.0


def test_credit_reaches_the_response_tokens_of_its_turn() -> None:
    episodes = _batch()
    config = AdvantageConfig(estimator="gigpo", normalize="none")
    credit = credit_episodes(episodes, config)
    (sequence,) = sequences_from_episode(episodes[0], credit.turns[0].tolist())
    marked = sequence.roles == Role.RESPONSE
    expected = np.repeat(credit.turns[0], 3)
    np.testing.assert_allclose(sequence.advantages[marked], expected, rtol=1e-6)
    assert (sequence.advantages[~marked] == 0).all()
