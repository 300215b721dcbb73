"""Success counts and their confidence intervals."""

from __future__ import annotations

import math
from collections.abc import Iterable

from worldwise.config import FrozenConfig

Z_95 = 1.959963984540054
"""Two-sided 95 % quantile of the standard normal distribution."""


def wilson(successes: int, count: int, z: float = Z_95) -> tuple[float, float]:
    """Wilson's score interval of a proportion, in [0, 1] (E. B. Wilson, JASA 22, 1927).

    It keeps its meaning at 0 and `count` successes, where the usual interval has no width.
    Nothing seen (`count` 0) says nothing: (0, 1).

    Raises:
        ValueError: `successes` outside 0..count.
    """
    if not 0 <= successes <= count:
        raise ValueError(f"successes is {successes} of count {count}: give 0 <= successes <= count")
    if count == 0:
        return 0.0, 1.0
    share, square = successes / count, z * z
    centre = (share + square / (2 * count)) / (1 + square / count)
    half = z / (1 + square / count) * math.sqrt(share * (1 - share) / count + square / (4 * count * count))
    return max(0.0, centre - half), min(1.0, centre + half)


class Proportion(FrozenConfig):
    """A share with the counts behind it and its 95 % Wilson interval.

    Attributes:
        successes, count: what was counted.
        share: successes / count, 0 where nothing was counted.
        low, high: the interval, in [0, 1].
    """

    successes: int
    count: int
    share: float
    low: float
    high: float


def proportion(outcomes: Iterable[bool]) -> Proportion:
    """The share of true outcomes."""
    values = list(outcomes)
    return counted(sum(values), len(values))


def counted(successes: int, count: int) -> Proportion:
    """The share of `successes` in `count`."""
    low, high = wilson(successes, count)
    share = successes / count if count else 0.0
    return Proportion(successes=successes, count=count, share=share, low=low, high=high)


def pooled(parts: Iterable[Proportion]) -> Proportion:
    """Several counts taken together."""
    known = list(parts)
    return counted(sum(part.successes for part in known), sum(part.count for part in known))


def differ(first: Proportion, second: Proportion) -> bool:
    """Whether two shares are further apart than their intervals can explain.

    Uses Newcombe's interval of a difference built from the two Wilson intervals (R. G. Newcombe,
    Statistics in Medicine 17, 1998, method 10): true where that interval leaves out 0.
    """
    low, high = difference_interval(first, second)
    return low > 0.0 or high < 0.0


def difference_interval(first: Proportion, second: Proportion) -> tuple[float, float]:
    """Newcombe's 95 % interval of `second.share - first.share`, in [-1, 1]."""
    gap = second.share - first.share
    low = gap - math.hypot(second.share - second.low, first.high - first.share)
    high = gap + math.hypot(second.high - second.share, first.share - first.low)
    return max(-1.0, low), min(1.0, high)
