"""Agent-In-World's memory, weights and draws."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from worldwise.algorithms.agent_in_world import (
    Failure,
    FailureMemory,
    TaskWeights,
    draw_tasks,
    entropy,
    largest_entropy,
    shuffled_weights,
    task_probabilities,
)


def failure(task: str, mode: str = "loop", **others: object) -> Failure:
    return replace(Failure(task, f"do {task}", mode), **others)  # type: ignore[arg-type]


def test_probabilities_by_hand() -> None:
    # Half uniform (0.125 each of four), half by weight 3 and 1.
    found = task_probabilities(["a", "b", "c", "d"], {"a": 3.0, "b": 1.0}, 0.5)
    assert found.tolist() == [0.5, 0.25, 0.125, 0.125]
    assert task_probabilities(["a", "b"], {"a": 3.0}, 1.0).tolist() == [1.0, 0.0]


def test_without_eta_or_weights_all_tasks_are_exactly_equal() -> None:
    tasks = ["a", "b", "c"]
    assert set(task_probabilities(tasks, {"a": 5.0}, 0.0).tolist()) == {1 / 3}
    assert set(task_probabilities(tasks, {}, 0.9).tolist()) == {1 / 3}
    assert entropy(task_probabilities(tasks, {}, 0.9)) == pytest.approx(largest_entropy(3))
    assert entropy(np.asarray([0.5, 0.5, 0.0])) == pytest.approx(np.log(2))


@pytest.mark.parametrize(
    ("weights", "eta", "says"),
    [({"a": -1.0}, 0.5, "negative"), ({"a": float("nan")}, 0.5, "not finite"), ({}, 1.5, "eta is 1.5")],
)
def test_wrong_numbers_are_refused(weights: dict[str, float], eta: float, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        task_probabilities(["a"], weights, eta)


def test_draws_follow_the_probabilities_and_never_repeat() -> None:
    probabilities = np.asarray([0.6, 0.2, 0.1, 0.1])
    rng = np.random.default_rng(0)
    draws = [draw_tasks(probabilities, 2, rng).tolist() for _ in range(4000)]
    assert all(len(set(own)) == 2 for own in draws)
    first = np.bincount([own[0] for own in draws], minlength=4) / 4000
    assert first == pytest.approx(probabilities, abs=0.03)
    # Behind 0 comes 1 in 0.2 / 0.4 of the cases.
    behind = [own[1] for own in draws if own[0] == 0]
    assert np.mean([place == 1 for place in behind]) == pytest.approx(0.5, abs=0.04)
    assert set(draw_tasks(np.asarray([1.0, 0.0, 0.0]), 3, rng).tolist()) == {0, 1, 2}
    assert draw_tasks(np.asarray([1.0, 0.0, 0.0]), 1, rng).tolist() == [0]
    with pytest.raises(ValueError, match="3 tasks are wanted and there are 2"):
        draw_tasks(np.asarray([0.5, 0.5]), 3, rng)


def test_weights_grow_age_and_are_halved() -> None:
    weights = TaskWeights(decay=0.5, cap=3.0)
    weights.add("a", 2.0)
    weights.add("a", 2.0)
    weights.add("b")
    weights.halve("unknown")
    assert weights.weights == {"a": 3.0, "b": 1.0}
    weights.age()
    weights.halve("a")
    assert weights.weights == {"a": 0.75, "b": 0.5}
    for _ in range(20):
        weights.age()
    assert weights.weights == {}


def test_memory_keeps_the_newest_of_each_kind() -> None:
    memory = FailureMemory(per_mode=2)
    for task in "abc":
        memory.add(failure(task))
    memory.add(failure("c", iteration=7))
    memory.add(failure("d", "format"))
    assert memory.counts() == {"format": 1, "loop": 2}
    assert [own.task_id for own in memory.candidates(failure("x"), 9)] == ["c", "b", "d"]
    assert [own.task_id for own in memory.candidates(failure("x", "format"), 2)] == ["d", "c"]
    assert [own.task_id for own in memory.candidates(failure("c"), 9)] == ["b", "d"], "never the task itself"
    assert memory.candidates(failure("x"), 1)[0].iteration == 7
    memory.forget("c")
    memory.forget("d")
    assert memory.counts() == {"loop": 1}


def test_memory_goes_through_json() -> None:
    memory = FailureMemory(per_mode=2)
    memory.add(failure("a", detail="went wrong", turn=3, lesson="look", query="mug", by="model"))
    other = FailureMemory(per_mode=2)
    other.take(json.loads(json.dumps(memory.content())))
    assert other.content() == memory.content()
    assert other.candidates(failure("x"), 1) == memory.candidates(failure("x"), 1)


def test_shuffled_weights_are_as_uneven() -> None:
    tasks = [str(number) for number in range(20)]
    weights = {"0": 3.0, "1": 1.0}
    found = [shuffled_weights(weights, tasks, np.random.default_rng(seed)) for seed in range(30)]
    assert all(sorted(own.values()) == [1.0, 3.0] for own in found)
    assert len({tuple(own) for own in found}) > 20
    assert entropy(task_probabilities(tasks, found[0], 0.5)) == pytest.approx(
        entropy(task_probabilities(tasks, weights, 0.5))
    )
