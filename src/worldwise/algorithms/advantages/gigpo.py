"""GiGPO: group-in-group policy optimisation (arXiv:2505.10978, Eq. 3-8).

Episode term A^E: GRPO over the episodes of a task. Step term A^S: the same comparison between all turns of
the group that were taken in the same state, by their discounted returns. A = A^E + omega * A^S. States that
do not repeat
add nothing: without repeats GiGPO is GRPO.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from worldwise.algorithms.advantages.groups import (
    EPSILON,
    Float,
    Int,
    Normalize,
    check_lengths,
    codes,
    finite,
    group_statistics,
)
from worldwise.algorithms.advantages.grpo import grpo, subtract_penalties
from worldwise.algorithms.advantages.returns import discounted_returns, total_returns

Statistics = Literal["trajectory", "row"]


@dataclass(frozen=True, slots=True)
class GigpoAdvantages:
    """Per turn row (all arrays [N]).

    Attributes:
        total: float64, episode + omega * step.
        episode: float64, A^E.
        step: float64, A^S, before omega.
        state_groups: int64, number of the row's state group. Their sizes tell whether the step term can
            say anything: if most are 1, GiGPO is GRPO here.
    """

    total: Float
    episode: Float
    step: Float
    state_groups: Int


def gigpo(
    rewards: ArrayLike,
    groups: Sequence[Hashable] | NDArray[np.int64],
    trajectories: Sequence[Hashable] | NDArray[np.int64],
    states: Sequence[Hashable],
    *,
    discount: float = 0.95,
    step_weight: float = 1.0,
    normalize: Normalize = "std",
    statistics: Statistics = "trajectory",
    penalties: ArrayLike | None = None,
    lone_raw: bool = False,
    step_factors: ArrayLike | None = None,
    costs: ArrayLike | None = None,
    epsilon: float = EPSILON,
) -> GigpoAdvantages:
    """GiGPO advantages of turns with exactly matched states.

    Args:
        rewards: [N], world reward of each turn; the turns of a trajectory in order.
        groups: [N], key of the task group.
        trajectories: [N], key of the episode (unique over groups).
        states: [N], the state in which the turn was taken, for example the raw observation text
            without history, step counters or command list. Compared only within a group.
        discount: gamma of the step returns (Eq. 5), [0, 1]; 0.95 in the paper's runs.
        step_weight: omega (Eq. 8), 1 in the paper.
        normalize: `std` ("w/ std"), `none` ("w/o std") or `leave_one_out`.
        statistics: `trajectory` counts every episode once in the mean and std of Eq. 3, as the paper
            says; `row` counts it once per turn and lets penalties enter the statistics, as the public
            release does (long failures then pull the baseline down).
        penalties: [N] >= 0, for a badly formed response. Subtracted from the row's own episode return
            and own step return after returns are computed: it never reaches earlier turns. With
            `trajectory` it also leaves the statistics alone, so no other row changes; see `grpo` for its
            scale.
        lone_raw: see `grpo`.
        step_factors: [N], what the discounted return of each turn is multiplied by before it is compared (Role-Agent's
            1 + R_pre, see `world_in_agent`); None = 1. The episode term knows nothing of them.
        costs: [N], taken off the reward of each turn (a KL in the reward), see `grpo`.
        epsilon: added to the standard deviation.

    Raises:
        ValueError: lengths differ, a value is not finite, or a trajectory belongs to two groups.
    """
    paid = finite("rewards", rewards)
    check_lengths(rewards=paid, groups=groups, trajectories=trajectories, states=states)
    group, trajectory = codes(groups), codes(trajectories)
    state = codes(list(zip(group.tolist(), states, strict=True)))
    episode = episode_term(
        total_returns(paid, trajectory),
        group,
        trajectory,
        normalize=normalize,
        statistics=statistics,
        penalties=penalties,
        costs=None if costs is None else total_returns(costs, trajectory),
        lone_raw=lone_raw,
        epsilon=epsilon,
    )
    followed = discounted_returns(paid, trajectory, discount)
    if step_factors is not None:
        factors = finite("step_factors", step_factors)
        check_lengths(rewards=paid, step_factors=factors)
        followed = followed * factors
    step = step_term(
        followed,
        state,
        normalize=normalize,
        penalties=penalties,
        shared_penalties=statistics == "row",
        costs=None if costs is None else discounted_returns(costs, trajectory, discount),
        epsilon=epsilon,
    )
    return GigpoAdvantages(episode + step_weight * step, episode, step, state)


def episode_term(
    totals: ArrayLike,
    groups: Sequence[Hashable] | NDArray[np.int64],
    trajectories: Sequence[Hashable] | NDArray[np.int64],
    *,
    normalize: Normalize = "std",
    statistics: Statistics = "trajectory",
    penalties: ArrayLike | None = None,
    costs: ArrayLike | None = None,
    lone_raw: bool = False,
    epsilon: float = EPSILON,
) -> Float:
    """A^E of each turn row (Eq. 3): GRPO of the episode, spread over its turns.

    Args:
        totals: [N], return of the row's episode, equal for all rows of a trajectory.
        groups, trajectories, normalize, statistics, penalties, lone_raw, epsilon: see `gigpo`.
        costs: [N], total of the row's episode, equal for all rows of a trajectory.

    Returns:
        float64 [N].

    Raises:
        ValueError: lengths differ, a value is not finite, or a trajectory belongs to two groups.
    """
    values = finite("totals", totals)
    check_lengths(totals=values, groups=groups, trajectories=trajectories)
    group, trajectory = codes(groups), codes(trajectories)
    _, first = np.unique(trajectory, return_index=True)
    if (group != group[first][trajectory]).any():
        raise ValueError("a trajectory appears in two groups: make trajectory keys unique over groups")
    if statistics == "row":
        shared = values if penalties is None else values - finite("penalties", penalties)
        return grpo(shared, group, normalize=normalize, costs=costs, lone_raw=lone_raw, epsilon=epsilon)
    paid = None if costs is None else finite("costs", costs)[first]
    once = grpo(values[first], group[first], normalize=normalize, costs=paid, lone_raw=lone_raw, epsilon=epsilon)
    spread = group_statistics(values[first], group[first])
    return subtract_penalties(once[trajectory], penalties, group, spread, normalize, epsilon)


def step_term(
    followed: ArrayLike,
    state_groups: Sequence[Hashable] | NDArray[np.int64],
    *,
    normalize: Normalize = "std",
    penalties: ArrayLike | None = None,
    shared_penalties: bool = False,
    costs: ArrayLike | None = None,
    epsilon: float = EPSILON,
) -> Float:
    """A^S of each turn row (Eq. 6-7); 0 for a state that occurs once in its group.

    Args:
        followed: [N], discounted return from the turn on.
        state_groups: [N], rows with equal keys were taken in one state of one task group.
        normalize, penalties, epsilon: see `gigpo`.
        shared_penalties: let the penalties enter the statistics of the state group.
        costs: [N], discounted costs from the turn on, see `grpo`.

    Returns:
        float64 [N].
    """
    values, state = finite("followed", followed), codes(state_groups)
    check_lengths(followed=values, state_groups=state)
    if penalties is not None and shared_penalties:
        kept = values - finite("penalties", penalties)
        return grpo(kept, state, normalize=normalize, costs=costs, epsilon=epsilon)
    advantages = grpo(values, state, normalize=normalize, penalties=penalties, costs=costs, epsilon=epsilon)
    alone = np.bincount(state)[state] == 1 if len(state) else np.zeros(0, dtype=bool)
    return np.where(alone, 0.0, advantages)
