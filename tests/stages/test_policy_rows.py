"""Advantages of turns and shares of groups, on hand-computed values."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from worldwise.episodes.record import Episode, Termination, Turn
from worldwise.stages.policy_rows import EstimatorConfig, group_numbers, turn_advantages


def key(observation: str) -> str:
    return observation


def test_grpo_spreads_the_episode_advantage_over_its_turns(make_episode: Callable[..., Episode]) -> None:
    episodes = [make_episode("a", success=True), make_episode("b"), make_episode("c"), make_episode("d")]
    config = EstimatorConfig(algorithm="grpo", normalize="none", invalid_penalty=0.0)
    assert turn_advantages(episodes, config, key) == [[0.75, 0.75], [-0.25, -0.25], [-0.25, -0.25], [-0.25, -0.25]]
    scaled = turn_advantages(episodes, config.model_copy(update={"normalize": "std"}), key)
    # mean 0.25, unbiased std 0.5: (1 - 0.25) / 0.5 and (0 - 0.25) / 0.5
    assert scaled[0] == pytest.approx([1.5, 1.5], abs=1e-4)
    assert scaled[1] == pytest.approx([-0.5, -0.5], abs=1e-4)


def test_a_penalty_moves_only_its_own_turn(
    make_episode: Callable[..., Episode], make_turn: Callable[..., Turn]
) -> None:
    clean = make_episode("a")
    sloppy = make_episode("b", turns=[make_turn(0, valid=False), make_turn(1)])
    config = EstimatorConfig(algorithm="grpo", invalid_penalty=0.1)
    found = turn_advantages([clean, sloppy], config, key)
    assert found == [[0.0, 0.0], [pytest.approx(-0.1), 0.0]]


def test_gigpo_without_repeated_states_is_grpo(
    make_episode: Callable[..., Episode], make_turn: Callable[..., Turn]
) -> None:
    episodes = [
        make_episode("a", turns=[make_turn(0, observation="a0"), make_turn(1, observation="a1", reward=1.0)]),
        make_episode("b", turns=[make_turn(0, observation="b0"), make_turn(1, observation="b1")]),
    ]
    grpo = turn_advantages(episodes, EstimatorConfig(algorithm="grpo"), key)
    assert turn_advantages(episodes, EstimatorConfig(algorithm="gigpo"), key) == grpo


def test_gigpo_compares_turns_of_one_state(make_episode: Callable[..., Episode]) -> None:
    # Both states recur in both episodes: returns 0.95 and 1 against 0 and 0.
    episodes = [make_episode("a", success=True), make_episode("b")]
    config = EstimatorConfig(algorithm="gigpo", normalize="none", gamma=0.95, omega=2.0)
    found = turn_advantages(episodes, config, key)
    assert found[0] == pytest.approx([0.5 + 2 * 0.475, 0.5 + 2 * 0.5])
    assert found[1] == pytest.approx([-0.5 - 2 * 0.475, -0.5 - 2 * 0.5])


def test_failed_episodes_leave_their_group(make_episode: Callable[..., Episode]) -> None:
    broken = make_episode("b", termination=Termination.TIMEOUT)
    config = EstimatorConfig(algorithm="grpo", normalize="none")
    found = turn_advantages([make_episode("a", success=True), broken, make_episode("c")], config, key)
    assert found == [[0.5, 0.5], [0.0, 0.0], [-0.5, -0.5]]
    # One episode left is nothing to compare.
    assert turn_advantages([make_episode("a", success=True), broken], config, key) == [[0.0, 0.0], [0.0, 0.0]]


def test_group_numbers(make_episode: Callable[..., Episode]) -> None:
    episodes = [
        make_episode("a", group="mixed", success=True),
        make_episode("b", group="mixed"),
        make_episode("a", group="all", success=True),
        make_episode("b", group="all", success=True),
        make_episode("a", group="none"),
        make_episode("b", group="broken", termination=Termination.ENGINE_ERROR),
    ]
    found = group_numbers(episodes)
    assert found == {
        "mixed_groups": pytest.approx(1 / 3),
        "zero_variance": pytest.approx(2 / 3),
        "solved_groups": pytest.approx(1 / 3),
    }


def test_unknown_algorithm_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match="known are gigpo, grpo"):
        EstimatorConfig(algorithm="grpoo")
