"""The arithmetic of difficulty subsampling."""

from __future__ import annotations

import numpy as np
import pytest

from worldwise.stages.difficulty import (
    calibrate,
    is_easy,
    keep_mask,
    most_mixed,
    pass_rates,
    share_by_kind,
    split_tasks,
    tau_train_default,
)

BAND = (0.27, 0.30)


@pytest.mark.parametrize(("data", "train"), [(0.10, 0.2), (0.15, 0.4), (0.02, 0.2), (0.25, 0.4), (1.99, 2.0)])
def test_training_threshold_is_the_authors_rule(data: float, train: float) -> None:
    assert tau_train_default(data) == train


def test_pass_rate_counts_tries_below_the_threshold() -> None:
    found = np.asarray([[0.0, 0.1, 0.2, np.inf], [0.3, 0.4, 0.5, 0.6]])
    assert pass_rates(found, 0.2).tolist() == [0.5, 0.0]


def test_tau_easy_zero_means_solved_at_least_once() -> None:
    assert is_easy(np.asarray([0.0, 0.1, 1.0]), 0.0).tolist() == [False, True, True]
    # A pass rate equal to tau_easy is not above it, whatever the float noise of 3 / 10.
    assert is_easy(np.asarray([3 / 10]), 0.1 * 3).tolist() == [False]


def test_calibration_hits_the_target_share() -> None:
    # Best of two tries: 0.01, 0.02, ..., 1.00; 28 of 100 lie below 0.285 and 29 below 0.295.
    best = np.arange(1, 101) / 100
    found = calibrate(np.stack([best, best + 0.5], axis=1), 0.28, BAND)
    assert found.easy_share == 0.28
    assert found.tau_d == pytest.approx(0.285)
    assert found.in_band
    assert is_easy(pass_rates(np.stack([best, best + 0.5], axis=1), found.tau_d), found.tau_easy).mean() == 0.28


def test_calibration_says_when_exact_predictions_make_it_impossible() -> None:
    found = calibrate(np.asarray([[0.0, 0.0]] * 6 + [[0.0, 0.9]] * 1 + [[0.5, 0.9]] * 3), 0.285, BAND)
    assert not found.in_band
    assert found.easy_share == 0.7
    assert found.tau_d > 0


def test_calibration_may_raise_the_pass_rate_that_is_demanded() -> None:
    # All are right once in four tries, three of ten in all four: only "more than 3 of 4" separates them.
    hard, easy = [0.0, 0.9, 0.9, 0.9], [0.0, 0.0, 0.0, 0.0]
    found = calibrate(np.asarray([hard] * 7 + [easy] * 3), 0.3, BAND, tau_easy=None)
    assert (found.easy_share, found.in_band) == (0.3, True)
    assert found.tau_easy == 0.25


def test_calibration_needs_something_to_calibrate_on() -> None:
    with pytest.raises(ValueError, match="at least one transition"):
        calibrate(np.zeros((0, 4)), 0.285, BAND)


def test_unparsed_tries_are_never_easy() -> None:
    found = calibrate(np.full((10, 3), np.inf), 0.285, BAND)
    assert found.easy_share == 0.0


def test_most_mixed_splits_the_most_groups() -> None:
    # Groups (0.1, 0.5), (0.2, 0.6), (0.3, 0.9): all three are mixed between 0.3 and 0.5.
    assert most_mixed(np.asarray([[0.1, 0.5], [0.2, 0.6], [0.3, 0.9]])) == pytest.approx(0.4)


def test_keep_rule_keeps_the_hard_and_is_deterministic() -> None:
    ids = [f"t{number}" for number in range(4000)]
    easy = np.asarray([number % 2 == 0 for number in range(4000)])
    kept = keep_mask(ids, easy, 0.1, seed=3)
    assert kept[~easy].all()
    assert 0.07 < kept[easy].mean() < 0.13
    assert (keep_mask(ids, easy, 0.1, seed=3) == kept).all()
    assert (keep_mask(ids, easy, 0.1, seed=4) != kept).any()
    # Neither order nor company matters.
    assert (keep_mask(ids[::-1], easy[::-1], 0.1, seed=3)[::-1] == kept).all()
    assert (keep_mask(ids[:100], easy[:100], 0.1, seed=3) == kept[:100]).all()


def test_split_by_task_has_the_wanted_share_and_ignores_order() -> None:
    tasks = [f"task{number}" for number in range(50) for _ in range(3)]
    chosen = split_tasks(tasks, 0.1, seed=0)
    assert len(chosen) == 5
    assert split_tasks(tasks[::-1], 0.1, seed=0) == chosen
    assert split_tasks(tasks, 0.1, seed=1) != chosen


def test_split_leaves_both_sides_something() -> None:
    assert len(split_tasks(["a", "b"], 0.01, seed=0)) == 1
    assert len(split_tasks(["a", "b"], 0.99, seed=0)) == 1
    with pytest.raises(ValueError, match="at least 2 tasks"):
        split_tasks(["a", "a"], 0.1, seed=0)


def test_shares_by_kind() -> None:
    found = share_by_kind(["go", "take", "go"], np.asarray([True, False, False]))
    assert found == {"go": (1, 2), "take": (0, 1)}
