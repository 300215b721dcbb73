"""PaW: learning the world inside policy RL, from the transitions that tell most (arXiv:2606.02388).

    L = L_RL(response tokens) + lambda L_WM(observation tokens of selected transitions)
    selected: the top share alpha of an iteration's transitions by the uncertainty of their actions
    lambda   = 1 - mean return / largest return, per group

The token loss is in `losses.world_model`. The paper leaves open how the uncertainty is averaged and what lambda's mean
is taken over; both are choices here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from worldwise.algorithms.advantages.groups import finite

Measure = Literal["entropy", "surprise"]


def uncertainty(
    entropies: ArrayLike, logprobs: ArrayLike, span: tuple[int, int] | None, measure: Measure = "entropy"
) -> float:
    """How undecided the policy was about an action: a mean over tokens, nats.

    Args:
        entropies: float [R], of the distributions that the response's tokens were drawn from.
        logprobs: float [R], of the tokens that were drawn.
        span: [start, end) of the action's own tokens in the response; None, or an empty one (a response without an
            action), takes all of them.
        measure: `entropy`, or `surprise` = -log p of what was drawn.

    Returns:
        0 for an empty response.
    """
    start, end = (0, 0) if span is None else span
    values = np.asarray(entropies if measure == "entropy" else logprobs, dtype=np.float64)
    inside = values[start:end] if end > start else values
    mean = float(inside.mean()) if len(inside) else 0.0
    return mean if measure == "entropy" else -mean


def most_uncertain(values: ArrayLike, alpha: float, rng: np.random.Generator) -> NDArray[np.bool_]:
    """bool [N]: the ceil(alpha N) largest values; equal ones in a random order.

    Args:
        values: float [N].
        alpha: share, [0, 1].
        rng: breaks ties.

    Raises:
        ValueError: alpha out of range, or a value is not finite.
    """
    if not 0.0 <= alpha <= 1.0:
        raise ValueError(f"alpha is {alpha}: allowed are shares from 0 to 1")
    numbers = finite("values", values)
    chosen = np.zeros(len(numbers), dtype=bool)
    order = np.lexsort((rng.permutation(len(numbers)), -numbers))
    # ceil(0.7 * 10) must be 7, whatever 0.7 * 10 is in floating point.
    chosen[order[: math.ceil(round(alpha * len(numbers), 9))]] = True
    return chosen


def group_weights(returns: ArrayLike, groups: Sequence[str], largest: float) -> dict[str, float]:
    """Group -> lambda = clip(1 - mean return / largest return, 0, 1): 1 where all failed, 0 where all succeeded.

    Args:
        returns: float [E], undiscounted return of each episode.
        groups: [E], the group of each.
        largest: the largest return that an episode of this world can have, > 0.

    Raises:
        ValueError: `largest` is not positive, or a return is not finite.
    """
    if not largest > 0.0:
        raise ValueError(f"largest is {largest}: give the world's largest return, > 0")
    numbers = finite("returns", returns)
    members: dict[str, list[float]] = {}
    for group, value in zip(groups, numbers, strict=True):
        members.setdefault(group, []).append(float(value))
    return {group: float(np.clip(1.0 - np.mean(own) / largest, 0.0, 1.0)) for group, own in members.items()}


def moving_weight(before: float | None, returns: ArrayLike, largest: float, decay: float) -> tuple[float, float]:
    """Lambda of a running mean over iterations instead.

    Args:
        before: running mean return before this iteration; None = this is the first.
        returns: float [E], of this iteration's episodes, E > 0.
        largest: as for `group_weights`.
        decay: share of the mean that stays, [0, 1).

    Returns:
        The new running mean, and lambda.
    """
    now = float(finite("returns", returns).mean())
    mean = now if before is None else decay * before + (1.0 - decay) * now
    return mean, float(np.clip(1.0 - mean / largest, 0.0, 1.0))


def shuffled_targets(targets: Sequence[NDArray[np.int32]], rng: np.random.Generator) -> list[NDArray[np.int32]]:
    """Each transition gets the tokens of another one's observation to predict, repeated or cut to its own length: as
    many tokens, as much compute, nothing true.

    Args:
        targets: int32 [n_i] per transition.
        rng: draws the permutation; no transition keeps its own where there are two or more.
    """
    count = len(targets)
    if count < 2:
        return [np.asarray(own) for own in targets]
    order = rng.permutation(count)
    taken = np.empty(count, dtype=np.int64)
    taken[order] = np.roll(order, 1)
    return [
        np.resize(targets[int(source)], len(own)).astype(np.int32) for source, own in zip(taken, targets, strict=True)
    ]
