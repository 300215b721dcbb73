"""RWML's reward and text similarity by hand."""

from __future__ import annotations

from difflib import SequenceMatcher

import numpy as np
import pytest

from worldwise.algorithms.rewards.embedding import binary_reward, cosine_distances
from worldwise.algorithms.rewards.text import exact, text_ratio


def test_distances_run_from_0_to_2() -> None:
    first = np.array([[1, 0], [1, 0], [1, 0]], dtype=np.float32)
    second = np.array([[1, 0], [0, 1], [-1, 0]], dtype=np.float32)
    assert cosine_distances(first, second).tolist() == [0.0, 1.0, 2.0]


def test_noise_of_an_encoder_leaves_equal_texts_at_distance_0() -> None:
    vector = np.full((1, 4), 0.5, dtype=np.float32)
    assert cosine_distances(vector, vector + np.float32(3e-8)).tolist() == [0.0]


def test_the_reward_is_strict_and_a_missing_prediction_never_earns_it() -> None:
    assert binary_reward(np.array([0.1, 0.2, 0.3, np.inf]), 0.2).tolist() == [1.0, 0.0, 0.0, 0.0]
    assert binary_reward(np.array([2.0, np.inf]), 2.0).tolist() == [0.0, 0.0]
    for wrong in (0.0, -0.1, 2.1):
        with pytest.raises(ValueError, match="give a distance in"):
            binary_reward(np.zeros(1), wrong)


def test_ratio_ignores_white_space_and_keeps_frequent_characters() -> None:
    assert text_ratio("you  see\n a mug", "you see a mug") == 1.0
    assert text_ratio(None, "you see a mug") == 0.0
    left = "on the table 1, you see " + ", ".join(f"a mug {i}" for i in range(40))
    right = "on the table 2, you see " + ", ".join(f"a cup {i}" for i in range(40))
    assert len(left) > 200
    assert text_ratio(left, right) > 0.6 > SequenceMatcher(None, left, right).ratio()


def test_exact_needs_a_prediction() -> None:
    assert exact(" a  mug ", "a mug")
    assert not exact("a mug 1", "a mug")
    assert not exact(None, "")
