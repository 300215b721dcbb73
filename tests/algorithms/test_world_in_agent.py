"""World-In-Agent's formulas on hand-computed values."""

from __future__ import annotations

import random
from difflib import SequenceMatcher

import numpy as np
import pytest

from worldwise.algorithms.advantages.gigpo import gigpo
from worldwise.algorithms.rewards.text import collapse, text_ratio
from worldwise.algorithms.world_in_agent import (
    foresight_and_outcome,
    foresight_return,
    horizon,
    reward_factors,
    step_factors,
)


@pytest.mark.parametrize(("turns", "expected"), [(4, 1), (15, 1), (30, 2), (50, 2), (70, 4), (100, 5), (1, 1)])
def test_the_horizon_is_a_twentieth_of_the_turn_limit(turns: int, expected: int) -> None:
    assert horizon(turns) == expected


def test_the_return_of_foresight() -> None:
    # 1 x 0.8 + 0.5 x 0.4 + 0.25 x 1
    assert foresight_return([0.8, 0.4, 1.0], 0.5) == pytest.approx(1.25)
    assert foresight_return([0.8, 0.4, 1.0], 0.5, normalized=True) == pytest.approx(1.25 / 1.75)
    # What lies beyond the episode's end counts neither above nor below the line.
    assert foresight_return([0.8, None, None], 0.5) == pytest.approx(0.8)
    assert foresight_return([0.8, None, None], 0.5, normalized=True) == pytest.approx(0.8)
    assert foresight_return([], 0.5) == foresight_return([None], 0.5, normalized=True) == 0.0
    assert [foresight_return([1.0] * h, 0.95) for h in (1, 2, 5)] == pytest.approx([1.0, 1.95, 4.524], abs=1e-3)
    for wrong in ([1.5], [-0.1]):
        with pytest.raises(ValueError, match="similarities lie"):
            foresight_return(wrong, 0.9)
    with pytest.raises(ValueError, match=r"gamma is 1\.1"):
        foresight_return([0.5], 1.1)


def test_factors() -> None:
    assert step_factors([0.0, 0.5, 1.95]).tolist() == [1.0, 1.5, 2.95]
    assert reward_factors([0.0, 0.5, 1.0]).tolist() == [1.0, 1.1, 1.2]
    assert reward_factors([1.0], share=0.5).tolist() == [1.5]


def test_foresight_enters_the_step_term_alone() -> None:
    """Two episodes of two turns through the same two states; one succeeds, and foresaw its first step."""
    rewards, groups = [0.0, 1.0, 0.0, 0.0], ["g"] * 4
    episodes, states = ["a", "a", "b", "b"], ["x", "y", "x", "y"]
    settings = {"discount": 0.5, "normalize": "none"}
    plain = gigpo(rewards, groups, episodes, states, **settings)
    found = gigpo(rewards, groups, episodes, states, step_factors=[1.6, 1.0, 1.9, 1.9], **settings)
    assert found.episode.tolist() == plain.episode.tolist() == [0.5, 0.5, -0.5, -0.5]
    # Step returns 0.5, 1, 0, 0 become 0.8, 1, 0, 0: a failed episode earns nothing by its foresight.
    assert plain.step == pytest.approx([0.25, 0.5, -0.25, -0.5])
    assert found.step == pytest.approx([0.4, 0.5, -0.4, -0.5])
    with pytest.raises(ValueError, match="lengths differ"):
        gigpo(rewards, groups, episodes, states, step_factors=[1.0])


def test_the_correlation_by_hand() -> None:
    # Scores of successes 3, 5; of failures 1, 3. Point-biserial: (4 - 2) / s_n x sqrt(1/2 x 1/2), s_n = sqrt(2).
    found = foresight_and_outcome([3.0, 5.0, 1.0, 3.0], [True, True, False, False])
    assert found.value == pytest.approx(2 / np.sqrt(2) * 0.5)
    # t = r sqrt(2 / (1 - r^2)) = sqrt(2) with 2 degrees of freedom: p = 1 - t / sqrt(2 + t^2).
    assert found.p_value == pytest.approx(1 - np.sqrt(2) / 2)
    for scores, successes in (([0.5] * 4, [True, False, True, False]), ([0.1, 0.2, 0.3], [True] * 3), ([1.0], [True])):
        assert foresight_and_outcome(scores, successes).value is None


def test_the_ratio_is_difflibs() -> None:
    """10,000 random pairs of up to 300 characters, equal and nearly equal ones among them."""
    draws = random.Random(0)
    words = [
        "you",
        "see",
        "a",
        "drawer 1",
        "drawer 12",
        "mug",
        "is open",
        "closed",
        "the",
        "on it",
        "nothing",
        "arrive",
    ]
    for number in range(10_000):
        one = " ".join(draws.choices(words, k=draws.randint(0, 12 if number % 50 else 60)))
        other = one if number % 7 == 0 else " ".join(draws.choices(words, k=draws.randint(0, 12)))
        expected = SequenceMatcher(None, collapse(one), collapse(other), autojunk=False).ratio()
        assert text_ratio(one, other) == expected


def test_the_junk_heuristic_ruins_long_texts() -> None:
    long, other = "ab" * 110, "ba" * 110
    assert text_ratio(long, other) > 0.95
    assert text_ratio(long, other, autojunk=True) == 0.0
