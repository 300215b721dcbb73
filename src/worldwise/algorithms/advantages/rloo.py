"""RLOO: REINFORCE with a leave-one-out baseline (arXiv:2402.14740, Eq. 8).

A_i = R_i - mean of the other returns of the group = n / (n - 1) * (R_i - mean of all).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from worldwise.algorithms.advantages.groups import Float
from worldwise.algorithms.advantages.grpo import grpo


def rloo(
    returns: ArrayLike,
    groups: Sequence[Hashable] | NDArray[np.int64],
    *,
    weights: ArrayLike | None = None,
    penalties: ArrayLike | None = None,
    lone_raw: bool = False,
) -> Float:
    """Leave-one-out advantage of each row; arguments, result and errors as in `grpo`."""
    return grpo(returns, groups, normalize="leave_one_out", weights=weights, penalties=penalties, lone_raw=lone_raw)
