"""What a world is: the contract every family of tasks fulfils.

Imports nothing of the package. The five-tuple of `World.step` has Gymnasium's meaning
(Farama Foundation, `gymnasium.Env.step`): `terminated` says that the task itself ended
(solved or lost for good), `truncated` that a limit cut the episode off.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

OTHER_FAILURE = "other"

COMMON_FAILURES = ("action_format_error", "repeated_failed_action", "navigation_loop", OTHER_FAILURE)
"""What can be said of failures without knowing the world."""

REPEATS = 3
"""A refused action that is said so often, in a quarter of the turns at least, is a failure of its own."""

LOOP_TURNS, LOOP_STATES = 12, 4
"""An episode goes round in circles if its last turns hold no more than so many (observation, action)."""


@dataclass(frozen=True, slots=True)
class Task:
    """One game, goal, question or ticket.

    Attributes:
        task_id: unique within the world, stable over machines and runs.
        task_type: the family's own type name, the key of per-type reports.
        split: the split that it belongs to, for example `train` or `valid_unseen`.
        payload: what the family needs to build the task again (JSON values only).
    """

    task_id: str
    task_type: str
    split: str
    payload: Mapping[str, object] = field(default_factory=dict)


class Info(NamedTuple):
    """What a world says beside its observation.

    Attributes:
        success: the task is solved now.
        progress: fraction of the goal's conditions that hold now, 0..1.
        accepted: the world understood the last action (True after `reset`).
        admissible: every action the world would accept now, or None where that
            set cannot be listed.
    """

    success: bool
    progress: float
    accepted: bool
    admissible: Sequence[str] | None


class Step(NamedTuple):
    """The answer to one action: Gymnasium's five-tuple with names."""

    observation: str
    reward: float
    terminated: bool
    truncated: bool
    info: Info


class Past(NamedTuple):
    """A turn that was played, as texts: what failures are told apart by.

    Attributes:
        observation: before the action.
        action: what the world was given.
        answer: the observation after it.
        accepted: the world understood the action.
        valid: the agent's response had the demanded form.
    """

    observation: str
    action: str
    answer: str
    accepted: bool
    valid: bool


class World(ABC):
    """One live episode. Pure Python, deterministic, picklable, copyable."""

    @abstractmethod
    def reset(self, task: Task, seed: int) -> tuple[str, Info]:
        """Begin `task`; the same task and seed give the same episode for the same actions."""

    @abstractmethod
    def step(self, action: str) -> Step:
        """Play one action.

        Raises:
            RuntimeError: before `reset`, or after the episode has ended.
        """

    @abstractmethod
    def copy(self) -> World:
        """An independent episode in the same state."""


class ScriptedPolicy(Protocol):
    """A policy that needs no model: random and oracle play."""

    def act(self, world: World, observation: str, info: Info) -> str:
        """The next action for the episode whose last answer was `observation`, `info`."""
        ...


class WorldFamily(ABC):
    """A world's rules and tasks: everything that is not one live episode.

    Attributes:
        name: the world's name, as `--params=world.name=...` takes it.
        splits: the split names it can serve.
        max_turns: the turn limit after which `World.step` truncates.
        max_return: the largest possible sum of rewards in an episode (R_max of PaW).
        failure_modes: the names under which failed episodes are remembered, see `failure_mode`.
    """

    name: str
    splits: tuple[str, ...]
    max_turns: int
    max_return: float
    failure_modes: tuple[str, ...] = COMMON_FAILURES

    @abstractmethod
    def tasks(self, split: str, count: int | None = None) -> Sequence[Task]:
        """The tasks of a split in their fixed order, the first `count` of them if given.

        Raises:
            WorldError: unknown split, or fewer tasks than `count`.
        """

    @abstractmethod
    def new(self) -> World:
        """A fresh live episode; call its `reset` first."""

    @abstractmethod
    def random_policy(self, seed: int) -> ScriptedPolicy:
        """Random play, seeded."""

    @abstractmethod
    def oracle_policy(self, seed: int) -> ScriptedPolicy:
        """Scripted play that solves what can be solved, seeded."""

    def canonical_state(self, observation: str) -> str:
        """The key under which two turns count as the same state (GiGPO's anchor)."""
        return observation.strip()

    @abstractmethod
    def transition_kind(self, action: str, observation: str) -> str:
        """The kind of a transition for world-model reports, from a short fixed list."""

    def failure_mode(self, turns: Sequence[Past]) -> str:
        """Which of `failure_modes` a failed episode shows, by rules that need no model."""
        return common_failure(turns) or OTHER_FAILURE

    def files(self, split: str) -> Sequence[Path]:
        """The files and folders that the tasks of a split are read from; none where they are generated.

        Raises:
            WorldError: unknown split.
        """
        return []

    def facts(self) -> dict[str, str]:
        """What a reader of results must know of how this world was played: name -> value, in words."""
        return {"turn limit": str(self.max_turns)}

    def task_text(self, observation: str) -> str:
        """The goal sentence, cut out of the first observation."""
        return observation


def common_failure(turns: Sequence[Past]) -> str | None:
    """The failures that any world can tell: of form, of a refused action said again, of going round in circles.

    Args:
        turns: of a failed episode.

    Returns:
        One of `COMMON_FAILURES` but the last, or None where none fits.
    """
    if not turns:
        return None
    if sum(not turn.valid for turn in turns) > len(turns) / 2:
        return "action_format_error"
    refused = Counter(turn.action for turn in turns if not turn.accepted)
    if refused and max(refused.values()) >= max(REPEATS, len(turns) // 4):
        return "repeated_failed_action"
    last = turns[-LOOP_TURNS:]
    if len(last) == LOOP_TURNS and len({(turn.observation, turn.action) for turn in last}) <= LOOP_STATES:
        return "navigation_loop"
    return None


class WorldError(ValueError):
    """A world cannot be built or asked for as configured. The message names value, range and fix."""
