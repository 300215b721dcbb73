"""Returns of turns."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from worldwise.algorithms.advantages.groups import Float, check_lengths, codes, finite


def discounted_returns(
    rewards: ArrayLike, trajectories: Sequence[Hashable] | NDArray[np.int64], discount: float
) -> Float:
    """R_t = sum over k >= t of discount^(k - t) * r_k, within each trajectory (GiGPO Eq. 5).

    Args:
        rewards: [N], one per turn; the turns of one trajectory in order (other trajectories may
            stand between them).
        trajectories: [N], key of the trajectory of each turn.
        discount: gamma, [0, 1].

    Returns:
        float64 [N].

    Raises:
        ValueError: lengths differ, a reward is not finite, or `discount` is outside [0, 1].
    """
    values = finite("rewards", rewards)
    check_lengths(rewards=values, trajectories=trajectories)
    if not 0.0 <= discount <= 1.0:
        raise ValueError(f"discount is {discount}: allowed are values from 0 to 1")
    number = codes(trajectories)
    following = np.zeros(int(number.max()) + 1 if len(number) else 0)
    returns = np.empty_like(values)
    for row in range(len(values) - 1, -1, -1):
        following[number[row]] = values[row] + discount * following[number[row]]
        returns[row] = following[number[row]]
    return returns


def total_returns(rewards: ArrayLike, trajectories: Sequence[Hashable] | NDArray[np.int64]) -> Float:
    """float64 [N]: the undiscounted return of its trajectory, for each turn (GiGPO Eq. 3)."""
    values = finite("rewards", rewards)
    check_lengths(rewards=values, trajectories=trajectories)
    number = codes(trajectories)
    return np.bincount(number, values).astype(np.float64)[number]
