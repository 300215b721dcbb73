"""When a loop's acting score counts as collapsed, and weights that come back."""

from __future__ import annotations

import pytest
import torch

from worldwise.generation.tiny import tiny_model
from worldwise.stages.keeping import LoopState, WeightKeeper


def test_collapse_needs_enough_checks_in_a_row_below_the_first() -> None:
    state = LoopState(checks=[(0, 0.5), (10, 0.3)])
    assert not state.collapsed(margin=0.05, patience=2)
    state.checks.append((20, 0.44))
    assert state.collapsed(margin=0.05, patience=2)
    assert not state.collapsed(margin=0.1, patience=2)
    state.checks.append((30, 0.46))
    assert not state.collapsed(margin=0.05, patience=2)


def test_running_mean_and_best() -> None:
    state = LoopState()
    assert [state.running(value, 2) for value in (1.0, 0.0, 0.5)] == [1.0, 0.5, 0.25]
    state.step = 3
    assert state.better(0.0)
    state.step = 4
    assert not state.better(0.0)
    assert (state.best, state.best_step) == (0.0, 3)


def test_kept_weights_are_a_copy_and_come_back() -> None:
    model = tiny_model(layers=1, hidden=16)
    keeper = WeightKeeper(model)
    with pytest.raises(RuntimeError, match=r"call keep\(\) first"):
        keeper.restore()
    keeper.keep()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1.0)
    keeper.restore()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
