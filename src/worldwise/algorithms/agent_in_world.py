"""Agent-In-World: failures are remembered by kind, and tasks like those that failed are played more often (Role-Agent).

    p(task) = (1 - eta) / N + eta w(task) / sum w

Every task that is found to be like a failure gains weight; weights decay with every iteration and are halved where a
group succeeded throughout. The paper leaves amounts and decay open; the rules here are ours. In the released code the
weights choose rows of a table that its household and shop worlds never look at; here they choose what is played.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from worldwise.algorithms.advantages.groups import Float


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed episode as it is remembered.

    Attributes:
        task_id, task_text: what was to be done.
        mode: kind of the failure, from the world's vocabulary.
        detail: what went wrong, one or two sentences; may be empty.
        turn: number of the turn that could not be made good any more, from 1; 0 = not known.
        lesson: what to do another time; may be empty.
        query: what to look for in other tasks.
        iteration: in which it was played.
        by: who judged: `model` or `rules`.
    """

    task_id: str
    task_text: str
    mode: str
    detail: str = ""
    turn: int = 0
    lesson: str = ""
    query: str = ""
    iteration: int = 0
    by: str = "rules"


class FailureMemory:
    """Failures by mode, the newest of each kept.

    Args:
        per_mode: most of one mode.
    """

    def __init__(self, per_mode: int) -> None:
        self._per_mode = per_mode
        self._by_mode: dict[str, list[Failure]] = {}

    def add(self, failure: Failure) -> None:
        """Remember one instead of an earlier one of its task and mode; the oldest goes where there are too many."""
        kept = [own for own in self._by_mode.get(failure.mode, []) if own.task_id != failure.task_id]
        self._by_mode[failure.mode] = [*kept, failure][-self._per_mode :]

    def forget(self, task_id: str) -> None:
        """The task succeeds now: nothing of it is remembered."""
        kept = {mode: [own for own in entries if own.task_id != task_id] for mode, entries in self._by_mode.items()}
        self._by_mode = {mode: entries for mode, entries in kept.items() if entries}

    def candidates(self, failure: Failure, most: int) -> list[Failure]:
        """Failures of other tasks, those of the same mode first, the newest first in each."""
        modes = sorted(self._by_mode, key=lambda mode: (mode != failure.mode, mode))
        found = [own for mode in modes for own in reversed(self._by_mode[mode]) if own.task_id != failure.task_id]
        return found[:most]

    def counts(self) -> dict[str, int]:
        """Mode -> failures remembered."""
        return {mode: len(entries) for mode, entries in sorted(self._by_mode.items())}

    def content(self) -> dict[str, list[dict[str, Any]]]:
        """Everything, as JSON holds it."""
        return {mode: [asdict(own) for own in entries] for mode, entries in sorted(self._by_mode.items())}

    def take(self, content: Mapping[str, Iterable[Mapping[str, Any]]]) -> None:
        """Takes back what `content` gave."""
        self._by_mode = {mode: [Failure(**own) for own in entries] for mode, entries in content.items()}


class TaskWeights:
    """Weights of tasks; those that were never raised have 0.

    Args:
        decay: factor of all weights an iteration, [0, 1].
        cap: largest weight.
    """

    def __init__(self, decay: float, cap: float) -> None:
        self._decay, self._cap = decay, cap
        self.weights: dict[str, float] = {}

    def age(self) -> None:
        """An iteration is over. Weights that are next to nothing go."""
        aged = {task: weight * self._decay for task, weight in self.weights.items()}
        self.weights = {task: weight for task, weight in aged.items() if weight > 1e-3}

    def add(self, task: str, amount: float = 1.0) -> None:
        """A task is like one that failed."""
        self.weights[task] = min(self._cap, self.weights.get(task, 0.0) + amount)

    def halve(self, task: str) -> None:
        """Its whole group succeeded."""
        if task in self.weights:
            self.weights[task] /= 2.0


def task_probabilities(tasks: Sequence[str], weights: Mapping[str, float], eta: float) -> Float:
    """float64 [N]: probability of each task to be played next.

    Args:
        tasks: [N], all training tasks.
        weights: of some of them, >= 0.
        eta: share of the weights, [0, 1]; 0 is exactly uniform, and so is any eta where all weights are 0.

    Raises:
        ValueError: no tasks, eta out of range, or a weight that is negative or not finite.
    """
    if not tasks:
        raise ValueError("there are no tasks: give at least one")
    if not 0.0 <= eta <= 1.0:
        raise ValueError(f"eta is {eta}: allowed are shares from 0 to 1")
    own = np.asarray([weights.get(task, 0.0) for task in tasks], dtype=np.float64)
    if not np.isfinite(own).all() or (own < 0.0).any():
        raise ValueError("a task's weight is negative or not finite")
    uniform = np.full(len(tasks), 1.0 / len(tasks))
    total = float(own.sum())
    if eta == 0.0 or total == 0.0:
        return uniform
    return (1.0 - eta) * uniform + eta * own / total


def draw_tasks(probabilities: Float, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """int64 [count]: places of different tasks, drawn one after the other in proportion to what is left.

    Where fewer tasks than `count` have a probability above 0, the others follow in a random order.

    Args:
        probabilities: float64 [N], N >= count.
        count: tasks of an iteration.
        rng: of this iteration.

    Raises:
        ValueError: more tasks than there are.
    """
    if count > len(probabilities):
        raise ValueError(f"{count} tasks are wanted and there are {len(probabilities)}: lower tasks_per_iteration")
    # Gumbel's trick: the largest of log p + noise, one after the other, are draws without replacement.
    with np.errstate(divide="ignore"):
        keys = np.log(probabilities)
    noise = rng.gumbel(size=len(keys))
    keys = np.where(np.isneginf(keys), -1e9, keys)
    return np.argsort(-(keys + noise), kind="stable")[:count]


def entropy(probabilities: Float) -> float:
    """Nats; log N where all tasks are equally likely."""
    some = probabilities[probabilities > 0.0]
    return float(-(some * np.log(some)).sum())


def shuffled_weights(weights: Mapping[str, float], tasks: Sequence[str], rng: np.random.Generator) -> dict[str, float]:
    """The same weights on random tasks: a placebo that samples as unevenly, and knows nothing of failures."""
    chosen = rng.permutation(len(tasks))[: len(weights)]
    return {tasks[int(place)]: weight for place, weight in zip(chosen, weights.values(), strict=False)}


def largest_entropy(count: int) -> float:
    """Entropy of `count` equally likely tasks, nats."""
    return math.log(count)
