"""What a stage works with: weights with their name, the settings of play, and an engine that plays them.

Stages import torch and what brings it along inside their functions: their settings are read by commands that train
nothing and should answer at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

from worldwise.agents.agent import Agent
from worldwise.agents.config import AgentConfig
from worldwise.generation.models import Dtype, ModelConfig, load_model, load_tokenizer, save_model
from worldwise.generation.protocol import Engine
from worldwise.rollouts.config import RolloutConfig
from worldwise.stages.errors import StageError
from worldwise.stages.reporter import Reporter, Silent
from worldwise.stages.saving import Saver, SavesNothing
from worldwise.worlds.contract import WorldFamily

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from worldwise.rollouts.workers import WorkerPool

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
        sampler_dtype: what it plays and predicts in; None = as the weights.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    version: str
    sampler_dtype: Dtype | None = None

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
    return Checkpoint(load_model(folder, config.dtype, config.device), tokenizer, version, config.sampler_dtype)


@dataclass(frozen=True, slots=True)
class StageContext:
    """What all stages of a run share.

    Attributes:
        family: the world that is played.
        agent: prompts and parsing.
        rollout: how episodes are played.
        seed: everything random in a stage derives from (seed, stage, iteration, task, sample, turn).
        reporter: hears how the stage is going.
        workers: processes that play and predict; 1 = this one alone, None = one per core on a CPU (see
            `worker_count`). The episodes are the same.
        saver: keeps where the stage stands, so that one that was killed goes on.
    """

    family: WorldFamily
    agent: AgentConfig
    rollout: RolloutConfig
    seed: int
    reporter: Reporter = field(default_factory=Silent)
    workers: int | None = 1
    saver: Saver = field(default_factory=SavesNothing)


@dataclass(frozen=True, slots=True)
class Actor:
    """A checkpoint ready to act and to predict; as a context manager it is closed at the end.

    Attributes:
        checkpoint: the weights.
        engine: generates in this process.
        agent: prompts and parsing.
        pool: processes that do so beside each other, started when they have enough to do; None = none.
    """

    checkpoint: Checkpoint
    engine: Engine
    agent: Agent
    pool: WorkerPool | None = None

    def refresh(self) -> None:
        """The weights changed."""
        self.engine.refresh()
        if self.pool is not None:
            self.pool.refresh()

    def close(self) -> None:
        """End the worker processes, if there are any."""
        if self.pool is not None:
            self.pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def make_actor(checkpoint: Checkpoint, context: StageContext, answer_tokens: int = 0) -> Actor:
    """An engine and an agent for a checkpoint.

    Args:
        checkpoint: the weights.
        context: settings; `rollout.slots` becomes the engine's capacity, and that of every worker.
        answer_tokens: most tokens of a prediction; room for one behind the longest episode is added.

    Raises:
        StageError: the model's context is too short for a single response.
        RolloutError: several workers are wanted for a model that is not on the CPU.
    """
    import torch

    from worldwise.generation.engines import make_engine
    from worldwise.rollouts.workers import WorkerPool, worker_count

    asked = _with_stops(context.agent, checkpoint)
    agent = Agent(checkpoint.tokenizer, asked, context.family)
    suffix = len(agent.predict_suffix()) if answer_tokens else 0
    longest = _longest(checkpoint, context.rollout) + suffix + answer_tokens
    length = min(longest, _positions(checkpoint))
    if length <= context.rollout.max_tokens:
        raise StageError(
            f"the model holds {length} tokens of context and rollout.max_tokens is {context.rollout.max_tokens}: "
            "lower rollout.max_tokens or take a model with a longer context"
        )
    model, tokenizer, slots = checkpoint.model, checkpoint.tokenizer, context.rollout.slots
    dtype = None if checkpoint.sampler_dtype is None else getattr(torch, checkpoint.sampler_dtype)
    engine = make_engine(model, tokenizer, slots, length, dtype)
    count = worker_count(context.workers, model)
    if count == 1:
        return Actor(checkpoint, engine, agent)
    pool = WorkerPool(model, tokenizer, asked, context.family, slots, length, count, dtype)
    return Actor(checkpoint, engine, agent, pool)


def _with_stops(config: AgentConfig, checkpoint: Checkpoint) -> AgentConfig:
    """The agent's settings with the tokens that the model was made to stop at: there may be several."""
    generation = checkpoint.model.generation_config
    found = None if generation is None else generation.eos_token_id
    stops = [] if found is None else found if isinstance(found, list) else [found]
    known = len(checkpoint.tokenizer)
    more = {int(token) for token in stops if 0 <= int(token) < known}
    return config.model_copy(update={"stop_ids": tuple(sorted({*config.stop_ids, *more}))})


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
