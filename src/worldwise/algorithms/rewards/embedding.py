"""RWML's reward: the binarised distance of sentence embeddings (arXiv 2602.05842).

d(s^, s) = 1 - cos(E(s^), E(s)) and r = 1 where d < tau_d, else 0. A real-valued reward, or a judge in the place of
the embedding, was gamed in the paper's ablations.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

MAX_DISTANCE = 2.0
"""1 - cos cannot exceed it."""

_DECIMALS = 6


def cosine_distances(first: NDArray[np.float32], second: NDArray[np.float32]) -> NDArray[np.float64]:
    """1 - cos of paired vectors.

    Args:
        first, second: float32 [N, D], rows of length 1.

    Returns:
        float64 [N] in [0, 2], rounded to 6 decimals: equal texts get exactly 0, whatever noise the encoder's
        batch shapes leave in their vectors.
    """
    cosines = np.sum(first.astype(np.float64) * second.astype(np.float64), axis=-1)
    return np.asarray(np.round(np.clip(1.0 - cosines, 0.0, MAX_DISTANCE), _DECIMALS), dtype=np.float64)


def binary_reward(distances: NDArray[np.float64], tau_d: float) -> NDArray[np.float64]:
    """1 where a distance lies below `tau_d`, else 0.

    Args:
        distances: float64, any shape, in [0, 2]; `inf` where there was no prediction, which is never rewarded.
        tau_d: threshold in (0, 2]. From about 0.5 on general descriptions pass, below 0.1 almost only the
            very text (Qwen3-Embedding-8B; other encoders have other scales).

    Raises:
        ValueError: `tau_d` out of range.
    """
    if not 0.0 < tau_d <= MAX_DISTANCE:
        raise ValueError(f"tau_d is {tau_d}: give a distance in (0, 2]")
    return np.asarray(distances < tau_d, dtype=np.float64)
