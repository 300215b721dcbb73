"""Plans by group, and time limits on calls."""

from __future__ import annotations

import threading
import time

import pytest

from worldwise.config import derive_seed
from worldwise.rollouts.config import RolloutConfig, RolloutError, plan_groups
from worldwise.rollouts.patience import Patience, StepTimeout
from worldwise.worlds.contract import Task

TASKS = [Task("a", "t", "train"), Task("b", "t", "train"), Task("a", "t", "train")]


def test_groups() -> None:
    plans = plan_groups(TASKS, 2, "train", 5, seed=1, temperature=0.4)
    assert [plan.episode_id for plan in plans] == [
        "train/5/a/0", "train/5/a/1", "train/5/b/0", "train/5/b/1", "train/5/a#2/0", "train/5/a#2/1",
    ]  # fmt: skip
    assert plans[1].seed == derive_seed(1, "train", 5, "a", 1)
    assert len({plan.seed for plan in plans}) == 6
    assert [plan.world_seed == plans[0].world_seed for plan in plans] == [True, True, *[False] * 4]
    assert {plan.temperature for plan in plans} == {0.4}
    assert {plan.iteration for plan in plans} == {5}


def test_a_tasks_plan_does_not_depend_on_the_others() -> None:
    assert plan_groups(TASKS[1:2], 2, "train", 5, seed=1) == plan_groups(TASKS, 2, "train", 5, seed=1)[2:4]
    with pytest.raises(RolloutError, match="group_size=0"):
        plan_groups(TASKS, 0, "train", 5, seed=1)


@pytest.mark.parametrize("values", [{"slots": 0}, {"max_turns": 0}, {"temperature": -1}, {"top_p": 0}, {"steps": 3}])
def test_configurations_out_of_range(values: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(values))):
        RolloutConfig.model_validate(values)


def test_patience_passes_results_and_errors_on() -> None:
    for limit in (0.0, 5.0):
        patience = Patience(limit)
        assert patience.call(lambda: 3) == 3
        with pytest.raises(KeyError):
            patience.call(lambda: {}["x"])
        assert patience.call(lambda: 4) == 4
        patience.close()


def test_patience_runs_out_and_recovers() -> None:
    patience = Patience(0.1)

    def spins() -> None:
        while True:
            pass

    with pytest.raises(StepTimeout, match=r"step_timeout_s=0\.1(.|\n)*spins"):
        patience.call(spins)
    assert patience.call(lambda: 5) == 5
    patience.close()
    # The thread that spun was ended, and the others went home.
    deadline = time.monotonic() + 5
    while any(thread.name == "world" for thread in threading.enumerate()) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not [thread for thread in threading.enumerate() if thread.name == "world"]
