"""The household world as a family of tasks: generated or official games under one contract."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from worldwise.worlds.contract import Task, WorldError, WorldFamily
from worldwise.worlds.household.config import HouseholdConfig
from worldwise.worlds.household.engine import CompiledGames, HouseholdWorld
from worldwise.worlds.household.game import Game
from worldwise.worlds.household.generator import SPLITS, generate_game, split_size, task_type_of
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


@dataclass(frozen=True, slots=True)
class GeneratedLoader:
    """Makes the game of a task again from its payload (`index`); picklable."""

    config: HouseholdConfig

    def __call__(self, task: Task) -> Game:
        index = task.payload.get("index")
        if not isinstance(index, int):
            raise WorldError(
                f"task {task.task_id!r} has index={index!r} in its payload: it is not a generated game"
            )
        return generate_game(self.config, task.split, index)


class HouseholdFamily(WorldFamily):
    """Generated household games.

    Args:
        config: which games, by which rules.
    """

    name = "household"
    splits = SPLITS

    def __init__(self, config: HouseholdConfig) -> None:
        self.config = config
        self.max_turns = config.max_turns
        self.max_return = config.success_reward
        self._games = CompiledGames(GeneratedLoader(config))

    def tasks(self, split: str, count: int | None = None) -> Sequence[Task]:
        """The games of a split in their fixed order, task types in equal shares."""
        size = split_size(self.config, split)
        number = size if count is None else count
        if not 0 <= number <= size:
            raise WorldError(
                f"count={count} is outside of 0..{size} for {split}: raise {split}_games or ask for fewer"
            )
        return [
            Task(
                f"household/{split}/{index}", task_type_of(self.config, split, index), split, {"index": index}
            )
            for index in range(number)
        ]

    def new(self) -> HouseholdWorld:
        return HouseholdWorld(
            self._games,
            max_turns=self.config.max_turns,
            success_reward=self.config.success_reward,
            accept_put_form=self.config.accept_put_form,
        )

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

    def task_text(self, observation: str) -> str:
        """The goal sentence of a first observation, "put two cd in safe."; without one the whole text."""
        _, found, goal = observation.partition(_TASK_MARK)
        return goal.strip() if found else observation
