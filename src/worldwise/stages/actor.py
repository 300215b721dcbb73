"""What a stage works with: weights with their name, the settings of play, and an engine that plays them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from worldwise.agents.agent import Agent
from worldwise.agents.config import AgentConfig
from worldwise.generation.engines import make_engine
from worldwise.generation.models import ModelConfig, load_model, load_tokenizer, save_model
from worldwise.generation.protocol import Engine
from worldwise.rollouts.config import RolloutConfig
from worldwise.stages.errors import StageError
from worldwise.stages.reporter import Reporter, Silent
from worldwise.worlds.contract import WorldFamily

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

LONGEST = 4096
"""Most tokens in a slot where neither the model nor the rollout settings say less."""

ANSWER_ROOM = 512
"""Tokens of a model's context that episodes leave free unless `rollout.max_episode_tokens` is given, so that a
prediction has room behind the longest of them (at most a quarter of the context)."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Weights, their tokenizer and the name of the stage that made them.

    Attributes:
        model: a causal language model of transformers, in evaluation mode. Training stages change it in place.
        tokenizer: its tokenizer, with a chat template.
        version: name for the records, for example `base` or `rwml`.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    version: str

    def save(self, folder: Path) -> Path:
        """Write a folder that transformers loads as it is; returns it."""
        save_model(self.model, self.tokenizer, folder)
        return folder

    def named(self, version: str) -> Checkpoint:
        """The same weights under another name."""
        return replace(self, version=version)


def load_checkpoint(folder: Path, version: str, config: ModelConfig) -> Checkpoint:
    """Weights and tokenizer of a model folder.

    Raises:
        ModelError: the folder is not a complete model.
    """
    tokenizer = load_tokenizer(folder)
    return Checkpoint(load_model(folder, config.dtype, config.device), tokenizer, version)


@dataclass(frozen=True, slots=True)
class StageContext:
    """What all stages of a run share.

    Attributes:
        family: the world that is played.
        agent: prompts and parsing.
        rollout: how episodes are played.
        seed: everything random in a stage derives from (seed, stage, iteration, task, sample, turn).
        reporter: hears how the stage is going.
    """

    family: WorldFamily
    agent: AgentConfig
    rollout: RolloutConfig
    seed: int
    reporter: Reporter = field(default_factory=Silent)


@dataclass(frozen=True, slots=True)
class Actor:
    """A checkpoint ready to act and to predict.

    Attributes:
        checkpoint: the weights.
        engine: generates; `engine.refresh()` after every change of the weights.
        agent: prompts and parsing.
    """

    checkpoint: Checkpoint
    engine: Engine
    agent: Agent


def make_actor(checkpoint: Checkpoint, context: StageContext, answer_tokens: int = 0) -> Actor:
    """An engine and an agent for a checkpoint.

    Args:
        checkpoint: the weights.
        context: settings; `rollout.slots` becomes the engine's capacity.
        answer_tokens: most tokens of a prediction; room for one behind the longest episode is added.

    Raises:
        StageError: the model's context is too short for a single response.
    """
    agent = Agent(checkpoint.tokenizer, context.agent, context.family)
    suffix = len(agent.predict_suffix()) if answer_tokens else 0
    longest = _longest(checkpoint, context.rollout) + suffix + answer_tokens
    length = min(longest, _positions(checkpoint))
    if length <= context.rollout.max_tokens:
        raise StageError(
            f"the model holds {length} tokens of context and rollout.max_tokens is {context.rollout.max_tokens}: "
            "lower rollout.max_tokens or take a model with a longer context"
        )
    engine = make_engine(checkpoint.model, checkpoint.tokenizer, context.rollout.slots, length)
    return Actor(checkpoint, engine, agent)


def distinct(names: Sequence[str]) -> list[str]:
    """The names without repeats, in order of first appearance."""
    return list(dict.fromkeys(names))


def _positions(checkpoint: Checkpoint) -> int:
    return int(checkpoint.model.config.max_position_embeddings)


def _longest(checkpoint: Checkpoint, rollout: RolloutConfig) -> int:
    """Most tokens of an episode."""
    positions = _positions(checkpoint)
    if rollout.max_episode_tokens is not None:
        return min(positions, rollout.max_episode_tokens)
    return min(positions, LONGEST) - min(ANSWER_ROOM, positions // 4)
