"""Generalised advantage estimation over tokens (arXiv:1506.02438, Eq. 16), for PPO with a critic."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from worldwise.algorithms.advantages.groups import Float, check_lengths, codes, finite


def gae(
    rewards: ArrayLike, values: ArrayLike, mask: ArrayLike, *, discount: float = 1.0, trace: float = 1.0
) -> tuple[Float, Float]:
    """Advantages and returns of trainable tokens.

    The recursion runs over trainable tokens only: a token between them (an observation, padding) neither
    discounts nor stops what lies behind it, and its value is never read. A reward belongs to
    the last trainable token before it.

    Args:
        rewards: [B, T], reward of each token; must be 0 where `mask` is 0.
        values: [B, T], the critic's values.
        mask: [B, T], 1 on trainable tokens.
        discount: gamma, 0..1, per trainable token.
        trace: lambda, 0..1.

    Returns:
        Advantages and returns (advantages + values), float64 [B, T], 0 where `mask` is 0.

    Raises:
        ValueError: a reward lies outside the mask, or `discount` or `trace` is outside [0, 1].
    """
    paid, valued = np.asarray(rewards, dtype=np.float64), np.asarray(values, dtype=np.float64)
    kept = np.asarray(mask) != 0
    for name, share in (("discount", discount), ("trace", trace)):
        if not 0.0 <= share <= 1.0:
            raise ValueError(f"{name} is {share}: allowed are values from 0 to 1")
    if (paid[~kept] != 0).any():
        raise ValueError("a reward lies on a token outside the mask: put it on the last trainable token before it")
    following, trail = np.zeros(len(valued)), np.zeros(len(valued))
    advantages = np.zeros_like(valued)
    for t in range(valued.shape[1] - 1, -1, -1):
        inside = kept[:, t]
        step = paid[:, t] + discount * following - valued[:, t] + discount * trace * trail
        following = np.where(inside, valued[:, t], following)
        trail = np.where(inside, step, trail)
        advantages[:, t] = np.where(inside, step, 0.0)
    return advantages, np.where(kept, advantages + valued, 0.0)


def flat_gae(
    rewards: ArrayLike,
    values: ArrayLike,
    chains: Sequence[Hashable] | NDArray[np.int64],
    *,
    discount: float = 1.0,
    trace: float = 1.0,
) -> tuple[Float, Float]:
    """The same for trainable tokens that stand one after another, with a key that says which belong together.

    Args:
        rewards, values: [N], of trainable tokens; those of a chain in their order.
        chains: [N], key of the chain (usually an episode) of each token.
        discount, trace: as for `gae`.

    Returns:
        Advantages and returns, float64 [N].

    Raises:
        ValueError: lengths differ, a number is not finite, or as for `gae`.
    """
    paid, valued = finite("rewards", rewards), finite("values", values)
    check_lengths(rewards=paid, values=valued, chains=chains)
    number = codes(chains)
    sizes = np.bincount(number)
    shape = (len(sizes), int(sizes.max(initial=0)))
    # Tokens of a chain may have tokens of others between them: a stable sort brings them together.
    order = np.argsort(number, kind="stable")
    column = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    place = (number[order], column)
    tables = [np.zeros(shape) for _ in range(3)]
    for table, content in zip(tables, (paid[order], valued[order], np.ones(len(order))), strict=True):
        table[place] = content
    found = gae(*tables, discount=discount, trace=trace)
    advantages, returns = np.empty_like(paid), np.empty_like(paid)
    advantages[order], returns[order] = found[0][place], found[1][place]
    return advantages, returns


def whiten(values: ArrayLike, mask: ArrayLike | None = None) -> Float:
    """`values` shifted and scaled to mean 0 and variance 1 (unbiased) over the mask (None = all); 0 elsewhere."""
    given = np.asarray(values, dtype=np.float64)
    kept = np.ones(given.shape, dtype=np.bool_) if mask is None else np.asarray(mask) != 0
    inside = given[kept]
    if not len(inside):
        return np.zeros_like(given)
    variance = inside.var(ddof=1) if len(inside) > 1 else 0.0
    return np.where(kept, (given - inside.mean()) / np.sqrt(variance + 1e-8), 0.0)
