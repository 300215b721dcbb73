"""Our estimators and losses against numbers from an independent implementation of the same papers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from worldwise.algorithms.advantages.returns import discounted_returns

from .reference_adapter import Case, TokenCase, load, our_advantages, our_states, reference_file

ADVANTAGES = load("advantages")
TOKENS = load("token_losses")
needs_reference = pytest.mark.skipif(not ADVANTAGES, reason=f"reference values absent: {reference_file()}")

STATISTICS = {"row_statistics": "row", "trajectory_statistics_without_penalty": "trajectory"}


def _advantage_cases() -> list[Any]:
    return [
        pytest.param(case, key, name, id=f"{case['name']}-{key}-{name}")
        for case in ADVANTAGES
        for key in STATISTICS
        for name in case["expected"][key]
    ]


@needs_reference
@pytest.mark.parametrize(("case", "key", "estimator"), _advantage_cases())
def test_advantages(case: Case, key: str, estimator: str) -> None:
    statistics: Any = STATISTICS[key]
    ours = our_advantages(case, statistics, estimator)
    np.testing.assert_allclose(ours, case["expected"][key][estimator], atol=1e-5, rtol=1e-6)


@needs_reference
@pytest.mark.parametrize("case", ADVANTAGES, ids=lambda case: case["name"])
def test_discounted_returns(case: Case) -> None:
    rows = case["rows"]
    ours = discounted_returns([row["reward"] for row in rows], [row["trajectory"] for row in rows], case["gamma"])
    np.testing.assert_allclose(ours, case["expected"]["discounted_return_before_penalty"], atol=1e-5)


@needs_reference
@pytest.mark.parametrize("case", ADVANTAGES, ids=lambda case: case["name"])
def test_state_groups_are_the_same_partition(case: Case) -> None:
    groups = [row["group"] for row in case["rows"]]
    ours = list(zip(groups, our_states(case), strict=True))
    theirs = case["state_group"]
    assert len(set(zip(ours, theirs, strict=True))) == len(set(ours)) == len(set(theirs))


@needs_reference
@pytest.mark.parametrize(
    ("case", "key"),
    [pytest.param(case, key, id=f"{case['name']}-{key}") for case in TOKENS for key in case["expected"]],
)
def test_token_losses(case: Case, key: str) -> None:
    ours, expected = TokenCase(case).ours(key), case["expected"][key]
    if not isinstance(expected, dict):
        ours, expected = {"value": ours}, {"value": expected}
    assert ours.keys() == expected.keys()
    # The reference adds 1e-8 to the denominators of its masked means: relative 1e-8 / tokens, twice when whitening.
    allowed = 2e-8 / int(np.sum(case["mask"]))
    for name in expected:
        np.testing.assert_allclose(ours[name], expected[name], atol=1e-9, rtol=allowed, err_msg=name)
