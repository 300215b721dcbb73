"""Supervised training on true next observations: the auxiliary model of subsampling, and RWML's control."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

import numpy as np
from pydantic import Field

from worldwise.agents.agent import Agent
from worldwise.config import FrozenConfig, derive_seed
from worldwise.episodes.transitions import Transition
from worldwise.stages.actor import Checkpoint, StageContext
from worldwise.stages.errors import StageError
from worldwise.stages.predicting import target_row
from worldwise.stages.reporter import CurveRecorder
from worldwise.stages.saving import TrainingState, resumed
from worldwise.training.config import LearnerConfig

Curve = list[dict[str, float]]


class SupervisedConfig(FrozenConfig):
    """Supervised training on transitions.

    Attributes:
        epochs: passes over the transitions (2 in the paper).
        batch: transitions per optimizer step (32 in the paper).
        max_updates: stop after this many optimizer steps; None = only the epochs count.
        learner: optimizer settings (learning rate 2e-6 in the paper, for 7B).
    """

    epochs: int = Field(2, ge=1)
    batch: int = Field(32, ge=1)
    max_updates: int | None = Field(None, ge=1)
    learner: LearnerConfig = Field(default_factory=lambda: LearnerConfig(learning_rate=2e-4))

    def planned_updates(self, transitions: int) -> int:
        """Optimizer steps over that many transitions."""
        return planned_updates(transitions, self.batch, self.epochs, self.max_updates)


def planned_updates(items: int, batch: int, epochs: int, limit: int | None) -> int:
    """Batches in `epochs` passes over `items`, the last batch of a pass possibly smaller, at most `limit`."""
    updates = math.ceil(items / batch) * epochs
    return updates if limit is None else min(updates, limit)


def epoch_batches(count: int, batch: int, update: int, seed: int) -> list[int]:
    """Indices of the batch of one update: passes over 0..count-1, each in its own seeded order.

    Depends on its arguments alone, so a run can go on at any update without the ones before.
    """
    per_epoch = math.ceil(count / batch)
    epoch, place = divmod(update, per_epoch)
    order = np.random.default_rng(derive_seed(seed, "epoch", epoch)).permutation(count)
    return [int(index) for index in order[place * batch : (place + 1) * batch]]


def train_supervised(
    checkpoint: Checkpoint,
    transitions: Sequence[Transition],
    config: SupervisedConfig,
    context: StageContext,
    version: str,
) -> tuple[Checkpoint, Curve]:
    """Train on true next observations in their tags (empty thought first where the agent thinks).

    Args:
        checkpoint: the start; its model is changed in place.
        transitions: what to learn from.
        config: settings.
        context: agent, seed and reporter.
        version: name of the result, and of this training's random stream.

    Returns:
        The trained checkpoint and its curve: `loss`, `token_accuracy`, `entropy`, `learner_*`, `seconds`.

    Raises:
        StageError: no transitions.
    """
    if not transitions:
        raise StageError(f"{version}: there are no transitions to train on; collect more episodes")
    from worldwise.training.learner import Learner

    agent = Agent(checkpoint.tokenizer, context.agent, context.family)
    total = config.planned_updates(len(transitions))
    seed = derive_seed(context.seed, version)
    learner = Learner(checkpoint.model, config.learner, total, seed=derive_seed(seed, "adapter"))
    recorder = CurveRecorder(context.reporter)
    state = TrainingState(learner, recorder)
    resumed(state, context.saver)
    for update in range(state.loop.step, total):
        begun = time.perf_counter()
        batch = epoch_batches(len(transitions), config.batch, update, seed)
        metrics = learner.supervised_update([target_row(transitions[index], agent) for index in batch])
        shown = {name: metrics.pop(name) for name in ("loss", "token_accuracy", "entropy")}
        rest = {f"learner_{name}": value for name, value in metrics.items()}
        recorder.log({**shown, **rest, "seconds": time.perf_counter() - begun}, update)
        recorder.progress(update + 1, total, f"loss {shown['loss']:.3f}")
        state.loop.step = update + 1
        if context.saver.due():
            context.saver.save(state.write)
    learner.finish()
    return checkpoint.named(version), recorder.rows
