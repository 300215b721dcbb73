"""REINFORCE++ and its variant with a group baseline (arXiv:2501.03262, sections 3.1 and 3.2).

Plain returns, without a critic, brought to one scale over the whole batch instead of within groups:

    A_t = (G_t - mean_batch G) / std_batch G,     G_t = sum over k >= t of discount^(k - t) r_k     (REINFORCE++)
    A_t = (B_t - mean_batch B) / std_batch B,     B_t = G_t - mean of the group's episode returns   (with baseline)

The rewards carry the KL penalty, `r_k = r - beta * log(pi / pi_ref)`, where one is wanted in the reward.
A batch in which all values are equal says nothing and gets exactly 0.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from worldwise.algorithms.advantages.groups import EPSILON, Float, check_lengths, codes, finite, group_statistics
from worldwise.algorithms.advantages.returns import discounted_returns, total_returns


def reinforce_pp(
    rewards: ArrayLike,
    trajectories: Sequence[Hashable] | NDArray[np.int64],
    *,
    discount: float = 1.0,
    weights: ArrayLike | None = None,
    penalties: ArrayLike | None = None,
    epsilon: float = EPSILON,
) -> Float:
    """Returns-to-go of rows (turns or tokens), normalised over the batch.

    Args:
        rewards: [N], the rows of a trajectory in their order. A reward that came behind an observation belongs to the
            last trainable row before it.
        trajectories: [N], key of the episode of each row.
        discount: gamma, [0, 1].
        weights: [N], how often a row counts in mean and deviation, for example its tokens (None = once).
        penalties: [N] >= 0, subtracted from the row's own advantage on the batch's scale, once mean and deviation are
            taken (scale 1 where the batch has no spread).
        epsilon: added to the standard deviation.

    Returns:
        float64 [N].

    Raises:
        ValueError: lengths differ, a value is not finite, or `discount` is outside [0, 1].
    """
    followed = discounted_returns(rewards, trajectories, discount)
    return over_batch(followed, weights, epsilon, penalties)


def reinforce_pp_baseline(
    rewards: ArrayLike,
    groups: Sequence[Hashable] | NDArray[np.int64],
    trajectories: Sequence[Hashable] | NDArray[np.int64],
    *,
    weights: ArrayLike | None = None,
    penalties: ArrayLike | None = None,
    costs: ArrayLike | None = None,
    epsilon: float = EPSILON,
) -> Float:
    """Episode returns minus their group's mean, normalised over the batch.

    Groups whose returns are all equal, and groups of one, have exactly 0 before the batch's mean is taken off, and
    are left out of it: they stay exactly 0.

    Args:
        rewards: [N], of turn rows.
        groups: [N], key of the task group; every episode counts once in its group's mean.
        trajectories: [N], key of the episode.
        weights, penalties, epsilon: as for `reinforce_pp`.
        costs: [N], taken off the rewards (a KL in the reward); they do not say which groups differ.

    Returns:
        float64 [N], equal for all rows of an episode.

    Raises:
        ValueError: lengths differ, or a value is not finite.
    """
    totals = total_returns(rewards, trajectories)
    check_lengths(rewards=totals, groups=groups)
    group, trajectory = codes(groups), codes(trajectories)
    _, first = np.unique(trajectory, return_index=True)
    statistics = group_statistics(totals[first], group[first])
    telling = ~statistics.constant[group]
    centred = np.where(telling, totals - statistics.mean[group], 0.0)
    if costs is not None:
        paid = total_returns(costs, trajectories)
        mean = group_statistics(paid[first], group[first]).mean
        centred -= np.where(telling, paid - mean[group], 0.0)
    times = np.ones_like(totals) if weights is None else finite("weights", weights)
    found = over_batch(centred, times * telling, epsilon, penalties)
    # Rows of groups that tell nothing keep their own penalty and nothing else.
    kept = over_batch(np.where(telling, centred, 0.0), times * telling, epsilon)
    return np.where(telling, found, found - kept)


def over_batch(
    values: Float, weights: ArrayLike | None = None, epsilon: float = EPSILON, penalties: ArrayLike | None = None
) -> Float:
    """(value - mean) / (std + epsilon) with the batch's weighted mean and unbiased deviation; 0 without spread.

    Penalties are subtracted on the same scale, 1 without spread.
    """
    times = np.ones_like(values) if weights is None else finite("weights", weights)
    own = np.zeros_like(values) if penalties is None else finite("penalties", penalties)
    check_lengths(values=values, weights=times, penalties=own)
    counted = values[times > 0]
    if not len(counted) or counted.min() == counted.max():
        return -own
    mean = float(np.average(values, weights=times))
    deviation = np.sqrt((times * (values - mean) ** 2).sum() / max(times.sum() - 1.0, 1.0))
    return (values - mean - own) / (float(deviation) + epsilon)
