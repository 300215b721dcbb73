"""GRPO (DeepSeekMath, arXiv:2402.03300, section 4.1.2) and Dr.GRPO (arXiv:2503.20783).

A_i = (R_i - mean_group R) / (std_group R + 1e-6), unbiased std. `normalize="none"` leaves the division
out: the Dr.GRPO advantage, and the "w/o std" variant of GiGPO.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from worldwise.algorithms.advantages.groups import (
    EPSILON,
    Float,
    GroupStatistics,
    Normalize,
    check_lengths,
    codes,
    finite,
    group_statistics,
)


def grpo(
    returns: ArrayLike,
    groups: Sequence[Hashable] | NDArray[np.int64],
    *,
    normalize: Normalize = "std",
    weights: ArrayLike | None = None,
    penalties: ArrayLike | None = None,
    costs: ArrayLike | None = None,
    lone_raw: bool = False,
    epsilon: float = EPSILON,
) -> Float:
    """Group-relative advantage of each row.

    A row is an episode, a prediction, or (to reproduce the public release, whose statistics run over
    turn rows) a turn that carries its episode's return.

    Args:
        returns: [N], undiscounted return of each row.
        groups: [N], rows with equal keys form a group.
        normalize: `std`, `none`, or `leave_one_out` (see `rloo`).
        weights: [N], how often a row counts in the statistics (None = once).
        penalties: [N] >= 0, subtracted from the row's own return after the statistics are taken, so
            that a penalty moves only its own row. Where the group has no spread it is subtracted as
            it is: dividing by a standard deviation of 0 would turn 0.1 into 100,000. To reproduce
            the public release, subtract penalties from `returns` instead, so that they enter the
            statistics of the rows.
        costs: [N], taken off the returns (a KL in the reward) without a say in what their group's spread is. Where all
            returns are equal they count for nothing: on a scale made of them alone, noise would be all that is learned.
        lone_raw: a group of one has advantage 0; True gives it its own return, as the public
            releases of verl and GiGPO do (there mean = 0 and std = 1).
        epsilon: added to the standard deviation.

    Returns:
        float64 [N]. A group whose returns are all equal gets exactly 0 (minus the penalties).

    Raises:
        ValueError: lengths differ, or a value is not finite.
    """
    values = finite("returns", returns)
    times = None if weights is None else finite("weights", weights)
    check_lengths(returns=values, groups=groups, weights=values if times is None else times)
    number = codes(groups)
    statistics = group_statistics(values, number, times)
    advantages = relative(values, number, statistics, normalize, epsilon)
    if lone_raw:
        lone = statistics.alone[number] & (statistics.size[number] == 1)
        advantages = np.where(lone, values / (1.0 + epsilon) if normalize == "std" else values, advantages)
    advantages = subtract_costs(advantages, costs, number, times, statistics, normalize, epsilon)
    return subtract_penalties(advantages, penalties, number, statistics, normalize, epsilon)


def subtract_costs(
    advantages: Float,
    costs: ArrayLike | None,
    groups: NDArray[np.int64],
    weights: Float | None,
    statistics: GroupStatistics,
    normalize: Normalize,
    epsilon: float,
) -> Float:
    """Each row's advantage minus its cost above the group's mean cost, on the scale of the group's returns."""
    if costs is None:
        return advantages
    own = finite("costs", costs)
    check_lengths(returns=advantages, costs=own)
    mean = group_statistics(own, groups, weights).mean
    centred = np.where(statistics.constant[groups], 0.0, own - mean[groups])
    if normalize == "std":
        return advantages - centred / (statistics.std[groups] + epsilon)
    if normalize == "leave_one_out":
        size = statistics.size[groups]
        return advantages - centred * size / np.maximum(size - 1.0, 1.0)
    return advantages - centred


def relative(
    values: Float, groups: NDArray[np.int64], statistics: GroupStatistics, normalize: Normalize, epsilon: float
) -> Float:
    """(value - mean) / scale of each row; exactly 0 in groups without spread."""
    centred = np.where(statistics.constant[groups], 0.0, values - statistics.mean[groups])
    if normalize == "std":
        return centred / (statistics.std[groups] + epsilon)
    if normalize == "leave_one_out":
        size = statistics.size[groups]
        return centred * size / np.maximum(size - 1.0, 1.0)
    return centred


def subtract_penalties(
    advantages: Float,
    penalties: ArrayLike | None,
    groups: NDArray[np.int64],
    statistics: GroupStatistics,
    normalize: Normalize,
    epsilon: float,
) -> Float:
    """Each row's advantage minus its own penalty on the group's scale (scale 1 where there is no spread)."""
    if penalties is None:
        return advantages
    own = finite("penalties", penalties)
    check_lengths(returns=advantages, penalties=own)
    if (own < 0).any():
        raise ValueError(f"penalties has a negative value {own.min()}: give amounts to subtract, >= 0")
    if normalize != "std":
        return advantages - own
    scale = np.where(statistics.constant, 1.0, statistics.std + epsilon)
    return advantages - own / scale[groups]
