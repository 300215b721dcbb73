"""Short supervised training on self-generated play, so that a language model answers in the form of the game.

A pretrained model that never saw the game hardly ever says a valid command, and policy RL cannot learn from play in
which nothing happens; nor can RWML from predictions without their tags. Here the model sees scripted episodes
(`base_model.play`: random play, and purposeful play with slips) in the very tokens in which it will play itself, and
learns the commands in them. The episodes are of generated training games that no later stage plays, and none is kept
or dropped for its success: what is taught is the form, how to win is left to the later stages.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from pydantic import Field

from worldwise.agents.agent import Agent
from worldwise.agents.config import AgentConfig
from worldwise.config import FrozenConfig, derive_seed
from worldwise.episodes.sequences import Role, TrainingSequence
from worldwise.stages.actor import Checkpoint, StageContext
from worldwise.stages.base_model.encoding import PlayEncoder, Row
from worldwise.stages.base_model.play import PlayConfig, Transcript, play_episodes
from worldwise.stages.errors import StageError
from worldwise.stages.reporter import CurveRecorder
from worldwise.stages.saving import TrainingState, resumed
from worldwise.stages.supervised import Curve
from worldwise.training.config import LearnerConfig
from worldwise.worlds.household.family import HouseholdFamily

VERSION = "format_tuning"


class FormatTuningConfig(FrozenConfig):
    """Format tuning. One row is one played episode.

    Attributes:
        updates: optimizer steps; 0 = none, the model is passed on as it is.
        batch: rows per optimizer step.
        play: how the episodes are played. `episodes` bounds how many different ones there are: where `updates` times
            `batch` is more, they come again. `seed` is taken beside the run's seed.
        prediction_share: share of rows that end, behind a random command, in the request for a prediction and its
            answer.
        prediction_weight: loss weight of the predicted text; tags and end token count 1, as commands do. Low, so
            that the world is left to be learned by the stages that are about it.
        learner: optimizer settings.
    """

    updates: int = Field(0, ge=0)
    batch: int = Field(8, ge=1)
    play: PlayConfig = PlayConfig()
    prediction_share: float = Field(0.2, ge=0.0, le=1.0)
    prediction_weight: float = Field(0.2, ge=0.0)
    learner: LearnerConfig = Field(
        default_factory=lambda: LearnerConfig(learning_rate=2e-4, schedule="linear", warmup_steps=5, final_share=0.1)
    )


@dataclass(frozen=True, slots=True)
class FormatTuningResult:
    """What format tuning made.

    Attributes:
        checkpoint: the trained weights.
        curve: one row per update: `loss`, `token_accuracy`, `entropy` (means over tokens with a loss),
            `learner_*`, `seconds`.
        summary: `updates`, `rows`, `prediction_rows`, `tokens` (all that went through the model), `play_success` (share
            of the played episodes that solved their game), `loss_first`, `loss_last` (means of the first and last
            tenth), `seconds`.
    """

    checkpoint: Checkpoint
    curve: Curve
    summary: dict[str, float]


def objection(agent: AgentConfig, world: str) -> str | None:
    """Why format tuning cannot serve this agent in this world, and what to do; None if it can."""
    fix = "or set format_tuning.updates to 0"
    if world != HouseholdFamily.name:
        return f"format tuning plays {HouseholdFamily.name} games, and world.name is {world!r}: take that world, {fix}"
    if agent.context != "conversation":
        return (
            f"format tuning trains on one growing chat, and agent.context is {agent.context!r}: set it to "
            f"conversation, {fix}"
        )
    if agent.list_admissible:
        return (
            "format tuning shows play without lists of commands, and agent.list_admissible is true: set it to "
            f"false, {fix}"
        )
    return None


def tune_format(checkpoint: Checkpoint, config: FormatTuningConfig, context: StageContext) -> FormatTuningResult:
    """Train on self-generated play: loss on commands and their end tokens, and on the form of predictions.

    Args:
        checkpoint: the start; its model is changed in place.
        config: settings, `updates` >= 1.
        context: agent, seed and reporter; its world names the game.

    Raises:
        StageError: no updates, an agent or a world that `objection` refuses, or an episode that is longer than the
            model's context.
        AgentError: a chat template that does not let a chat grow by appending.
    """
    if config.updates < 1:
        raise StageError("format_tuning.updates is 0: there is nothing to train, pass the model on as it is")
    reason = objection(context.agent, context.family.name)
    if reason is not None:
        raise StageError(reason)
    agent = Agent(checkpoint.tokenizer, context.agent, context.family)
    seed = derive_seed(context.seed, VERSION)
    played = play(config, seed)
    encoder = PlayEncoder(agent, 0.0, config.prediction_weight)
    questions, rows = _rows(played, encoder, config, seed)
    _check_lengths(rows, int(checkpoint.model.config.max_position_embeddings))
    curve = _train(checkpoint, rows, config, context, seed)
    tenth = max(1, len(curve) // 10)
    summary = {
        "updates": float(config.updates),
        "rows": float(len(rows)),
        "prediction_rows": float(questions),
        "tokens": float(sum(len(row.token_ids) for row in rows)),
        "play_success": float(np.mean([transcript.success for transcript in played])),
        "loss_first": float(np.mean([row["loss"] for row in curve[:tenth]])),
        "loss_last": float(np.mean([row["loss"] for row in curve[-tenth:]])),
        "seconds": sum(row["seconds"] for row in curve),
    }
    return FormatTuningResult(checkpoint.named(VERSION), curve, summary)


def play(config: FormatTuningConfig, seed: int) -> list[Transcript]:
    """The episodes that are trained on, each once.

    Args:
        config: settings.
        seed: of this stage.
    """
    own = config.play.model_copy(update={"seed": derive_seed(seed, "play", config.play.seed)})
    return list(play_episodes(own, 0, min(own.episodes, config.updates * config.batch)))


def _rows(
    played: Sequence[Transcript], encoder: PlayEncoder, config: FormatTuningConfig, seed: int
) -> tuple[int, list[Row]]:
    """All rows in the order of training, and how many of them end in a prediction."""
    questions, rows = 0, []
    for number in range(config.updates * config.batch):
        transcript = played[number % len(played)]
        rng = random.Random(derive_seed(seed, "row", number))
        if rng.random() < config.prediction_share:
            questions += 1
            rows.append(encoder.prediction(transcript, rng))
        else:
            rows.append(encoder.episode(transcript))
    return questions, rows


def _check_lengths(rows: Sequence[Row], limit: int) -> None:
    longest = max(len(row.token_ids) for row in rows)
    if longest > limit:
        raise StageError(
            f"format tuning: the longest played episode has {longest} tokens and the model holds {limit}: lower "
            "format_tuning.play.purposeful_turns and random_turns, or take smaller format_tuning.play.sizes"
        )


def _train(
    checkpoint: Checkpoint, rows: Sequence[Row], config: FormatTuningConfig, context: StageContext, seed: int
) -> Curve:
    from worldwise.training.learner import Learner

    learner = Learner(checkpoint.model, config.learner, config.updates, seed=derive_seed(seed, "adapter"))
    recorder = CurveRecorder(context.reporter)
    state = TrainingState(learner, recorder)
    resumed(state, context.saver)
    for update in range(state.loop.step, config.updates):
        batch = rows[update * config.batch : (update + 1) * config.batch]
        begun = time.perf_counter()
        sequences = [_sequence(row, f"{VERSION}/{update}/{place}") for place, row in enumerate(batch)]
        metrics = learner.supervised_update(sequences, weights=[row.weights for row in batch])
        shown = {name: metrics.pop(name) for name in ("loss", "token_accuracy", "entropy")}
        rest = {f"learner_{name}": value for name, value in metrics.items()}
        recorder.log({**shown, **rest, "seconds": time.perf_counter() - begun}, update)
        recorder.progress(update + 1, config.updates, f"loss {shown['loss']:.3f}")
        state.loop.step = update + 1
        if context.saver.due():
            context.saver.save(state.write)
    learner.finish()
    return recorder.rows


def _sequence(row: Row, name: str) -> TrainingSequence:
    """The row as the learner takes it; whatever has a loss counts as response."""
    nothing = np.zeros(len(row.token_ids), dtype=np.float32)
    roles = np.where(row.weights > 0, Role.RESPONSE, Role.CONTEXT).astype(np.int8)
    turns = np.full(len(row.token_ids), -1, dtype=np.int32)
    return TrainingSequence(name, name, row.token_ids, roles, turns, nothing, nothing)
