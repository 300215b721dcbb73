"""Short episodes in the chat templates of `chat_models`, played by the scheduler as rollouts play them.

The world and the engine follow a script, so what the engine was given and what it said is known token by token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerFast

from worldwise.agents.agent import Agent
from worldwise.agents.config import AgentConfig
from worldwise.agents.prompts import Prompts
from worldwise.episodes.record import Episode
from worldwise.episodes.sequences import Role, TrainingSequence, sequences_from_episode
from worldwise.episodes.validate import check_episode
from worldwise.rollouts.config import EpisodePlan, RolloutConfig
from worldwise.rollouts.scheduler import play
from worldwise.worlds.contract import Info, Step, Task, World

from ..rollouts.conftest import ScriptedEngine
from ..worldless import WorldlessFamily
from .chat_models import tokenizer_of

OBSERVATIONS = (
    "You are in a room. You see a drawer 1.\n\nYour task is to: put a mug in drawer.",
    "The drawer 1 is closed.",
    "You open it.\n\nIn it is a mug.",
    "Nothing happens.",
)
COMMANDS = ("go to drawer 1", "open drawer 1", "take mug", "look")
THOUGHTFUL = (
    "<think>\nI should go to drawer 1.\n</think>\n\n<action>go to drawer 1</action>",
    "<action>open drawer 1</action>",
    "<think>\nIn it is a mug.\n</think>\n\n<action>take mug</action>",
    "<action>look</action>",
)


@dataclass(frozen=True)
class Case:
    """An episode in one chat template.

    Attributes:
        family: name in `chat_models.FAMILIES`.
        restarts: which turns of a `conversation` begin a new row.
        settings: of the agent, besides `context` and `history`.
        said: the responses.
    """

    family: str
    restarts: tuple[bool, ...] = (True, False, False, False)
    settings: dict[str, Any] = field(default_factory=lambda: {"style": "instruct"})
    said: tuple[str, ...] = COMMANDS

    def config(self, context: str, **changes: object) -> AgentConfig:
        return AgentConfig.model_validate({**self.settings, "context": context, "history": 100, **changes})


CASES = {
    "qwen2.5": Case("qwen2.5"),
    "qwen2.5-default-system": Case("qwen2.5", settings={}),
    "qwen3": Case("qwen3"),
    # Thoughts are in the first and the third response: the template drops them as soon as a user message follows.
    "qwen3-thinking": Case(
        "qwen3", (True, True, False, True), {"style": "instruct", "action_format": "tags"}, THOUGHTFUL
    ),
    # The prompt ends with an empty thought, which is not shown again before an earlier answer.
    "qwen3-no-thinking": Case(
        "qwen3", (True,) * 4, {"style": "instruct", "template_options": {"enable_thinking": False}}
    ),
    "llama-3": Case("llama-3"),
    "smollm2": Case("smollm2"),
    "smollm2-default-system": Case("smollm2", settings={}),
    "mistral": Case("mistral"),
    "mistral-v3": Case("mistral-v3"),
}
CONTEXTS = ("conversation", "window")


class Script(World):
    """Tells its observations one after the other, whatever is done."""

    def __init__(self, observations: Sequence[str], admissible: Sequence[str]) -> None:
        self._observations, self._info = observations, Info(False, 0.0, True, tuple(admissible))
        self._turn = 0

    def reset(self, task: Task, seed: int) -> tuple[str, Info]:
        self._turn = 0
        return self._observations[0], self._info

    def step(self, action: str) -> Step:
        self._turn += 1
        ended = self._turn == len(self._observations)
        text = "The end." if ended else self._observations[self._turn]
        return Step(text, 0.0, ended, False, self._info)

    def copy(self) -> Script:
        twin = Script(self._observations, self._info.admissible or ())
        twin._turn = self._turn
        return twin


class ScriptFamily(WorldlessFamily):
    """The world of one script; prompts know nothing special about it."""

    name = "script"

    def __init__(self, observations: Sequence[str] = OBSERVATIONS, admissible: Sequence[str] = COMMANDS) -> None:
        self._observations, self._admissible = observations, admissible
        self.max_turns = len(observations) + 1

    def new(self) -> Script:
        return Script(self._observations, self._admissible)

    def task_text(self, observation: str) -> str:
        return observation.partition("Your task is to: ")[2]


@dataclass(frozen=True)
class Played:
    """An episode and everything that is known about it beside the record.

    Attributes:
        heard: what stood in the engine's slot when it was to say something, turn by turn.
        said: what it then said.
        rows: the training sequences; turn t has advantage t + 1.
    """

    tokenizer: PreTrainedTokenizerFast
    agent: Agent
    episode: Episode
    heard: list[list[int]]
    said: list[list[int]]
    rows: list[TrainingSequence]


def played(
    tokenizer: PreTrainedTokenizerFast,
    config: AgentConfig,
    said: Sequence[str | Sequence[int]],
    observations: Sequence[str] = OBSERVATIONS,
    admissible: Sequence[str] = COMMANDS,
    max_tokens: int = 64,
) -> Played:
    """Plays one episode.

    Args:
        said: responses; texts are encoded and ended, ids are taken as they are.
    """
    family = ScriptFamily(observations[: len(said)], admissible)
    agent = Agent(tokenizer, config, family)
    given = [[*agent.encode(one), agent.end_id] if isinstance(one, str) else list(one) for one in said]
    script = iter(given)
    engine = ScriptedEngine(lambda context, request, sampling: next(script), max_length=5000)
    plan = EpisodePlan(Task("task", "type", "train"), "chats/0/task", 0, 0, 1, 1)
    (episode,) = play(family, engine, agent, [plan], RolloutConfig(max_tokens=max_tokens), "scripted")
    check_episode(episode)
    assert len(episode.turns) == len(said)
    advantages = [turn.index + 1.0 for turn in episode.turns]
    commands = agent.allowed_sequences if config.restrict_to_admissible else None
    rows = sequences_from_episode(episode, advantages, commands)
    heard = [context for context, _ in engine.seen]
    return Played(tokenizer, agent, episode, heard, [ids[:max_tokens] for ids in given], rows)


def played_case(name: str, context: str, **changes: object) -> Played:
    """Plays one of `CASES`."""
    case = CASES[name]
    return played(tokenizer_of(case.family), case.config(context, **changes), case.said)


def chat_at(play_: Played, turn: int) -> list[dict[str, str]]:
    """The messages of a conversation before a turn's response."""
    system = Prompts(play_.agent.config, "script").system()
    messages = [] if system is None else [{"role": "system", "content": system}]
    for earlier in play_.episode.turns[:turn]:
        messages.append({"role": "user", "content": earlier.observation})
        messages.append({"role": "assistant", "content": earlier.response_text})
    return [*messages, {"role": "user", "content": play_.episode.turns[turn].observation}]


def rendered(play_: Played, turn: int) -> list[int]:
    """Ids of the chat before a turn's response, rendered and encoded at once by the tokenizer itself."""
    options: dict[str, Any] = play_.agent.config.template_options
    text = play_.tokenizer.apply_chat_template(
        chat_at(play_, turn), tokenize=False, add_generation_prompt=True, **options
    )
    ids: list[int] = play_.tokenizer(text, add_special_tokens=False)["input_ids"]
    return ids


def stretches(row: TrainingSequence) -> list[tuple[Role, int, int, int]]:
    """Stretches of equal role and turn: (role, turn, start, end)."""
    keys = np.stack([row.roles.astype(np.int32), row.turns])
    borders = [0, *(np.flatnonzero((keys[:, 1:] != keys[:, :-1]).any(axis=0)) + 1).tolist(), len(row)]
    return [(Role(row.roles[start]), int(row.turns[start]), start, end) for start, end in pairwise(borders)]
