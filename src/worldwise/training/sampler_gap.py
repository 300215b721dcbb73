"""How far the learner's log-probabilities are from the sampler's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from worldwise.training.errors import LearnerError

SINGLE_TOKEN = 10.0
"""A single token may differ by so many times what is allowed in the mean."""


@dataclass(frozen=True, slots=True)
class SamplerGap:
    """Differences over the response tokens.

    Attributes:
        mean: nats per token.
        largest: of a single token, nats.
    """

    mean: float
    largest: float


def checked_gap(gaps: NDArray[np.float32], names: Sequence[str], limit: float) -> SamplerGap:
    """The gap, if it is small enough.

    Args:
        gaps: float32 [N > 0], absolute differences of the response tokens, nats.
        names: sequence of each token, for the message.
        limit: largest mean allowed, nats per token; a single token may reach `SINGLE_TOKEN` times as much. 1e-5 is
            right for float32 samplers. Of bfloat16 samplers single tokens differ by up to 0.3 (give `math.inf` to only
            measure).

    Raises:
        LearnerError: a difference is above its limit, or not a number.
    """
    gap = SamplerGap(float(gaps.mean()), float(gaps.max()))
    if gap.mean <= limit and gap.largest <= SINGLE_TOKEN * limit:
        return gap
    worst = names[int(np.argmax(np.where(np.isnan(gaps), np.inf, gaps)))]
    raise LearnerError(
        f"sampler and learner disagree by {gap.mean:.3g} nats a token (limit {limit:g}) and by up to {gap.largest:.3g} "
        f"(limit {SINGLE_TOKEN * limit:g}), most in sequence {worst}: check that they share weights, precision, "
        "temperature and allowed ids, and that top_p = 1 and min_p = 0; for a bfloat16 sampler raise the limit and set "
        "old_logprobs='learner'"
    )
