"""A world that can be learned but not guessed: two signs, each of which asks for one of three commands."""

from __future__ import annotations

import random
from collections.abc import Sequence

from worldwise.worlds.contract import Info, ScriptedPolicy, Step, Task, World, WorldFamily

MEANING = {"red": "up", "green": "down", "blue": "wait"}
COLOURS, COMMANDS = tuple(MEANING), tuple(MEANING.values())
SIGNS = 2
PAIRS = [(first, second) for first in COLOURS for second in COLOURS]


class Signposts(World):
    """Solved when every sign was answered right; random play solves one episode in nine."""

    def __init__(self) -> None:
        self._colours: tuple[str, ...] = ()
        self._right = self._turn = 0

    def reset(self, task: Task, seed: int) -> tuple[str, Info]:
        self._colours = tuple(str(task.payload["signs"]).split())
        self._right = self._turn = 0
        return f"{self._colours[0]}.", self._info(True)

    def step(self, action: str) -> Step:
        self._right += action == MEANING[self._colours[self._turn]]
        self._turn += 1
        over, solved = self._turn == SIGNS, self._right == SIGNS
        text = "the end." if over else f"{self._colours[self._turn]}."
        return Step(text, float(solved), over, False, self._info(action in COMMANDS))

    def copy(self) -> Signposts:
        twin = Signposts()
        twin.__dict__.update(self.__dict__)
        return twin

    def _info(self, accepted: bool) -> Info:
        return Info(self._right == SIGNS, self._right / SIGNS, accepted, COMMANDS)


class _Reader:
    def __init__(self, rng: random.Random | None) -> None:
        self._rng = rng

    def act(self, world: World, observation: str, info: Info) -> str:
        return MEANING[observation.rstrip(".")] if self._rng is None else self._rng.choice(COMMANDS)


class SignpostFamily(WorldFamily):
    """All pairs of signs, again and again."""

    name = "signposts"
    splits = ("train", "valid_seen")
    max_turns = SIGNS
    max_return = 1.0

    def tasks(self, split: str, count: int | None = None) -> Sequence[Task]:
        chosen = [PAIRS[number % len(PAIRS)] for number in range(len(PAIRS) if count is None else count)]
        return [Task(f"{split}/{n}", "signs", split, {"signs": " ".join(pair)}) for n, pair in enumerate(chosen)]

    def new(self) -> Signposts:
        return Signposts()

    def random_policy(self, seed: int) -> ScriptedPolicy:
        return _Reader(random.Random(seed))

    def oracle_policy(self, seed: int) -> ScriptedPolicy:
        return _Reader(None)

    def transition_kind(self, action: str, observation: str) -> str:
        return "sign"
