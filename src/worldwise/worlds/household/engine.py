"""The household world: a live episode of a text game, generated or official."""

from __future__ import annotations

import threading
from collections.abc import Callable

from worldwise.worlds.contract import Info, Step, Task, World, WorldError
from worldwise.worlds.household.compiled import CompiledGame
from worldwise.worlds.household.game import Game
from worldwise.worlds.household.sentences import translate_put_form
from worldwise.worlds.household.state import HouseholdState

__all__ = ["CompiledGame", "CompiledGames", "HouseholdState", "HouseholdWorld", "translate_put_form"]

DEFAULT_MAX_TURNS = 50
"""ALFWorld's own limit (`max_nb_steps_per_episode`)."""


class CompiledGames:
    """Compiles the games of tasks and keeps the last ones, so the episodes of a group share one.

    Give one object to all the worlds of a family. It may be shared between threads; pickling it
    drops the kept games.

    Args:
        load: gives the game of a task.
        capacity: how many compiled games to keep, at least 1 (about 0.1 to 0.5 MB each).
    """

    def __init__(self, load: Callable[[Task], Game], capacity: int = 128) -> None:
        if capacity < 1:
            raise WorldError(f"capacity is {capacity}; keep at least 1 compiled game")
        self._load = load
        self._capacity = capacity
        self._kept: dict[str, CompiledGame] = {}
        self._lock = threading.Lock()

    def __call__(self, task: Task) -> CompiledGame:
        """The compiled game of `task`."""
        with self._lock:
            rules = self._kept.get(task.task_id)
        if rules is None:
            rules = CompiledGame(self._load(task))
            with self._lock:
                if len(self._kept) >= self._capacity:
                    del self._kept[next(iter(self._kept))]
                self._kept[task.task_id] = rules
        return rules

    def __reduce__(self) -> tuple[type[CompiledGames], tuple[Callable[[Task], Game], int]]:
        return CompiledGames, (self._load, self._capacity)


class HouseholdWorld(World):
    """One episode of a household game.

    The reward is `success_reward` on the winning turn and 0 on every other. Winning terminates the
    episode; the turn limit truncates it.

    Args:
        load: gives the game of a task; pass one `CompiledGames` to share compiled games between worlds.
        max_turns: the turn limit, at least 1.
        success_reward: the reward for winning.
        accept_put_form: also accept "put X in/on Y", the form before ALFWorld 0.4.
    """

    __slots__ = ("_ended", "_games", "_state", "accept_put_form", "max_turns", "success_reward", "turns")

    def __init__(
        self,
        load: Callable[[Task], Game] | CompiledGames,
        *,
        max_turns: int = DEFAULT_MAX_TURNS,
        success_reward: float = 1.0,
        accept_put_form: bool = False,
    ) -> None:
        if max_turns < 1:
            raise WorldError(f"max_turns is {max_turns}; an episode needs at least 1 turn")
        self._games = load if isinstance(load, CompiledGames) else CompiledGames(load)
        self.max_turns = max_turns
        self.success_reward = success_reward
        self.accept_put_form = accept_put_form
        self.turns = 0
        self._state: HouseholdState | None = None
        self._ended = False

    @property
    def state(self) -> HouseholdState:
        """The live game; play it only through `step`.

        Raises:
            RuntimeError: before `reset`.
        """
        if self._state is None:
            raise RuntimeError("the household world has no game yet: call reset(task, seed) first")
        return self._state

    @property
    def game(self) -> Game:
        """The game being played."""
        return self.state.rules.game

    def reset(self, task: Task, seed: int) -> tuple[str, Info]:
        """Begin the game of `task`. Nothing in a game is random: the seed changes nothing."""
        self._state = HouseholdState(self._games(task))
        self.turns = 0
        self._ended = False
        return self._state.observation, self._info(self._state)

    def step(self, action: str) -> Step:
        """Play one command; anything but an admissible command costs a turn and changes nothing."""
        state = self._state
        if state is None or self._ended:
            reason = f"ended after {self.turns} turns" if self._ended else "has not begun"
            raise RuntimeError(f"the household episode {reason}: call reset(task, seed) first")
        observation = state.play(translate_put_form(action) if self.accept_put_form else action)
        self.turns += 1
        progress = state.progress
        won = progress == 1.0
        truncated = not won and self.turns >= self.max_turns
        self._ended = won or truncated
        info = Info(won, progress, state.accepted, state.admissible())
        return Step(observation, self.success_reward if won else 0.0, won, truncated, info)

    def copy(self) -> HouseholdWorld:
        """An independent episode in the same state; the compiled game is shared."""
        other = HouseholdWorld.__new__(HouseholdWorld)
        other._games = self._games
        other.max_turns = self.max_turns
        other.success_reward = self.success_reward
        other.accept_put_form = self.accept_put_form
        other.turns = self.turns
        other._state = None if self._state is None else self._state.copy()
        other._ended = self._ended
        return other

    def _info(self, state: HouseholdState) -> Info:
        progress = state.progress
        return Info(progress == 1.0, progress, state.accepted, state.admissible())
