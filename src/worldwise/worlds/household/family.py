"""The household world as a family of tasks: generated or official games under one contract."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from worldwise.config import derive_seed
from worldwise.worlds.contract import Past, Task, WorldError, WorldFamily
from worldwise.worlds.household.config import HouseholdConfig
from worldwise.worlds.household.engine import CompiledGames, HouseholdWorld
from worldwise.worlds.household.failures import FAILURE_MODES, failure_mode
from worldwise.worlds.household.game import Game
from worldwise.worlds.household.generator import SPLITS, generate_game, split_size, task_type_of
from worldwise.worlds.household.official import OfficialGames
from worldwise.worlds.household.policies import RandomPolicy, SearchingOracle

TRANSITION_KINDS: tuple[str, ...] = (
    "arrive_open",
    "arrive_closed",
    "open",
    "close",
    "take",
    "move",
    "change",
    "use",
    "examine",
    "look",
    "inventory",
    "nothing_happens",
    "other",
)
"""Kinds of transitions: arriving at what lies open or is closed, and what the command did."""

_KIND_OF_VERB = {
    "open": "open",
    "close": "close",
    "take": "take",
    "move": "move",
    "put": "move",
    "clean": "change",
    "heat": "change",
    "cool": "change",
    "slice": "change",
    "use": "use",
    "examine": "examine",
    "look": "look",
    "inventory": "inventory",
}
_TASK_MARK = "Your task is to: "


class Games(Protocol):
    """Where games come from: their tasks, and the game of a task. Picklable."""

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits that are there."""
        ...

    def tasks(self, split: str, count: int | None = None) -> Sequence[Task]:
        """The first `count` tasks of a split, or all."""
        ...

    def files(self, split: str) -> Sequence[Path]:
        """The files and folders that the games of a split are read from."""
        ...

    def __call__(self, task: Task) -> Game:
        """The game of a task."""
        ...


class GeneratedGames:
    """Games made from the room tables; the payload of a task is its `index` in the split."""

    def __init__(self, config: HouseholdConfig) -> None:
        self._config = config
        self.splits = SPLITS

    def tasks(self, split: str, count: int | None = None) -> Sequence[Task]:
        """Tasks in their fixed order, task types in equal shares."""
        size = split_size(self._config, split)
        number = size if count is None else count
        if not 0 <= number <= size:
            raise WorldError(
                f"count={count} is outside of 0..{size}, the games of {split}: raise {split}_games or ask for fewer"
            )
        kinds = (task_type_of(self._config, split, index) for index in range(number))
        return [Task(f"generated/{split}/{index}", kind, split, {"index": index}) for index, kind in enumerate(kinds)]

    def files(self, split: str) -> Sequence[Path]:
        """None."""
        return []

    def __call__(self, task: Task) -> Game:
        index = task.payload.get("index")
        if not isinstance(index, int):
            raise WorldError(f"task {task.task_id!r} has index={index!r} in its payload: it is not a generated game")
        return generate_game(self._config, task.split, index)


class ShuffledOfficialGames:
    """ALFWorld's games of the wanted task types, in an order that the seed gives.

    The official order goes by path, so its first games would all be of one type.
    """

    def __init__(self, config: HouseholdConfig) -> None:
        self._config = config
        self._games = OfficialGames(config.data)
        self.splits = self._games.splits

    def tasks(self, split: str, count: int | None = None) -> Sequence[Task]:
        """Tasks in their fixed order: that of a hash of seed and task id."""
        kinds = set(self._config.task_types)
        found = [task for task in self._games.tasks(split) if task.task_type in kinds]
        if count is not None and not 0 <= count <= len(found):
            raise WorldError(
                f"count={count} is outside of 0..{len(found)}, the official games of {split} with "
                f"task_types={self._config.task_types!r}: ask for fewer"
            )
        return sorted(found, key=lambda task: derive_seed(self._config.seed, "order", task.task_id))[:count]

    def files(self, split: str) -> Sequence[Path]:
        """The split's folder or archive."""
        return [self._games.source(split).path()]

    def __call__(self, task: Task) -> Game:
        return self._games(task)


class HouseholdFamily(WorldFamily):
    """Household games, generated or official.

    Args:
        config: which games, by which rules.

    Raises:
        WorldError: the official games are asked for and not there.
    """

    name = "household"
    failure_modes = FAILURE_MODES

    def __init__(self, config: HouseholdConfig) -> None:
        self.config = config
        self.max_turns = config.max_turns
        self.max_return = config.success_reward
        official = config.source == "official"
        self._games: Games = ShuffledOfficialGames(config) if official else GeneratedGames(config)
        self.splits = self._games.splits
        self._compiled = CompiledGames(self._games)

    def tasks(self, split: str, count: int | None = None) -> Sequence[Task]:
        return self._games.tasks(split, count)

    def new(self) -> HouseholdWorld:
        return HouseholdWorld(
            self._compiled,
            max_turns=self.config.max_turns,
            success_reward=self.config.success_reward,
            accept_put_form=self.config.accept_put_form,
        )

    def files(self, split: str) -> Sequence[Path]:
        return self._games.files(split)

    def random_policy(self, seed: int) -> RandomPolicy:
        return RandomPolicy(seed)

    def oracle_policy(self, seed: int) -> SearchingOracle:
        return SearchingOracle(seed=seed)

    def transition_kind(self, action: str, observation: str) -> str:
        """One of `TRANSITION_KINDS`."""
        if observation.startswith("Nothing happens"):
            return "nothing_happens"
        verb = action.strip().partition(" ")[0]
        if verb == "go":
            return "arrive_closed" if observation.rstrip().endswith("is closed.") else "arrive_open"
        return _KIND_OF_VERB.get(verb, "other")

    def facts(self) -> dict[str, str]:
        config = self.config
        form = "also `put X in/on Y`, as before ALFWorld 0.4" if config.accept_put_form else "`move X to Y`"
        games = f"generated, seed {config.seed}" if config.source == "generated" else "ALFWorld's"
        return {**super().facts(), "games": games, "commands that put": form}

    def failure_mode(self, turns: Sequence[Past]) -> str:
        """One of `FAILURE_MODES`, by rules."""
        return failure_mode(turns)

    def task_text(self, observation: str) -> str:
        """The goal sentence of a first observation, "put two cd in safe."; without one the whole text."""
        _, found, goal = observation.partition(_TASK_MARK)
        return goal.strip() if found else observation
