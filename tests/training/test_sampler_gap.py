"""The gap between sampler and learner: a mean over tokens, and no single token far off."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from worldwise.training.errors import LearnerError
from worldwise.training.sampler_gap import checked_gap

NAMES = ["a"] * 5 + ["b"] * 5


def test_the_mean_and_the_largest_are_told() -> None:
    gaps = np.zeros(10, dtype=np.float32)
    gaps[7] = 5e-5
    gap = checked_gap(gaps, NAMES, 1e-5)
    assert gap.mean == pytest.approx(5e-6)
    assert gap.largest == pytest.approx(5e-5)


@pytest.mark.parametrize(
    ("gaps", "limit"),
    [
        (np.full(10, 2e-5), 1e-5),
        # The mean is 2e-7, and a single token is 20 times the limit off.
        (np.eye(1, 1000, 6)[0] * 2e-4, 1e-5),
        (np.full(10, np.nan), math.inf),
    ],
)
def test_what_is_too_far_off_is_refused(gaps: NDArray[np.float64], limit: float) -> None:
    with pytest.raises(LearnerError, match="most in sequence s"):
        checked_gap(gaps.astype(np.float32), ["s"] * len(gaps), limit)


def test_the_worst_sequence_is_named() -> None:
    gaps = np.full(10, 1e-4, dtype=np.float32)
    gaps[6] = 2e-4
    with pytest.raises(LearnerError, match="most in sequence b: check that they share"):
        checked_gap(gaps, NAMES, 1e-5)
