"""How token losses become one number: fixed weights per token, known before the first forward pass.

Every aggregation is a weighted sum over the response tokens of the whole optimizer step. The weights are
computed once over all of them, so the result cannot depend on how the step is cut into micro-batches or
ranks.

    token_mean            1 / N                          DAPO, arXiv:2503.14476, Eq. 8
    seq_mean_token_mean   1 / (S * tokens of own unit)   GRPO, arXiv:2402.03300, Eq. 3
    seq_mean_token_sum    1 / S
    constant              1 / (S * length)               Dr.GRPO, arXiv:2503.20783, section 3.2

N tokens, S units. A unit is whatever the caller numbers: an episode, a sequence, a prediction or a turn.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from worldwise.algorithms.losses.choices import Aggregation


def token_weights(
    units: NDArray[np.int64], aggregation: Aggregation, constant_length: int | None = None
) -> NDArray[np.float64]:
    """The weight of each token's loss.

    Args:
        units: int64 [N], unit of each response token of the optimizer step.
        aggregation: one of the four rules above.
        constant_length: the length that `constant` divides by, usually the most tokens a unit may have.

    Returns:
        float64 [N].

    Raises:
        ValueError: unknown aggregation, or `constant` without a positive length.
    """
    if len(units) == 0:
        return np.zeros(0)
    _, inverse, sizes = np.unique(units, return_inverse=True, return_counts=True)
    if aggregation == "token_mean":
        return np.full(len(units), 1.0 / len(units))
    if aggregation == "seq_mean_token_mean":
        return 1.0 / (len(sizes) * sizes[inverse])
    if aggregation == "seq_mean_token_sum":
        return np.full(len(units), 1.0 / len(sizes))
    if aggregation == "constant":
        if constant_length is None or constant_length < 1:
            raise ValueError(
                f"constant_length is {constant_length}: aggregation 'constant' divides by it, give a number >= 1"
            )
        return np.full(len(units), 1.0 / (len(sizes) * constant_length))
    raise ValueError(
        f"aggregation is {aggregation!r}: choose token_mean, seq_mean_token_mean, seq_mean_token_sum or constant"
    )


def aggregate(losses: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Scalar: sum of losses [N] times weights [N]; this micro-batch's share of the step's loss."""
    return (losses * weights).sum()
