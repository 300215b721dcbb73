"""Wilson intervals and differences of shares."""

from __future__ import annotations

import pytest

from worldwise.stages.intervals import differ, difference_interval, proportion, wilson


def test_wilson_matches_hand_computed_values() -> None:
    # n = 10, 5 hits, z = 1.96: centre 0.5, half width 1.96 / 1.384146 * sqrt(0.025 + 0.0096037) = 0.263405
    low, high = wilson(5, 10)
    assert low == pytest.approx(0.236594, abs=1e-5)
    assert high == pytest.approx(0.763406, abs=1e-5)
    # 0 of 20: (0, z^2 / (n + z^2)) = 3.841459 / 23.841459
    assert wilson(0, 20) == pytest.approx((0.0, 0.161125), abs=1e-6)


def test_wilson_is_symmetric_and_narrows_with_count() -> None:
    low, high = wilson(3, 12)
    mirrored = wilson(9, 12)
    assert mirrored == pytest.approx((1 - high, 1 - low))
    wide, narrow = wilson(30, 100), wilson(300, 1000)
    assert narrow[1] - narrow[0] < wide[1] - wide[0]


def test_wilson_of_nothing_says_nothing() -> None:
    assert wilson(0, 0) == (0.0, 1.0)


@pytest.mark.parametrize(("successes", "count"), [(-1, 4), (5, 4)])
def test_wilson_refuses_impossible_counts(successes: int, count: int) -> None:
    with pytest.raises(ValueError, match="0 <= successes <= count"):
        wilson(successes, count)


def test_proportion_counts_true_outcomes() -> None:
    found = proportion([True, False, True, True])
    assert (found.successes, found.count, found.share) == (3, 4, 0.75)
    assert found.low < 0.75 < found.high


def test_difference_interval_is_newcombes() -> None:
    # Newcombe 1998, table II, (a): 56/70 against 48/80, method 10: 0.0524 to 0.3339
    first, second = proportion([True] * 48 + [False] * 32), proportion([True] * 56 + [False] * 14)
    assert difference_interval(first, second) == pytest.approx((0.0524, 0.3339), abs=1e-4)
    assert differ(first, second)


def test_small_differences_do_not_differ() -> None:
    first, second = proportion([True] * 10 + [False] * 30), proportion([True] * 12 + [False] * 28)
    assert not differ(first, second)
