"""Learning-rate factors by hand."""

from __future__ import annotations

import pytest

from worldwise.training.schedule import learning_rate_factor


def test_warm_up_moves_from_the_first_step() -> None:
    factors = [learning_rate_factor(step, 10, warmup_steps=4) for step in range(6)]
    assert factors == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]


def test_linear_reaches_the_final_share_at_the_end() -> None:
    factors = [
        learning_rate_factor(step, 10, schedule="linear", warmup_steps=2, final_share=0.2) for step in (2, 6, 10, 50)
    ]
    assert factors == pytest.approx([1.0, 0.6, 0.2, 0.2])


def test_cosine_is_halfway_in_the_middle() -> None:
    factors = [learning_rate_factor(step, 8, schedule="cosine") for step in (0, 2, 4, 8)]
    assert factors == pytest.approx([1.0, 0.5 + 0.5 * 2**-0.5, 0.5, 0.0])


def test_a_warm_up_longer_than_the_run_is_no_division_by_zero() -> None:
    assert learning_rate_factor(5, 5, schedule="linear", warmup_steps=5) == 1.0
    assert learning_rate_factor(6, 5, schedule="linear", warmup_steps=5) == 0.0
