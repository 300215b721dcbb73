"""Estimators on hand-computed values, and the invariants they promise."""

from __future__ import annotations

import numpy as np
import pytest

from worldwise.algorithms.advantages.gae import flat_gae, gae, whiten
from worldwise.algorithms.advantages.gigpo import episode_term, gigpo
from worldwise.algorithms.advantages.grpo import grpo
from worldwise.algorithms.advantages.reinforce_pp import reinforce_pp, reinforce_pp_baseline
from worldwise.algorithms.advantages.returns import discounted_returns, total_returns
from worldwise.algorithms.advantages.rloo import rloo
from worldwise.algorithms.advantages.states import similar_states

GROUPS = ["a", "a", "b", "b", "b", "a"]
RETURNS = [1.0, 0.0, 4.0, 1.0, 1.0, 2.0]


def test_grpo_by_hand() -> None:
    # Group a: 1, 0, 2 -> mean 1, unbiased std 1. Group b: 4, 1, 1 -> mean 2, std sqrt(3).
    expected = [0.0, -1.0, 2 / np.sqrt(3), -1 / np.sqrt(3), -1 / np.sqrt(3), 1.0]
    np.testing.assert_allclose(grpo(RETURNS, GROUPS), expected, atol=2e-6)
    np.testing.assert_allclose(grpo(RETURNS, GROUPS, normalize="none"), [0, -1, 2, -1, -1, 1], atol=1e-12)


def test_rloo_subtracts_the_mean_of_the_others() -> None:
    expected = [1 - 1.0, 0 - 1.5, 4 - 1.0, 1 - 2.5, 1 - 2.5, 2 - 0.5]
    np.testing.assert_allclose(rloo(RETURNS, GROUPS), expected, atol=1e-12)


def test_equal_returns_give_exactly_zero_even_where_rounding_leaves_a_spread() -> None:
    # The mean of three times 0.1 is not 0.1 in floating point.
    assert np.mean([0.1] * 3) != 0.1
    for normalize in ("std", "none", "leave_one_out"):
        assert (grpo([0.1] * 3, [0, 0, 0], normalize=normalize) == 0.0).all()


def test_a_group_of_one_is_zero_and_its_own_return_on_request() -> None:
    assert grpo([7.0], ["x"]).tolist() == [0.0]
    np.testing.assert_allclose(grpo([7.0], ["x"], lone_raw=True), [7.0], rtol=1e-5)
    assert gigpo([1.0, 2.0], ["x", "x"], ["t", "t"], ["s", "u"]).total.tolist() == [0.0, 0.0]


def test_advantages_do_not_depend_on_the_order_of_rows() -> None:
    rng = np.random.default_rng(3)
    values, groups = rng.normal(size=40), rng.integers(0, 6, 40)
    order = rng.permutation(40)
    np.testing.assert_allclose(grpo(values, groups)[order], grpo(values[order], groups[order]), rtol=1e-12)


def test_weights_count_a_row_several_times() -> None:
    repeated = grpo([1.0, 0.0, 0.0, 0.0], [0, 0, 0, 0])
    weighted = grpo([1.0, 0.0], [0, 0], weights=[1, 3])
    np.testing.assert_allclose(weighted, repeated[:2], rtol=1e-12)


def test_row_statistics_let_long_failures_pull_the_baseline() -> None:
    # Success in 5 turns (10), failure in 50 (0): 9.1 / -0.9 over rows, +-5 over episodes.
    totals = np.array([10.0] * 5 + [0.0] * 50)
    keys = ["won"] * 5 + ["lost"] * 50
    by_row = episode_term(totals, ["g"] * 55, keys, normalize="none", statistics="row")
    by_episode = episode_term(totals, ["g"] * 55, keys, normalize="none")
    np.testing.assert_allclose(by_row[[0, -1]], [10 - 50 / 55, -50 / 55])
    np.testing.assert_allclose(by_episode[[0, -1]], [5.0, -5.0])


def test_discounted_and_total_returns_by_hand() -> None:
    rewards, keys = [1.0, 5.0, 2.0, 3.0], ["a", "b", "a", "a"]
    np.testing.assert_allclose(discounted_returns(rewards, keys, 0.5), [1 + 0.5 * 3.5, 5.0, 3.5, 3.0])
    np.testing.assert_allclose(total_returns(rewards, keys), [6.0, 5.0, 6.0, 6.0])


def _two_episodes() -> tuple[list[float], list[str], list[str], list[str]]:
    rewards = [0.0, 1.0, 0.0, 0.0]
    return rewards, ["g"] * 4, ["won", "won", "lost", "lost"], ["door", "hall", "door", "door"]


