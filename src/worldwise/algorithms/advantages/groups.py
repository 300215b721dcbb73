"""Statistics within groups, shared by the group-relative estimators."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

Float = NDArray[np.float64]
Int = NDArray[np.int64]
Normalize = Literal["std", "none", "leave_one_out"]

EPSILON = 1e-6
"""Added to the standard deviation, as in the public GiGPO release and in verl."""


def codes(keys: Sequence[Hashable] | NDArray[np.int64]) -> Int:
    """int64 [N]: keys numbered from 0 in order of first appearance (equal keys, equal number)."""
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.int64)


def finite(name: str, values: ArrayLike) -> Float:
    """`values` as float64 [N].

    Raises:
        ValueError: not one-dimensional, or a value is NaN or infinite (it would poison its whole group).
    """
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1:
        raise ValueError(f"{name} has shape {array.shape}: give one number per row, shape [N]")
    if not np.isfinite(array).all():
        where = int(np.flatnonzero(~np.isfinite(array))[0])
        raise ValueError(
            f"{name}[{where}] is {array[where]}: it must be finite; leave out episodes without a valid reward"
        )
    return array


@dataclass(frozen=True, slots=True)
class GroupStatistics:
    """Per group g (all arrays [G]).

    Attributes:
        size: float64, members (or the sum of their weights).
        mean: float64.
        std: float64, unbiased (n - 1); 0 for a group of one.
        constant: bool, all members are equal. Decided by comparing the values, not by std == 0:
            rounding in the mean can leave a std of 1e-17 and blow up the quotient.
        alone: bool, the group has one member.
    """

    size: Float
    mean: Float
    std: Float
    constant: NDArray[np.bool_]
    alone: NDArray[np.bool_]


def group_statistics(values: Float, groups: Int, weights: Float | None = None) -> GroupStatistics:
    """Statistics of `values` within each group.

    Args:
        values: float64 [N].
        groups: int64 [N], 0..G-1 without gaps (`codes`).
        weights: float64 [N], how many times each value counts (None = once). Giving each trajectory
            its number of turns yields the statistics over turn rows that the public GiGPO release uses.
    """
    count = int(groups.max()) + 1 if len(groups) else 0
    members = np.bincount(groups, minlength=count)
    times = np.ones_like(values) if weights is None else weights
    size = np.bincount(groups, times, count).astype(np.float64)
    mean = np.bincount(groups, times * values, count) / size
    squares = np.bincount(groups, times * (values - mean[groups]) ** 2, count)
    std = np.sqrt(squares / np.maximum(size - 1.0, 1.0)) * (size > 1)
    low, high = np.full(count, np.inf), np.full(count, -np.inf)
    np.minimum.at(low, groups, values)
    np.maximum.at(high, groups, values)
    return GroupStatistics(size, mean, std, low == high, members == 1)


def check_lengths(**arrays: Sequence[object] | NDArray[np.generic]) -> None:
    """Raise ValueError unless all have the same length."""
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"lengths differ: {lengths}; give one value per row for each")
