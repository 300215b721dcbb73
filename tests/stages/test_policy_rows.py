"""Advantages of turns and shares of groups, on hand-computed values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from worldwise.episodes.record import Episode, Termination, Turn
from worldwise.stages.estimators import EstimatorConfig, turn_advantages
from worldwise.stages.policy_rows import chosen_groups, group_numbers, telling_groups, whole_groups


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


def test_groups_that_a_failure_broke_are_not_trained_on(make_episode: Callable[..., Episode]) -> None:
    whole = [make_episode("a", group="g", success=True), make_episode("b", group="g")]
    hurt = [make_episode("a", group="h", success=True), make_episode("b", group="h", termination=Termination.TIMEOUT)]
    assert whole_groups([*hurt, *whole]) == whole
    assert whole_groups(hurt) == []


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
    with pytest.raises(ValueError, match="known are dr_grpo, gigpo, grpo, ppo"):
        EstimatorConfig(algorithm="grpoo")


@pytest.mark.parametrize(
    ("algorithm", "expected"),
    [
        # Returns 1, 0, 0 of three episodes with two turns each: mean 1/3, variance (4 + 1 + 1) / 9 / 2 = 1/3.
        ("grpo", [2 / 3 / (1 / 3) ** 0.5, -1 / 3 / (1 / 3) ** 0.5]),
        ("dr_grpo", [2 / 3, -1 / 3]),
        # One minus the mean of the other two, and so on.
        ("rloo", [1.0, -0.5]),
        # Over the twelve tokens of the batch: mean 1/3, variance (4 * 4 + 8 * 1) / 9 / 11 = 8/33.
        ("reinforce_pp", [2 / 3 / (8 / 33) ** 0.5, -1 / 3 / (8 / 33) ** 0.5]),
        ("reinforce_pp_baseline", [2 / 3 / (8 / 33) ** 0.5, -1 / 3 / (8 / 33) ** 0.5]),
    ],
)
def test_every_estimator_by_hand(make_episode: Callable[..., Episode], algorithm: str, expected: list[float]) -> None:
    episodes = [make_episode("a", success=True), make_episode("b"), make_episode("c")]
    found = turn_advantages(episodes, EstimatorConfig(algorithm=algorithm), str)
    assert [len(set(own)) for own in found] == [1, 1, 1]
    assert [own[0] for own in found] == pytest.approx([expected[0], expected[1], expected[1]], rel=1e-5)


@pytest.mark.parametrize("algorithm", ["grpo", "gigpo", "rloo", "dr_grpo", "reinforce_pp_baseline"])
def test_a_group_without_a_difference_stays_at_zero_whatever_its_kl_was(
    make_episode: Callable[..., Episode], algorithm: str
) -> None:
    """With the KL in the reward: on a scale of its own, its noise would be a full-size update."""
    dead = [make_episode(name, group="dead") for name in "abc"]
    alive = [make_episode("a", group="alive", success=True), make_episode("b", group="alive")]
    costs = [[0.001, 0.0], [0.003, 0.002], [0.0, 0.0], [0.1, 0.1], [0.0, 0.0]]
    found = turn_advantages([*dead, *alive], EstimatorConfig(algorithm=algorithm), key, costs)
    assert found[:3] == [[0.0, 0.0]] * 3
    plain = turn_advantages([*dead, *alive], EstimatorConfig(algorithm=algorithm), key)
    assert found[3][0] < plain[3][0], "in the other group it counts"
    assert found[4][0] > plain[4][0]


def test_costs_by_hand(make_episode: Callable[..., Episode]) -> None:
    episodes = [make_episode("a", success=True), make_episode("b")]
    costs = [[0.1, 0.1], [0.0, 0.0]]
    # Returns 1, 0: mean 1/2, std sqrt(1/2). Costs 0.2, 0: mean 0.1, on the same scale.
    scale = 0.5**0.5 + 1e-6
    found = turn_advantages(episodes, EstimatorConfig(algorithm="grpo"), key, costs)
    assert found[0] == pytest.approx([(0.5 - 0.1) / scale] * 2)
    assert found[1] == pytest.approx([(-0.5 + 0.1) / scale] * 2)


@pytest.mark.parametrize("algorithm", ["reinforce_pp", "reinforce_pp_baseline"])
def test_a_penalty_is_on_the_scale_of_the_batch(
    make_episode: Callable[..., Episode], make_turn: Callable[..., Turn], algorithm: str
) -> None:
    sloppy = make_episode("b", turns=[make_turn(0, valid=False), make_turn(1)])
    episodes = [make_episode("a", success=True), sloppy, make_episode("c")]
    config = EstimatorConfig(algorithm=algorithm, invalid_penalty=0.1)
    found = turn_advantages(episodes, config, key)
    plain = turn_advantages(episodes, config.model_copy(update={"invalid_penalty": 0.0}), key)
    assert found[1][0] == pytest.approx(plain[1][0] - 0.1 / (8 / 33) ** 0.5, rel=1e-5)
    assert [found[0], found[1][1:], found[2]] == [plain[0], plain[1][1:], plain[2]]
    flat = turn_advantages([make_episode("a"), replace(sloppy, group_id="h")], config, key)
    assert flat == [[0.0, 0.0], [pytest.approx(-0.1), 0.0]]


def test_similar_states_are_compared_where_it_is_asked_for(
    make_episode: Callable[..., Episode], make_turn: Callable[..., Turn]
) -> None:
    texts = ("You see a red mug on desk 1.", "You see a red mug on desk 2.")
    episodes = [
        make_episode(name, success=won, turns=[make_turn(0, observation=text, reward=float(won), terminated=True)])
        for name, text, won in zip("ab", texts, (True, False), strict=True)
    ]
    exact = turn_advantages(episodes, EstimatorConfig(normalize="none"), str)
    similar = turn_advantages(episodes, EstimatorConfig(normalize="none", state_similarity=0.9), str)
    # The episode term is +-1/2; where the states count as one, the step term adds another +-1/2.
    assert exact == [[0.5], [-0.5]]
    assert similar == [[1.0], [-1.0]]


def test_costs_are_taken_off_the_rewards(make_episode: Callable[..., Episode]) -> None:
    episodes = [make_episode("a", success=True), make_episode("b")]
    found = turn_advantages(episodes, EstimatorConfig(algorithm="dr_grpo"), str, [[0.2, 0.2], [0.0, 0.0]])
    # Returns 1 - 0.4 and 0: mean 0.3.
    assert found[0] == pytest.approx([0.3, 0.3])
    assert found[1] == pytest.approx([-0.3, -0.3])


def test_dynamic_sampling_keeps_what_can_be_compared(make_episode: Callable[..., Episode]) -> None:
    episodes = [
        make_episode(name, group=group, success=won)
        for group, outcomes in (("g", (1, 1)), ("h", (1, 0)), ("i", (0, 0)), ("j", (0, 1)))
        for name, won in zip("ab", outcomes, strict=True)
    ]
    assert telling_groups(episodes) == ["h", "j"]
    assert {own.group_id for own in chosen_groups(episodes, 1)} == {"h"}
    assert {own.group_id for own in chosen_groups(episodes, 3)} == {"h", "i", "j"}
    assert [own.group_id for own in chosen_groups(episodes, 9)] == [own.group_id for own in episodes]
