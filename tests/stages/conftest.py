"""Hand-made episodes for the tests of scores and rows, and a small world for the tests of whole stages."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from worldwise.agents.config import AgentConfig
from worldwise.episodes.record import Episode, Termination, Turn
from worldwise.generation.tiny import tiny_model, tiny_tokenizer
from worldwise.rollouts.config import RolloutConfig
from worldwise.stages.actor import Checkpoint, StageContext
from worldwise.worlds.contract import Info, ScriptedPolicy, Step, Task, World, WorldFamily

MakeEpisode = Callable[..., Episode]
COMMANDS = ("up", "down", "wait")


def turn(
    index: int,
    *,
    observation: str = "",
    action: str = "look",
    answer: str = "You see nothing.",
    reward: float = 0.0,
    progress: float = 0.0,
    valid: bool = True,
    accepted: bool = True,
    terminated: bool = False,
) -> Turn:
    """A turn whose context and response have three and two tokens."""
    return Turn(
        index=index,
        observation=observation or f"state {index}",
        context_ids=np.asarray([1, 2, 3], dtype=np.int32),
        restart=index == 0,
        observation_span=(1, 2),
        response_ids=np.asarray([4, 5], dtype=np.int32),
        logprobs=np.asarray([-0.5, -1.0], dtype=np.float32),
        entropies=np.asarray([0.25, 0.75], dtype=np.float32),
        response_text=action,
        action=action,
        action_span=(0, 1),
        format_valid=valid,
        finished=True,
        accepted=accepted,
        reward=reward,
        progress=progress,
        next_observation=answer,
        terminated=terminated,
        truncated=False,
    )


@pytest.fixture
def make_turn() -> Callable[..., Turn]:
    """Builds a turn."""
    return turn


@pytest.fixture
def make_episode() -> MakeEpisode:
    """Builds an episode out of turns; by default two turns, the last of which solves the task if `success`."""

    def build(
        name: str = "a",
        *,
        group: str = "g",
        success: bool = False,
        turns: Sequence[Turn] | None = None,
        termination: Termination | None = None,
        task_type: str = "pick",
        split: str = "valid_seen",
        temperature: float = 1.0,
    ) -> Episode:
        end = Termination.SOLVED if success else Termination.TURN_LIMIT
        won = float(success)
        played = [turn(0), turn(1, reward=won, progress=won, terminated=success)] if turns is None else turns
        ended = end if termination is None else termination
        failed = ended in (Termination.WORLD_ERROR, Termination.TIMEOUT, Termination.ENGINE_ERROR)
        return Episode(
            episode_id=f"{group}/{name}",
            group_id=group,
            world="household",
            task_id=group,
            task_type=task_type,
            split=split,
            sample=0,
            iteration=0,
            seed=0,
            model_version="test",
            turns=tuple(played),
            termination=ended,
            success=success,
            progress=played[-1].progress if played else 0.0,
            reward_valid=not failed,
            temperature=temperature,
            restricted=False,
            context="conversation",
        )

    return build


class Corridor(World):
    """Rooms in a row; the goal names one, and only walking towards it helps."""

    def __init__(self, max_turns: int) -> None:
        self._max_turns = max_turns
        self._room = self._goal = self._turn = 0

    def reset(self, task: Task, seed: int) -> tuple[str, Info]:
        self._room, self._turn = 0, 0
        self._goal = int(str(task.payload["goal"]))
        return f"room 0. find room {self._goal}.", self._info(True)

    def step(self, action: str) -> Step:
        self._turn += 1
        accepted = action in COMMANDS
        self._room += {"up": 1, "down": -1}.get(action, 0)
        solved = self._room == self._goal
        text = f"room {self._room}." if accepted else "Nothing happens."
        truncated = self._turn >= self._max_turns and not solved
        return Step(text, float(solved), solved, truncated, self._info(accepted))

    def copy(self) -> Corridor:
        twin = Corridor(self._max_turns)
        twin.__dict__.update(self.__dict__)
        return twin

    def _info(self, accepted: bool) -> Info:
        return Info(self._room == self._goal, float(self._room == self._goal), accepted, COMMANDS)


class _Walk:
    def __init__(self, rng: random.Random | None) -> None:
        self._rng = rng

    def act(self, world: World, observation: str, info: Info) -> str:
        return "up" if self._rng is None else self._rng.choice(COMMANDS)


class CorridorFamily(WorldFamily):
    """Corridors whose goal is one or two rooms up."""

    name = "corridor"
    splits = ("train", "valid_seen", "valid_unseen")
    max_turns = 4
    max_return = 1.0

    def tasks(self, split: str, count: int | None = None) -> Sequence[Task]:
        goals = [1 + number % 2 for number in range(12 if count is None else count)]
        return [Task(f"{split}/{number}", f"goal_{goal}", split, {"goal": goal}) for number, goal in enumerate(goals)]

    def new(self) -> Corridor:
        return Corridor(self.max_turns)

    def random_policy(self, seed: int) -> ScriptedPolicy:
        return _Walk(random.Random(seed))

    def oracle_policy(self, seed: int) -> ScriptedPolicy:
        return _Walk(None)

    def transition_kind(self, action: str, observation: str) -> str:
        return "nothing" if observation.startswith("Nothing") else "walk"


class LetterEncoder:
    """Counts of letters and digits as unit vectors: equal texts lie at distance 0, others apart."""

    def __init__(self) -> None:
        self.memory: dict[str, NDArray[np.float32]] = {}

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        signs = "abcdefghijklmnopqrstuvwxyz0123456789-"
        counts = np.asarray([[text.lower().count(sign) for sign in signs] for text in texts], dtype=np.float32)
        counts[:, 0] += 1e-3
        return counts / np.linalg.norm(counts, axis=1, keepdims=True)


@pytest.fixture
def family() -> CorridorFamily:
    """The world of the end-to-end tests."""
    return CorridorFamily()


@pytest.fixture
def encoder() -> LetterEncoder:
    """An encoder that costs nothing."""
    return LetterEncoder()


@pytest.fixture
def start() -> Checkpoint:
    """A random model of a few thousand parameters with its byte tokenizer."""
    model = tiny_model("qwen3", layers=2, hidden=32, max_positions=512, spread=0.08, seed=1)
    return Checkpoint(model, tiny_tokenizer(), "base")


@pytest.fixture
def context(family: CorridorFamily) -> StageContext:
    """Restricted play in the corridor with 64 slots."""
    return StageContext(
        family=family,
        agent=AgentConfig(restrict_to_admissible=True),
        rollout=RolloutConfig(slots=64, max_tokens=8, max_episode_tokens=200),
        seed=7,
    )
