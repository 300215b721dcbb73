"""Settings that cannot work are refused, with the range and the fix."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from worldwise.config import FrozenConfig
from worldwise.stages.collect import CollectConfig
from worldwise.stages.evaluate import EvaluateConfig
from worldwise.stages.midtrain import RwmlConfig
from worldwise.stages.subsample import SubsampleConfig
from worldwise.stages.supervised import SupervisedConfig, epoch_batches, planned_updates
from worldwise.stages.train_policy import PolicyConfig
from worldwise.training.config import LearnerConfig


@pytest.mark.parametrize(
    ("block", "settings", "says"),
    [
        (PolicyConfig, {"group_size": 1}, "give at least 2"),
        (PolicyConfig, {"algorithm": "ppo2"}, "known are dr_grpo, gigpo, grpo"),
        (PolicyConfig, {"iterations": 0}, "greater than or equal to 1"),
        (PolicyConfig, {"max_minutes": -1.0}, "greater than 0"),
        (PolicyConfig, {"temperature": 0.0}, "greater than 0"),
        (PolicyConfig, {"groupsize": 4}, "Extra inputs"),
        (RwmlConfig, {"group_size": 1}, "give at least 2"),
        (RwmlConfig, {"tau_d": 2.5}, r"distance in \(0, 2\]"),
        (RwmlConfig, {"tau_d": 0}, r"distance in \(0, 2\]"),
        (RwmlConfig, {"tau_d": "calibrated"}, "'published' or 'mixed'"),
        (RwmlConfig, {"mixed_low": 0.8}, "put the lower one first"),
        (RwmlConfig, {"max_updates": -3}, "greater than or equal to 1"),
        (SubsampleConfig, {"tau_d": -0.1}, r"distance in \(0, 2\]"),
        (SubsampleConfig, {"tau_easy": 1.0}, r"pass rate in \[0, 1\)"),
        (SubsampleConfig, {"tau_easy": "calibrate", "tau_d": 0.1}, "set tau_d to 'calibrate'"),
        (SubsampleConfig, {"easy_target": 0.5}, "put it between"),
        (SubsampleConfig, {"keep_probability": 1.5}, "less than or equal to 1"),
        (SubsampleConfig, {"sft": {"batch": 0}}, "greater than or equal to 1"),
        (CollectConfig, {"tasks": -1}, "greater than or equal to 1"),
        (CollectConfig, {"episodes_per_task": 2.5}, "valid integer"),
        (EvaluateConfig, {"splits": []}, "at least one split"),
        (EvaluateConfig, {"temperatures": [0.4, 0.4]}, "each once"),
    ],
)
def test_bad_settings_are_refused(block: type[FrozenConfig], settings: dict[str, object], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        block.model_validate(settings)


def test_defaults_are_valid_and_frozen() -> None:
    config = PolicyConfig()
    with pytest.raises(ValidationError):
        config.iterations = 3  # type: ignore[misc]


def test_every_epoch_covers_everything_once_in_its_own_order() -> None:
    batches = [epoch_batches(10, 4, update, seed=1) for update in range(6)]
    assert [len(batch) for batch in batches] == [4, 4, 2, 4, 4, 2]
    first, second = ([index for batch in half for index in batch] for half in (batches[:3], batches[3:]))
    assert sorted(first) == sorted(second) == list(range(10))
    assert first != second
    assert epoch_batches(10, 4, 1, seed=1) == batches[1]


def test_planned_updates() -> None:
    assert planned_updates(10, 4, 2, None) == 6
    assert planned_updates(10, 4, 2, 5) == 5
    assert SupervisedConfig(epochs=3, batch=5).planned_updates(11) == 9


def test_what_an_estimator_has_no_use_for_is_refused() -> None:
    with pytest.raises(ValidationError, match="sampling_rounds is 3 and algorithm is reinforce_pp"):
        PolicyConfig(algorithm="reinforce_pp", sampling_rounds=3)
    with pytest.raises(ValidationError, match=r"set learner\.aggregation to constant"):
        PolicyConfig(algorithm="dr_grpo")
    learner = LearnerConfig(aggregation="constant", aggregation_length=100)
    assert PolicyConfig(algorithm="dr_grpo", learner=learner).learner.aggregation_length == 100
