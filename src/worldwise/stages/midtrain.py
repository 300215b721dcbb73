"""RWML: GRPO on predicted observations with a binarised embedding reward (arXiv 2602.05842)."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from worldwise.algorithms.advantages.groups import Normalize
from worldwise.algorithms.advantages.grpo import grpo
from worldwise.algorithms.rewards.embedding import MAX_DISTANCE, binary_reward
from worldwise.algorithms.rewards.text import exact
from worldwise.config import COSMETIC, FrozenConfig, derive_seed
from worldwise.episodes.transitions import Transition
from worldwise.generation.protocol import Sampling
from worldwise.rollouts.config import plan_groups
from worldwise.stages.actor import Actor, Checkpoint, StageContext, make_actor
from worldwise.stages.difficulty import most_mixed, tau_train_default
from worldwise.stages.encoder import Encoder, distances
from worldwise.stages.errors import StageError
from worldwise.stages.keeping import LoopState, WeightKeeper
from worldwise.stages.playing import curve_numbers, play_plans
from worldwise.stages.predicting import Sample, check_prompts, predict, prediction_row
from worldwise.stages.reporter import CurveRecorder
from worldwise.stages.saving import TrainingState, resumed
from worldwise.stages.supervised import Curve, epoch_batches, planned_updates
from worldwise.stages.watching import WatchConfig, prediction_watch
from worldwise.training.config import LearnerConfig
from worldwise.worlds.contract import Task

if TYPE_CHECKING:
    from worldwise.training.learner import Learner

VERSION = "rwml"
_GAP_ROWS = 64
_logger = logging.getLogger(__name__)


class RwmlConfig(FrozenConfig):
    """RWML mid-training.

    Attributes:
        epochs: passes over the transitions (2 in the paper).
        prompts: prompts per batch (32 in the paper).
        max_updates: most batches; None = only the epochs count.
        group_size: predictions per prompt (8 in the paper; 16 on tau2); 1 has nothing to compare.
        tau_d: distance below which a prediction is rewarded, in (0, 2]; `published` derives it from the
            data-stage threshold (plus 0.15, to a multiple of 0.2: 0.2 for ALFWorld); `mixed` takes the one
            under which most groups of a probe batch hold both rewarded and unrewarded predictions.
        temperature, max_tokens: how predictions are sampled.
        normalize: `std` or `none`, as in GRPO.
        learner: optimizer and loss; the KL term holds on to the starting weights (0.01, k3, by default).
        mixed_low, mixed_high: wanted share of mixed groups; a warning is given outside.
        probe_prompts: prompts of the probe batch of tau_d = `mixed`.
        guard_every: updates between two acting checks; 0 = no guard.
        guard_temperature: of the responses in a check.
        guard_margin: how far below the first check an acting success counts as collapsed, [0, 1].
        guard_patience: checks in a row that have to be below before training stops.
        sampler_gap: as in `PolicyConfig`, of the predictions of the first batch.
        watch: when else to warn; changes no result.
        max_minutes: stop before an update that would begin after so many minutes, the first one apart; None = no
            limit.
    """

    epochs: int = Field(2, ge=1)
    prompts: int = Field(32, ge=1)
    max_updates: int | None = Field(None, ge=1)
    group_size: int = Field(8)
    tau_d: Literal["published", "mixed"] | float = "published"
    temperature: float = Field(1.0, gt=0.0, le=10.0)
    max_tokens: int = Field(128, ge=8)
    normalize: Normalize = "std"
    learner: LearnerConfig = Field(
        default_factory=lambda: LearnerConfig(learning_rate=1e-4, kl_coefficient=0.01, kl_estimator="k3")
    )
    mixed_low: float = Field(0.3, ge=0.0, le=1.0)
    mixed_high: float = Field(0.7, ge=0.0, le=1.0)
    probe_prompts: int = Field(64, ge=1)
    guard_every: int = Field(50, ge=0)
    guard_temperature: float = Field(1.0, ge=0.0, le=10.0)
    guard_margin: float = Field(0.05, ge=0.0, le=1.0)
    guard_patience: int = Field(2, ge=1)
    sampler_gap: Annotated[float | None, COSMETIC] = Field(1e-5, gt=0.0)
    watch: Annotated[WatchConfig, COSMETIC] = Field(default_factory=WatchConfig)
    max_minutes: float | None = Field(None, gt=0.0)

    @model_validator(mode="after")
    def _ranges(self) -> Self:
        if self.group_size < 2:
            raise ValueError(
                f"group_size is {self.group_size}: GRPO compares the predictions of a prompt, "
                "so give at least 2 (8 in the paper)"
            )
        if isinstance(self.tau_d, float) and not 0.0 < self.tau_d <= MAX_DISTANCE:
            raise ValueError(f"tau_d is {self.tau_d}: give 'published', 'mixed' or a distance in (0, 2]")
        if self.learner.kl_in != "loss" or self.learner.critic is not None:
            raise ValueError(
                "learner.kl_in and learner.critic are for policy RL: RWML's reward is binary and needs no critic; set "
                "them to loss and null"
            )
        if self.mixed_low >= self.mixed_high:
            raise ValueError(f"mixed_low is {self.mixed_low} and mixed_high {self.mixed_high}: put the lower one first")
        return self


@dataclass(frozen=True, slots=True)
class RwmlResult:
    """What RWML made.

    Attributes:
        checkpoint: the trained weights.
        curve: one row per update.
        summary: numbers of the whole stage: `updates`, `tau_d`, `seconds`, `seconds_sample`,
            `seconds_update`, `mixed_groups` (mean over updates), `reward_first`, `reward_last` (means
            of the first and last tenth), `guard_first`, `guard_last`, `restored` (1 if weights were put back),
            `restored_step`, `stopped_early`, `sampler_gap`, `sampler_gap_largest` (nats per token).
    """

    checkpoint: Checkpoint
    curve: Curve
    summary: dict[str, float]


@dataclass(frozen=True, slots=True)
class Batch:
    """Predictions of one batch of prompts, scored.

    Attributes:
        transitions: the B prompts.
        samples: B x G predictions.
        distances: float64 [B, G], `inf` without prediction.
    """

    transitions: Sequence[Transition]
    samples: list[list[Sample]]
    distances: NDArray[np.float64]


def midtrain_world_model(
    checkpoint: Checkpoint,
    transitions: Sequence[Transition],
    tau_data: float,
    guard_tasks: Sequence[Task],
    config: RwmlConfig,
    context: StageContext,
    encoder: Encoder,
) -> RwmlResult:
    """Train a model to predict what follows its actions.

    Curve, per update: `reward` (share of rewarded predictions), `mixed_groups`, `exact`, `parsed`, `similarity`
    (mean cosine, 0 without prediction), `entropy` (nats per token), `prediction_tokens` (mean),
    `truncated_predictions` (share that did not end by itself), `seconds_sample`, `seconds_update`, the learner's
    metrics as `learner_*`; `warnings`, how many conditions of `prediction_watch` hold; at checks `guard_success`, the
    acting success after the update (before any in the row of update 0 as `guard_base`).

    Args:
        checkpoint: the start; its model is changed in place.
        transitions: what to learn from.
        tau_data: threshold of the data stage, for tau_d = `published`.
        guard_tasks: held-out training tasks for the acting checks.
        config, context: settings.
        encoder: measures distances.

    Raises:
        StageError: no transitions, or a guard without tasks.
    """
    if not transitions:
        raise StageError("rwml: there are no transitions to train on; collect more, or raise keep_probability")
    if config.guard_every and not guard_tasks:
        raise StageError(f"rwml: guard_every is {config.guard_every} and no guard tasks were given")
    recorder = CurveRecorder(context.reporter)
    loop = _Loop(checkpoint.named(VERSION), transitions, guard_tasks, config, context, encoder, recorder)
    with loop.actor:
        if not loop.goes_on:
            loop.progress.others["tau_d"] = loop.threshold(tau_data)
            if config.guard_every:
                recorder.log({"guard_base": loop.check()}, 0)
        while loop.state.step < loop.total and not loop.finished():
            update = loop.state.step
            row = loop.update()
            row |= prediction_watch(VERSION, config, loop.tau_d).look(recorder.rows, update, row)
            recorder.log(row, update)
            recorder.progress(
                update + 1, loop.total, f"reward {row['reward']:.2f}, mixed groups {row['mixed_groups']:.0%}"
            )
            if context.saver.due():
                context.saver.save(loop.progress.write)
    return RwmlResult(checkpoint.named(VERSION), recorder.rows, loop.finish(recorder.rows))


@dataclass(slots=True)
class _Loop:
    """The objects of a run; what changes from update to update is in `state`, the weights and the learner."""

    checkpoint: Checkpoint
    transitions: Sequence[Transition]
    guard_tasks: Sequence[Task]
    config: RwmlConfig
    context: StageContext
    encoder: Encoder
    recorder: CurveRecorder
    state: LoopState = field(default_factory=LoopState)
    total: int = field(init=False)
    actor: Actor = field(init=False)
    learner: Learner = field(init=False)
    keeper: WeightKeeper = field(init=False)
    progress: TrainingState = field(init=False)
    goes_on: bool = field(init=False)
    gap_checked: bool = False

    def __post_init__(self) -> None:
        from worldwise.training.learner import Learner

        config = self.config
        self.total = planned_updates(len(self.transitions), config.prompts, config.epochs, config.max_updates)
        # The learner comes first: an adapter that it brings is what the engine has to read.
        steps = self.total * config.learner.updates
        seed = derive_seed(self.context.seed, VERSION, "adapter")
        self.learner = Learner(self.checkpoint.model, config.learner, steps, seed=seed)
        self.keeper = WeightKeeper(self.checkpoint.model)
        self.progress = TrainingState(self.learner, self.recorder, self.state, self.keeper, memory=self.encoder.memory)
        self.goes_on = resumed(self.progress, self.context.saver)
        self.actor = make_actor(self.checkpoint, self.context, config.max_tokens)
        check_prompts(self.actor, self.transitions)

    @property
    def tau_d(self) -> float:
        """The threshold in force."""
        return self.progress.others["tau_d"]

    def threshold(self, tau_data: float) -> float:
        """The training threshold that the configuration asks for."""
        config = self.config
        if config.tau_d == "published":
            return tau_train_default(tau_data)
        if config.tau_d == "mixed":
            seed = derive_seed(self.context.seed, VERSION, "probe")
            order = epoch_batches(len(self.transitions), min(config.probe_prompts, len(self.transitions)), 0, seed)
            return most_mixed(self.sample([self.transitions[i] for i in order], seed).distances)
        return config.tau_d

    def sample(self, batch: Sequence[Transition], seed: int) -> Batch:
        """G scored predictions for every transition of a batch."""
        config = self.config
        sampling = Sampling(temperature=config.temperature, max_tokens=config.max_tokens)
        samples = predict(self.actor, batch, config.group_size, sampling, seed)
        targets = [transition.next_observation for transition in batch for _ in range(config.group_size)]
        found = distances(self.encoder, [sample.text for own in samples for sample in own], targets)
        return Batch(batch, samples, found.reshape(len(batch), config.group_size))

    def update(self) -> dict[str, float]:
        """One batch: sample, score, update. Returns its row of the curve."""
        config, context, state = self.config, self.context, self.state
        begun = time.perf_counter()
        seed = derive_seed(context.seed, VERSION)
        order = epoch_batches(len(self.transitions), config.prompts, state.step, seed)
        drawn = derive_seed(context.seed, VERSION, "sample", state.step)
        batch = self.sample([self.transitions[index] for index in order], drawn)
        rewards = binary_reward(batch.distances, self.tau_d)
        sampled = time.perf_counter()
        learned = self._learn(batch, rewards)
        updated = time.perf_counter()
        state.step += 1
        row = {
            **batch_numbers(batch, rewards),
            "seconds_sample": sampled - begun,
            "seconds_update": updated - sampled,
            **{f"learner_{name}": value for name, value in learned.items()},
        }
        if config.guard_every and state.step % config.guard_every == 0:
            row["guard_success"] = self.check()
        state.seconds += time.perf_counter() - begun
        return row

    def _learn(self, batch: Batch, rewards: NDArray[np.float64]) -> dict[str, float]:
        groups = np.repeat(np.arange(len(rewards)), rewards.shape[1])
        advantages = grpo(rewards.ravel(), groups, normalize=self.config.normalize).reshape(rewards.shape)
        rows = [
            prediction_row(transition, self.actor.agent, own, row, self.config.temperature)
            for transition, own, row in zip(batch.transitions, batch.samples, advantages, strict=True)
        ]
        if not self.gap_checked:
            # Once in every process: one that goes on has read its weights anew.
            limit = math.inf if self.config.sampler_gap is None else self.config.sampler_gap
            gap = self.learner.check_sampler_gap(rows[:_GAP_ROWS], limit)
            self.gap_checked = True
            if self.state.step == 0:
                self.progress.others |= {"sampler_gap": gap.mean, "sampler_gap_largest": gap.largest}
        learned = self.learner.update(rows)
        self.actor.refresh()
        return learned

    def check(self) -> float:
        """Acting success on the guard tasks; the same draws at every check, so that checks differ by weights alone."""
        context, state = self.context, self.state
        plans = plan_groups(self.guard_tasks, 1, f"{VERSION}_guard", 0, context.seed, self.config.guard_temperature)
        success = curve_numbers(list(play_plans(self.actor, plans, context)))["success"]
        state.checks.append((state.step, success))
        if state.better(success):
            self.keeper.keep()
        return success

    def finished(self) -> bool:
        """Whether to stop before the planned end: acting has collapsed, or the time is over."""
        config, state = self.config, self.state
        if config.guard_every and state.collapsed(config.guard_margin, config.guard_patience):
            state.stopped = "collapse"
            _logger.warning(
                "rwml: acting success fell from %.3f to %.3f in %d checks; training stops after update %d and "
                "the weights of update %d come back",
                state.checks[0][1],
                state.checks[-1][1],
                config.guard_patience,
                state.step,
                state.best_step,
            )
        elif config.max_minutes is not None and state.step and state.seconds >= 60 * config.max_minutes:
            state.stopped = "time"
        return bool(state.stopped)

    def finish(self, rows: Curve) -> dict[str, float]:
        """Put the best weights back after a collapse, end the learning, and sum up."""
        state = self.state
        restore = state.stopped == "collapse"
        if restore:
            self.keeper.restore()
        self.learner.finish()
        self.actor.refresh()
        rewards = [row["reward"] for row in rows]
        tenth = max(1, len(rewards) // 10)
        return {
            "updates": float(state.step),
            "tau_d": self.tau_d,
            "seconds": state.seconds,
            "seconds_sample": sum(row["seconds_sample"] for row in rows),
            "seconds_update": sum(row["seconds_update"] for row in rows),
            "mixed_groups": float(np.mean([row["mixed_groups"] for row in rows])),
            "reward_first": float(np.mean(rewards[:tenth])),
            "reward_last": float(np.mean(rewards[-tenth:])),
            **({"guard_first": state.checks[0][1], "guard_last": state.checks[-1][1]} if state.checks else {}),
            "restored": float(restore),
            "restored_step": float(state.best_step if restore else state.step),
            "stopped_early": float(bool(state.stopped)),
            **{name: self.progress.others[name] for name in ("sampler_gap", "sampler_gap_largest")},
        }


def batch_numbers(batch: Batch, rewards: NDArray[np.float64]) -> dict[str, float]:
    """What the curve shows of a batch; see `midtrain_world_model`."""
    samples = [sample for own in batch.samples for sample in own]
    targets = [item.next_observation for item, own in zip(batch.transitions, batch.samples, strict=True) for _ in own]
    entropies = np.concatenate([sample.completion.entropies for sample in samples])
    cosines = np.where(np.isfinite(batch.distances), 1.0 - batch.distances, 0.0)
    return {
        "reward": float(rewards.mean()),
        "mixed_groups": float((rewards.min(axis=1) != rewards.max(axis=1)).mean()),
        "exact": float(np.mean([exact(one.text, target) for one, target in zip(samples, targets, strict=True)])),
        "parsed": float(np.mean([sample.text is not None for sample in samples])),
        "similarity": float(cosines.mean()),
        "entropy": float(entropies.mean()),
        "prediction_tokens": float(np.mean([len(sample.completion.token_ids) for sample in samples])),
        "truncated_predictions": float(np.mean([sample.completion.finish != "stop" for sample in samples])),
    }
