"""A world of one corridor, and an engine that answers from a script."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from transformers import PreTrainedTokenizerFast

from worldwise.agents.agent import Agent
from worldwise.agents.config import AgentConfig
from worldwise.generation.protocol import Completion, EngineStats, Request, Sampling
from worldwise.stages.base_model.tokenizer import train_tokenizer
from worldwise.worlds.contract import Info, ScriptedPolicy, Step, Task, World, WorldError, WorldFamily

COMMANDS = ("go left", "go right", "wait")


class Corridor(World):
    """Walk right until the last room. A task's payload can make it raise, hang or lose."""

    def __init__(self, max_turns: int) -> None:
        self._max_turns = max_turns
        self._room = self._turn = 0
        self._payload: Mapping[str, object] = {}
        self._length = 0

    def reset(self, task: Task, seed: int) -> tuple[str, Info]:
        if task.payload.get("raise_at") == 0:
            raise WorldError("this room cannot be built")
        self._payload, self._room, self._turn = task.payload, 0, 0
        self._length = int(str(task.payload.get("length", 3)))
        return f"Room 0. Reach room {self._length}.", self._info(True)

    def step(self, action: str) -> Step:
        self._turn += 1
        if self._payload.get("raise_at") == self._turn:
            raise RuntimeError("the floor gave way")
        if self._payload.get("spin_at") == self._turn:
            while True:
                pass
        if self._payload.get("sleep_at") == self._turn:
            time.sleep(30)
        accepted = action in COMMANDS
        self._room = max(0, self._room + {"go left": -1, "go right": 1}.get(action, 0))
        solved = self._room == self._length
        lost = self._payload.get("lose_at") == self._turn
        text = f"Room {self._room}." if accepted else "Nothing happens."
        truncated = self._turn == self._max_turns and not solved and not lost
        answer = Step(text, float(solved), solved or lost, truncated, self._info(accepted))
        garbage = self._payload.get("garbage")
        return answer._replace(**garbage) if isinstance(garbage, dict) and self._turn == 2 else answer

    def copy(self) -> Corridor:
        twin = Corridor(self._max_turns)
        twin.__dict__.update(self.__dict__)
        return twin

    def _info(self, accepted: bool) -> Info:
        return Info(self._room == self._length, min(1.0, self._room / self._length), accepted, COMMANDS)


class _Walk:
    def __init__(self, seed: int | None) -> None:
        self._rng = None if seed is None else random.Random(seed)

    def act(self, world: World, observation: str, info: Info) -> str:
        return "go right" if self._rng is None else self._rng.choice(COMMANDS)


class CorridorFamily(WorldFamily):
    """Corridors of 1 to 5 rooms."""

    name = "corridor"
    splits = ("train",)
    max_return = 1.0

    def __init__(self, max_turns: int = 6) -> None:
        self.max_turns = max_turns

    def tasks(self, split: str, count: int | None = None) -> Sequence[Task]:
        lengths = [1 + i % 5 for i in range(10 if count is None else count)]
        return [self.task(f"corridor/{i}", length=length) for i, length in enumerate(lengths)]

    def task(self, name: str, **payload: object) -> Task:
        """A task with the given payload."""
        return Task(name, "long" if int(str(payload.get("length", 3))) > 2 else "short", "train", payload)

    def new(self) -> Corridor:
        return Corridor(self.max_turns)

    def random_policy(self, seed: int) -> ScriptedPolicy:
        return _Walk(seed)

    def oracle_policy(self, seed: int) -> ScriptedPolicy:
        return _Walk(None)

    def transition_kind(self, action: str, observation: str) -> str:
        return "nothing" if observation.startswith("Nothing") else action.partition(" ")[0]

    def task_text(self, observation: str) -> str:
        return observation.partition(". ")[2]


Say = Callable[[list[int], Request, Sampling], list[int]]


