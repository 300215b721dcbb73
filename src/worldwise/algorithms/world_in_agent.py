"""World-In-Agent: an agent that foresees what its actions bring earns more where it succeeds (Role-Agent).

    r_{t,h}   = similarity of the predicted and the real observation s_{t+h}, in [0, 1]
    R_pre(t)  = sum_{h=1..H} gamma^(h-1) r_{t,h}
    R_t       = R_task(t) (1 + R_pre(t))            paper: in the step term of GiGPO
    r_t      <- r_t (1 + 0.2 r_{t,1})               released code: on the immediate reward

Multiplied, not added: an episode that earns nothing earns nothing by foresight either. The similarity is
`rewards.text.text_ratio`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from worldwise.algorithms.advantages.groups import Float, finite


def horizon(turn_limit: int) -> int:
    """H: 5 % of the turn limit, rounded half to even, at least 1 (50 turns: 2, 30: 2, 15: 1, 4: 1)."""
    return max(1, round(turn_limit / 20))


def foresight_return(scores: Sequence[float | None], gamma: float, normalized: bool = False) -> float:
    """R_pre of a turn.

    Args:
        scores: [H], similarity of each prediction in [0, 1]; None where the episode was over before.
        gamma: discount, [0, 1].
        normalized: divide by the sum of the discounts of what could be scored, so that it lies in [0, 1]. Without it
            the largest value grows with H: 1 for H = 1, 1.95 for 2, 4.5 for 5 at gamma 0.95.

    Raises:
        ValueError: a score or gamma is out of range.
    """
    if not 0.0 <= gamma <= 1.0:
        raise ValueError(f"gamma is {gamma}: allowed are values from 0 to 1")
    total, largest = 0.0, 0.0
    for number, score in enumerate(scores):
        if score is None:
            continue
        if not 0.0 <= score <= 1.0:
            raise ValueError(f"score {number} is {score}: similarities lie in [0, 1]")
        total += gamma**number * score
        largest += gamma**number
    if normalized:
        return total / largest if largest > 0.0 else 0.0
    return total


def step_factors(foresight: ArrayLike) -> Float:
    """float64 [N]: 1 + R_pre, what the step return of each turn is multiplied by."""
    return 1.0 + finite("foresight", foresight)


def reward_factors(scores: ArrayLike, share: float = 0.2) -> Float:
    """float64 [N]: 1 + share r, what the immediate reward of each turn is multiplied by (released code).

    Args:
        scores: [N], similarity of the prediction of the very next observation; 0 where there was none.
        share: 0.2 there.
    """
    return 1.0 + share * finite("scores", scores)


@dataclass(frozen=True, slots=True)
class Correlation:
    """Of foresight and outcome.

    Attributes:
        value: point-biserial correlation, [-1, 1]; None where one of both does not vary.
        p_value: two-sided, of no correlation; None there too.
    """

    value: float | None
    p_value: float | None


def foresight_and_outcome(scores: ArrayLike, successes: Sequence[bool]) -> Correlation:
    """Whether episodes with better predictions succeed more often (the paper reports 0.41 on 200 episodes).

    Args:
        scores: float [E], mean score of each episode.
        successes: [E].
    """
    # Imported here: it takes a second, and commands that only plan a run come by this module.
    from scipy.stats import pearsonr

    values, outcomes = finite("scores", scores), np.asarray(successes, dtype=np.float64)
    if len(values) < 3 or (values == values[0]).all() or (outcomes == outcomes[0]).all():
        return Correlation(None, None)
    found = pearsonr(outcomes, values)
    return Correlation(float(found.statistic), float(found.pvalue))