def test_gigpo_by_hand() -> None:
    result = gigpo(*_two_episodes(), discount=0.5, step_weight=2.0, normalize="none")
    np.testing.assert_allclose(result.episode, [0.5, 0.5, -0.5, -0.5])
    # Returns from "door": 0.5, 0, 0 -> mean 1/6; "hall" occurs once.
    np.testing.assert_allclose(result.step, [1 / 3, 0.0, -1 / 6, -1 / 6])
    np.testing.assert_allclose(result.total, result.episode + 2.0 * result.step)
    assert result.state_groups.tolist() == [0, 1, 0, 0]


def test_step_terms_sum_to_zero_in_every_state_without_std() -> None:
    rng = np.random.default_rng(0)
    keys = np.repeat(np.arange(8), 10)
    states = [str(s) for s in rng.integers(0, 4, 80)]
    result = gigpo(rng.normal(size=80), keys // 4, keys, states, normalize="none")
    sums = np.bincount(result.state_groups, result.step)
    np.testing.assert_allclose(sums, 0.0, atol=1e-12)
    assert np.abs(result.step).max() > 0.1


def test_without_repeated_states_gigpo_is_grpo() -> None:
    rng = np.random.default_rng(1)
    rewards, keys = rng.normal(size=30), np.repeat(np.arange(6), 5)
    result = gigpo(rewards, keys // 3, keys, [str(i) for i in range(30)])
    totals = total_returns(rewards, keys)[::5]
    np.testing.assert_allclose(result.total, np.repeat(grpo(totals, np.arange(6) // 3), 5), rtol=1e-12)


def test_equal_states_of_different_tasks_stay_apart() -> None:
    together = gigpo([1.0, 0.0], ["g", "h"], ["a", "b"], ["same", "same"])
    assert together.total.tolist() == [0.0, 0.0]
    assert together.state_groups[0] != together.state_groups[1]


@pytest.mark.parametrize("normalize", ["std", "none"])
def test_a_penalty_moves_only_its_own_turn(normalize: str) -> None:
    arguments = _two_episodes()
    clean = gigpo(*arguments, normalize=normalize)  # type: ignore[arg-type]
    fined = gigpo(*arguments, normalize=normalize, penalties=[0.0, 0.0, 0.1, 0.0])  # type: ignore[arg-type]
    changed = fined.total - clean.total
    assert changed[2] < -0.1
    assert changed[[0, 1, 3]].tolist() == [0.0, 0.0, 0.0]


def test_a_penalty_in_a_group_without_spread_is_not_blown_up() -> None:
    fined = grpo([0.0, 0.0, 0.0], ["g"] * 3, penalties=[0.1, 0.0, 0.0])
    assert fined.tolist() == [-0.1, 0.0, 0.0]


def test_a_penalty_divides_by_the_spread_of_its_group() -> None:
    fined = grpo([0.0, 2.0], ["g"] * 2, penalties=[0.5, 0.0])
    np.testing.assert_allclose(fined, [(0.0 - 0.5 - 1.0) / np.sqrt(2), 1 / np.sqrt(2)], rtol=1e-5)


def test_similar_states_open_clusters_in_order_and_per_group() -> None:
    texts = ["a red mug", "a red mug.", "a blue lamp", "a red mug"]
    assert similar_states(texts, ["g", "g", "g", "h"], 0.9).tolist() == [0, 0, 1, 2]
    assert similar_states(texts, ["g"] * 4, 1.0).tolist() == [0, 1, 2, 0]


def test_gae_steps_over_observations() -> None:
    values, rewards, mask = [[0.5, 99.0, 0.25]], [[0.0, 0.0, 1.0]], [[1, 0, 1]]
    advantages, returns = gae(rewards, values, mask, discount=0.9, trace=0.5)
    last = 1.0 - 0.25
    first = 0.9 * 0.25 - 0.5 + 0.9 * 0.5 * last
    np.testing.assert_allclose(advantages, [[first, 0.0, last]])
    np.testing.assert_allclose(returns, [[first + 0.5, 0.0, 1.0]])
    with pytest.raises(ValueError, match="outside the mask"):
        gae([[0.0, 1.0, 0.0]], values, mask)
    with pytest.raises(ValueError, match=r"trace is 1\.5"):
        gae(rewards, values, mask, trace=1.5)


def test_gae_without_gaps_is_gae_of_the_trainable_tokens() -> None:
    rng = np.random.default_rng(0)
    mask = rng.random((4, 9)) < 0.6
    rewards, values = rng.normal(size=(4, 9)) * mask, rng.normal(size=(4, 9))
    chains = np.nonzero(mask)[0]
    whole = gae(rewards, values, mask, discount=0.9, trace=0.8)
    order = rng.permutation(4)  # The tokens of a chain keep their order, chains may come in any.
    mixed = np.concatenate([np.flatnonzero(chains == chain) for chain in order])
    flat = flat_gae(rewards[mask][mixed], values[mask][mixed], chains[mixed], discount=0.9, trace=0.8)
    for ours, expected in zip(flat, whole, strict=True):
        np.testing.assert_allclose(ours, expected[mask][mixed])


@pytest.mark.parametrize("constant", [0.0, 0.7])
def test_gae_of_a_constant_critic_is_monte_carlo(constant: float) -> None:
    """With discount and trace 1 all values but the first cancel: what remains is the return minus it."""
    rewards = np.array([0.0, 1.0, 0.0, 2.0, 5.0])
    chains = ["a", "a", "b", "a", "b"]
    advantages, returns = flat_gae(rewards, np.full(5, constant), chains)
    np.testing.assert_allclose(returns, [3.0, 3.0, 5.0, 2.0, 5.0])
    np.testing.assert_allclose(advantages, np.array([3.0, 3.0, 5.0, 2.0, 5.0]) - constant)


def test_whitened_values_have_mean_0_and_variance_1() -> None:
    white = whiten([1.0, 2.0, 6.0, 50.0], [1, 1, 1, 0])
    # Mean 3, variance (4 + 1 + 9) / 2 = 7.
    np.testing.assert_allclose(white, [-2 / 7**0.5, -1 / 7**0.5, 3 / 7**0.5, 0.0], rtol=1e-8)
    assert whiten([3.0]).tolist() == [0.0]
    assert whiten([]).tolist() == []


def test_reinforce_pp_by_hand() -> None:
    # Returns to go with discount 0.5: a: 1 + 0.5 * 2 = 2, 2; b: 4. Mean 8/3, deviations 2/3, 2/3, 4/3: variance
    # (4 + 4 + 16) / 9 / 2 = 4/3.
    found = reinforce_pp([1.0, 4.0, 2.0], ["a", "b", "a"], discount=0.5)
    np.testing.assert_allclose(found, np.array([-2 / 3, 4 / 3, -2 / 3]) / ((4 / 3) ** 0.5 + 1e-6))
    assert reinforce_pp([1.0, 1.0], ["a", "b"]).tolist() == [0.0, 0.0]


def test_reinforce_pp_weights_count_rows_several_times() -> None:
    weighted = reinforce_pp([1.0, 3.0], ["a", "b"], weights=[2, 1])
    repeated = reinforce_pp([1.0, 1.0, 3.0], ["a", "c", "b"])
    np.testing.assert_allclose(weighted, repeated[[0, 2]])


def test_reinforce_pp_with_baseline_by_hand() -> None:
    # Group g: returns 0 and 2, mean 1, centred -1 and 1. Group h: 5 and 5, says nothing. Group i: one episode alone.
    # Over the telling rows -1, 1, 1 (episode b has two turns): mean 1/3, variance (16 + 4 + 4) / 9 / 2 = 4/3.
    rewards = [0.0, 0.0, 2.0, 5.0, 5.0, 9.0]
    found = reinforce_pp_baseline(rewards, ["g", "g", "g", "h", "h", "i"], ["a", "b", "b", "c", "d", "e"])
    scale = (4 / 3) ** 0.5 + 1e-6
    np.testing.assert_allclose(found, [-4 / 3 / scale, 2 / 3 / scale, 2 / 3 / scale, 0.0, 0.0, 0.0])
    assert found[3:].tolist() == [0.0, 0.0, 0.0]


def test_bad_input_is_named() -> None:
    with pytest.raises(ValueError, match=r"returns\[1\] is nan"):
        grpo([0.0, float("nan")], [0, 0])
    with pytest.raises(ValueError, match="lengths differ"):
        grpo([0.0, 1.0], [0])
    with pytest.raises(ValueError, match="two groups"):
        gigpo([0.0, 1.0], ["g", "h"], ["t", "t"], ["s", "s"])
    with pytest.raises(ValueError, match=r"discount is 1\.5"):
        discounted_returns([1.0], ["t"], 1.5)
    with pytest.raises(ValueError, match="penalties has a negative value"):
        grpo([0.0, 1.0], [0, 0], penalties=[-0.1, 0.0])


def test_no_rows_give_no_advantages() -> None:
    assert len(grpo([], [])) == 0
    assert len(gigpo([], [], [], []).total) == 0