@dataclass
class ScriptedEngine:
    """Answers with `say(context, request, sampling)`, and keeps its slots as the protocol demands.

    Attributes:
        contexts: slot -> tokens.
        batches: sizes of the calls of `generate`.
        fail_at: calls of `generate` (from 0) that raise.
    """

    say: Say
    capacity: int = 64
    max_length: int = 1000
    contexts: dict[int, list[int]] = field(default_factory=dict)
    batches: list[int] = field(default_factory=list)
    seen: list[tuple[list[int], Sampling]] = field(default_factory=list)
    fail_at: tuple[int, ...] = ()
    stats: EngineStats = field(default_factory=EngineStats)

    def open(self) -> int:
        free = [slot for slot in range(self.capacity) if slot not in self.contexts]
        if not free:
            raise RuntimeError("all slots are open")
        self.contexts[free[0]] = []
        return free[0]

    def close(self, slot: int) -> None:
        del self.contexts[slot]

    def clear(self, slot: int) -> None:
        assert slot in self.contexts
        self.contexts[slot] = []

    def fork(self, slot: int) -> int:
        twin = self.open()
        self.contexts[twin] = list(self.contexts[slot])
        return twin

    def extend(self, contexts: Mapping[int, Sequence[int]]) -> None:
        for slot, ids in contexts.items():
            self.contexts[slot] += ids

    def length(self, slot: int) -> int:
        return len(self.contexts[slot])

    def refresh(self) -> None:
        self.contexts.clear()

    def generate(self, requests: Sequence[Request], sampling: Sampling, stop_ids: Sequence[int]) -> list[Completion]:
        self.batches.append(len(requests))
        if len(self.batches) - 1 in self.fail_at:
            raise RuntimeError("out of memory")
        return [self._one(request, sampling, stop_ids) for request in requests]

    def _one(self, request: Request, sampling: Sampling, stop_ids: Sequence[int]) -> Completion:
        context = self.contexts[request.slot]
        context += request.new_ids
        self.seen.append((list(context), sampling))
        said = self.say(context, request, sampling)
        stops = [i for i, token in enumerate(said) if token in stop_ids]
        said = said[: stops[0] + 1] if stops else said
        cut = said[: sampling.max_tokens]
        assert len(context) + len(cut) <= self.max_length
        context += cut
        self.stats.prefix_tokens += len(request.new_ids)
        self.stats.sampled_tokens += len(cut)
        nats = np.full(len(cut), -0.5 if sampling.temperature else 0.0, dtype=np.float32)
        finish = "stop" if cut and cut[-1] in stop_ids else "length"
        return Completion(np.asarray(cut, dtype=np.int32), nats, -nats, finish)


@pytest.fixture
def family() -> CorridorFamily:
    return CorridorFamily()


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    texts = ["Room 0. Reach room 3.", "Room 1.", "Nothing happens.", *COMMANDS]
    return train_tokenizer(texts, vocab_size=380, max_length=1024)


@pytest.fixture
def agent(tokenizer: PreTrainedTokenizerFast, family: CorridorFamily) -> Agent:
    return Agent(tokenizer, AgentConfig(), family)


@pytest.fixture
def walker(agent: Agent) -> Callable[..., ScriptedEngine]:
    """Makes an engine that draws one of the commands by the request's seed, and nothing else."""
    words = [list(agent.command_ids(command)) for command in ("go right", "go right", *COMMANDS)]

    def make(**options: object) -> ScriptedEngine:
        return ScriptedEngine(lambda context, request, sampling: list(words[request.seed % len(words)]), **options)  # type: ignore[arg-type]

    return make


@pytest.fixture
def speaker(agent: Agent) -> Callable[..., ScriptedEngine]:
    """Makes an engine that always says one text."""

    def make(text: str, ended: bool = True, **options: object) -> ScriptedEngine:
        ids = agent.encode(text) + ([agent.end_id] if ended else [])
        return ScriptedEngine(lambda context, request, sampling: list(ids), **options)  # type: ignore[arg-type]

    return make
