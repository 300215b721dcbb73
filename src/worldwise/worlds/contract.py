"""What a world is: the contract every family of tasks fulfils.

Imports nothing of the package. The five-tuple of `World.step` has Gymnasium's meaning
(Farama Foundation, `gymnasium.Env.step`): `terminated` says that the task itself ended
(solved or lost for good), `truncated` that a limit cut the episode off.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol


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
    """

    name: str
    splits: tuple[str, ...]
    max_turns: int
    max_return: float

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

    def files(self, split: str) -> Sequence[Path]:
        """The files and folders that the tasks of a split are read from; none where they are generated.

        Raises:
            WorldError: unknown split.
        """
        return []

    def task_text(self, observation: str) -> str:
        """The goal sentence, cut out of the first observation."""
        return observation


class WorldError(ValueError):
    """A world cannot be built or asked for as configured. The message names value, range and fix."""
