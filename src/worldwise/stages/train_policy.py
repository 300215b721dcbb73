"""Policy RL: play groups, compare within groups, update, again with GRPO or GiGPO (arXiv 2505.10978)."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Self

import numpy as np
from pydantic import Field, model_validator

from worldwise.config import COSMETIC, derive_seed
from worldwise.episodes.record import Episode
from worldwise.rollouts.config import RolloutStats, plan_groups
from worldwise.stages.actor import Actor, Checkpoint, StageContext, make_actor
from worldwise.stages.errors import StageError
from worldwise.stages.estimators import PPO, EstimatorConfig
from worldwise.stages.keeping import LoopState, WeightKeeper
from worldwise.stages.modules import ModulesConfig
from worldwise.stages.playing import curve_numbers, play_plans
from worldwise.stages.policy_modules import PolicyModules
from worldwise.stages.policy_rows import (
    chosen_groups,
    group_numbers,
    state_numbers,
    telling_groups,
    truncation_numbers,
    whole_groups,
)
from worldwise.stages.reporter import CurveRecorder
from worldwise.stages.saving import TrainingState, resumed
from worldwise.stages.watching import WatchConfig, policy_watch
from worldwise.training.config import LearnerConfig
from worldwise.worlds.contract import Task

_logger = logging.getLogger(__name__)
_GAP_SEQUENCES = 64
"""Sequences on which sampler and learner are compared: enough to see a fault, few enough to cost nothing."""

ALONE = (PPO, "reinforce_pp")
"""Estimators that do not compare the episodes of a group."""

Curve = list[dict[str, float]]
StoreEpisodes = Callable[[int, Sequence[Episode]], None]
"""Called with (iteration, its episodes) for the iterations whose episodes are to be kept."""


class PolicyConfig(EstimatorConfig):
    """Policy RL. How returns become advantages is inherited, see `EstimatorConfig`.

    Attributes:
        iterations: rounds of play and update (150 in the papers).
        tasks_per_iteration: task groups an iteration (16 in the papers).
        group_size: episodes of a task (8 in the papers); a group of 1 has nothing to compare (`reinforce_pp` and `ppo`
            do not compare within groups).
        sampling_rounds: DAPO's dynamic sampling (arXiv:2503.14476, section 3.2): groups whose returns are all equal are
            put aside and further tasks played, until `tasks_per_iteration` groups have something to compare or so many
            rounds are over, the first included; then those put aside fill the rest. 1 = none (10 in the papers' runs).
        temperature: of the responses, > 0.
        max_turns: turn limit in training; None = the world's own (RWML trains with 15, evaluates with 30).
        learner: optimizer and loss.
        keep_best: return the weights with the best running success instead of the last ones.
        keep_window: iterations of the running success.
        probe_every: play the probe tasks after every so many iterations; 0 = never.
        probe_temperature: of the probe's responses.
        store_every: keep the episodes of every so many iterations beside those of the last; 0 = the last alone.
        sampler_gap: largest mean difference of log-probabilities between sampler and learner, nats per token (of
            a token less probable than 1/e, relative to its log-probability), looked at before the first update (a
            single token may differ by 10 times as much); None only measures it (bfloat16 samplers). Rounding in
            float32 alone makes about 1e-7, and 1e-5 in a single token; a wrong mask, position or temperature makes
            1e-2 and more.
        modules: what is added to the plain estimator, see `ModulesConfig`.
        watch: when to warn; changes no result.
        max_minutes: stop before an iteration that would begin after so many minutes; None = no limit.
    """

    iterations: int = Field(40, ge=1)
    tasks_per_iteration: int = Field(16, ge=1)
    group_size: int = Field(8)
    sampling_rounds: int = Field(1, ge=1, le=100)
    temperature: float = Field(1.0, gt=0.0, le=10.0)
    max_turns: int | None = Field(None, ge=1)
    learner: LearnerConfig = Field(
        default_factory=lambda: LearnerConfig(learning_rate=2e-4, betas=(0.9, 0.95), clip_high=0.28, updates=2)
    )
    keep_best: bool = False
    keep_window: int = Field(5, ge=1)
    probe_every: int = Field(0, ge=0)
    probe_temperature: float = Field(1.0, ge=0.0, le=10.0)
    store_every: int = Field(0, ge=0)
    modules: ModulesConfig = Field(default_factory=ModulesConfig)
    sampler_gap: Annotated[float | None, COSMETIC] = Field(1e-5, gt=0.0)
    watch: Annotated[WatchConfig, COSMETIC] = Field(default_factory=WatchConfig)
    max_minutes: float | None = Field(None, gt=0.0)

    @model_validator(mode="after")
    def _groups(self) -> Self:
        if self.group_size < 1 or (self.group_size < 2 and self.algorithm not in ALONE):
            raise ValueError(
                f"group_size is {self.group_size}: {self.algorithm} compares the episodes of a group, "
                "so give at least 2 (8 in the papers)"
            )
        if self.sampling_rounds > 1 and self.algorithm in ALONE:
            raise ValueError(
                f"sampling_rounds is {self.sampling_rounds} and algorithm is {self.algorithm}, which does not compare "
                "within groups, so that a group without a difference is as good as any: set sampling_rounds to 1"
            )
        if self.algorithm == "dr_grpo" and self.learner.aggregation != "constant":
            raise ValueError(
                f"algorithm is dr_grpo and learner.aggregation is {self.learner.aggregation}: Dr.GRPO divides by a "
                "constant; set learner.aggregation to constant and learner.aggregation_length to the most response "
                "tokens of an episode"
            )
        if self.algorithm == PPO and self.learner.critic is None:
            raise ValueError(
                "learner.critic is null and algorithm is ppo, which needs one: give learner.critic.trunk=own (a copy "
                "of the model's body) or shared"
            )
        foresees = self.modules.world_in_agent
        if foresees is not None and foresees.variant == "step" and self.algorithm != "gigpo":
            raise ValueError(
                f"modules.world_in_agent.variant is step and algorithm is {self.algorithm}, which has no step returns: "
                "set the variant to auto or reward, or algorithm to gigpo"
            )
        if self.algorithm != PPO and self.learner.critic is not None:
            raise ValueError(
                f"learner.critic is given and algorithm is {self.algorithm}, which has no use for it: set "
                "learner.critic to null, or algorithm to ppo"
            )
        return self


@dataclass(frozen=True, slots=True)
class PolicyResult:
    """What policy RL made.

    Attributes:
        checkpoint: the trained weights.
        curve: one row per iteration.
        summary: numbers of the whole run: `iterations`, `episodes`, `seconds`, `seconds_rollout`,
            `seconds_update`, `seconds_rest`, `sampler_gap` and `sampler_gap_largest` (nats per token),
            `best_running_success`, `best_step`, `restored_best` (1 if the best weights were put back),
            `stopped_early`.
        notes: what modules remember: `agent_in_world` its failures and weights.
    """

    checkpoint: Checkpoint
    curve: Curve
    summary: dict[str, float]
    notes: dict[str, Any] = field(default_factory=dict)


def train_policy(
    checkpoint: Checkpoint,
    tasks: Sequence[Task],
    probe_tasks: Sequence[Task],
    config: PolicyConfig,
    context: StageContext,
    version: str,
    store: StoreEpisodes | None = None,
) -> PolicyResult:
    """Train the policy.

    Curve, per iteration: see `playing.curve_numbers`, `policy_rows.group_numbers`, `truncation_numbers` and, for
    GiGPO, `state_numbers`; `running_success`; `dropped_episodes`, those of groups that a failure of world or engine
    broke; `prefix_ratio`; `seconds_rollout`, `seconds_update`, `seconds_rest`; the learner's metrics as `learner_*`;
    of modules `foresight.foresight_numbers`, the numbers of `AgentInWorld`, those of `paw.Marked` and, before the
    update, `held_out_*` (see `Learner.observation_numbers`); `warnings`, how many conditions of `policy_watch` hold;
    `probe_success` where the probe was played (row of the iteration after which it was).

    Args:
        checkpoint: the start; its model is changed in place. A KL term refers to these weights.
        tasks: training tasks; every iteration takes fresh ones in a seeded order, all of them before any again.
        probe_tasks: held-out training tasks for `probe_every`.
        config, context: settings.
        version: name of the result and of this run's random streams.
        store: gets the episodes to keep.

    Raises:
        StageError: fewer tasks than an iteration takes, or no probe tasks though a probe is wanted.
        LearnerError: sampler and learner disagree.
    """
    _check(tasks, probe_tasks, config, version)
    recorder = CurveRecorder(context.reporter)
    loop = _Loop(checkpoint.named(version), tasks, probe_tasks, config, context, version, recorder)
    with loop.actor:
        while loop.state.step < config.iterations and not loop.out_of_time():
            iteration = loop.state.step
            episodes, row = loop.iterate()
            row |= loop.watch.look(recorder.rows, iteration, row)
            recorder.log(row, iteration)
            recorder.progress(
                iteration + 1, config.iterations, f"success {row['running_success']:.1%}, reward {row['reward']:.2f}"
            )
            last = iteration + 1 == config.iterations or loop.out_of_time()
            if store is not None and (last or (config.store_every and iteration % config.store_every == 0)):
                store(iteration, episodes)
            if context.saver.due():
                context.saver.save(loop.progress.write)
    return PolicyResult(checkpoint.named(version), recorder.rows, loop.finish(recorder.rows), loop.modules.notes())


def iteration_tasks(tasks: Sequence[Task], count: int, iteration: int, seed: int) -> list[Task]:
    """The tasks of one iteration: passes over all tasks, each pass in its own seeded order.

    Depends on its arguments alone, so a run can go on at any iteration without the ones before.
    """
    chosen: list[Task] = []
    for position in range(iteration * count, (iteration + 1) * count):
        epoch, place = divmod(position, len(tasks))
        order = np.random.default_rng(derive_seed(seed, "task_order", epoch)).permutation(len(tasks))
        chosen.append(tasks[int(order[place])])
    return chosen


def round_tasks(tasks: Sequence[Task], count: int, iteration: int, played: Sequence[Task], seed: int) -> list[Task]:
    """The tasks of a round of sampling: those of the iteration, then others in an order of the iteration's own.

    Args:
        tasks: all training tasks.
        count: of a round.
        iteration: number of it.
        played: tasks of the rounds before; none of them comes again.
        seed: of the run.
    """
    if not played:
        return iteration_tasks(tasks, count, iteration, seed)
    order = np.random.default_rng(derive_seed(seed, "further_tasks", iteration)).permutation(len(tasks))
    return [tasks[int(place)] for place in order if tasks[int(place)] not in played][:count]


class _Loop:
    """The objects of a run; what changes from iteration to iteration is in `state`, the weights and the learner."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        tasks: Sequence[Task],
        probe_tasks: Sequence[Task],
        config: PolicyConfig,
        context: StageContext,
        version: str,
        recorder: CurveRecorder,
    ) -> None:
        from worldwise.training.learner import Learner

        self.config, self.context, self.version = config, context, version
        self.tasks, self.probe_tasks = tasks, probe_tasks
        # The learner comes first: an adapter that it brings is what the engine has to read.
        steps = config.iterations * config.learner.updates
        seed = derive_seed(context.seed, version, "adapter")
        self.learner = Learner(checkpoint.model, config.learner, steps, seed=seed, world_model=config.modules.paw)
        self.keeper = WeightKeeper(checkpoint.model)
        self.gap_checked = False
        self.state = LoopState()
        self.progress = TrainingState(self.learner, recorder, self.state, self.keeper)
        self.progress.others = {"sampler_gap": 0.0, "sampler_gap_largest": 0.0}
        resumed(self.progress, context.saver)
        self.modules = PolicyModules(config.modules, config, context, version, self.progress.others)
        limit = min(config.max_turns or context.family.max_turns, context.family.max_turns)
        self.playing = self.modules.playing(limit)
        foresees = config.modules.world_in_agent
        self.actor: Actor = make_actor(checkpoint, context, 0 if foresees is None else foresees.max_tokens)
        compares = config.algorithm not in ALONE
        self.modules.prepare(self.actor.agent, tasks, probe_tasks, self.progress.notes)
        self.watch = policy_watch(version, config, context.rollout, context.family.max_turns, compares)

    def iterate(self) -> tuple[list[Episode], dict[str, float]]:
        """One iteration: play, advantages, update. Returns its episodes and its row of the curve."""
        config, context, state = self.config, self.context, self.state
        begun = time.perf_counter()
        stats = RolloutStats()
        wanted = self.modules.chosen(config.tasks_per_iteration, state.step)
        first, choice = wanted if wanted is not None else (None, {})
        rounds = self._rounds(stats, first)
        episodes, judged = self.modules.judged([episode for own in rounds for episode in own], state.step)
        usable = self._usable(episodes)
        trained = usable if len(rounds) == 1 else chosen_groups(usable, config.tasks_per_iteration)
        played = time.perf_counter()
        row = {**curve_numbers(episodes), **group_numbers(episodes), **truncation_numbers(episodes)}
        row |= {**state_numbers(episodes, config, context.family.canonical_state), **judged, **choice}
        # Judged before the update: this is the success of the weights that played.
        row["running_success"] = state.running(row["success"], config.keep_window)
        whole = len(state.recent) == config.keep_window
        if whole and state.better(row["running_success"]) and config.keep_best:
            self.keeper.keep()
        learned = self._update(trained)
        row |= {"episodes": float(len(episodes)), "sampling_rounds": float(len(rounds))}
        row["dropped_episodes"] = float(len(episodes) - len(usable))
        updated = time.perf_counter()
        row |= learned
        row |= {name: stats.metrics()[name] for name in ("prefix_ratio", "restart_share")}
        row |= self.modules.looked_back(episodes, self.actor, state.step)
        self.progress.notes = self.modules.notes()
        state.step += 1
        if config.probe_every and state.step % config.probe_every == 0:
            row["probe_success"] = self._probe()
        seconds = time.perf_counter() - begun
        row |= {
            "seconds_rollout": played - begun,
            "seconds_update": updated - played,
            "seconds_rest": seconds - (updated - begun),
        }
        state.seconds += seconds
        return episodes, row

    def _rounds(self, stats: RolloutStats, first: list[Task] | None) -> list[list[Episode]]:
        """The episodes of the iteration, round by round.

        Args:
            stats: counters to add to.
            first: tasks of the first round; None = the next ones of the pass over all tasks.
        """
        config, context, state = self.config, self.context, self.state
        rounds: list[list[Episode]] = []
        chosen: list[Task] = []
        while True:
            tasks = round_tasks(self.tasks, config.tasks_per_iteration, state.step, chosen, context.seed)
            if first is not None and not rounds:
                tasks = first
            if not tasks:
                return rounds
            chosen += tasks
            plans = plan_groups(tasks, config.group_size, self.version, state.step, context.seed, config.temperature)
            rounds.append(list(play_plans(self.actor, plans, self.playing, config.max_turns, stats=stats)))
            played = self._usable([episode for own in rounds for episode in own])
            enough = len(telling_groups(played)) >= config.tasks_per_iteration
            if enough or len(rounds) == config.sampling_rounds:
                return rounds

    def _usable(self, episodes: Sequence[Episode]) -> list[Episode]:
        """What can be trained on: whole groups where they are compared, single valid episodes otherwise."""
        if self.config.algorithm in ALONE:
            return [episode for episode in episodes if episode.reward_valid]
        return whole_groups(episodes)

    def out_of_time(self) -> bool:
        """Whether the next iteration would begin behind `max_minutes`."""
        limit = self.config.max_minutes
        if limit is None or self.state.seconds < 60 * limit:
            return False
        self.state.stopped = f"max_minutes = {limit:g} were over"
        return True

    def finish(self, rows: Curve) -> dict[str, float]:
        """Put the best weights back if wanted, end the learning, and sum up."""
        state = self.state
        restore = self.config.keep_best and state.best >= 0.0
        if restore:
            self.keeper.restore()
        self.learner.finish()
        self.actor.refresh()
        parts = {name: sum(row[name] for row in rows) for name in ("seconds_rollout", "seconds_update", "seconds_rest")}
        return {
            "iterations": float(state.step),
            "episodes": sum(row["episodes"] for row in rows),
            "seconds": state.seconds,
            **parts,
            "sampler_gap": self.progress.others["sampler_gap"],
            "sampler_gap_largest": self.progress.others["sampler_gap_largest"],
            "best_running_success": max((row["running_success"] for row in rows), default=0.0),
            "best_step": float(state.best_step),
            "restored_best": float(restore),
            "stopped_early": float(bool(state.stopped)),
        }

    def _update(self, episodes: Sequence[Episode]) -> dict[str, float]:
        config = self.config
        sequences = self.modules.rows(episodes, self.learner, self.actor.agent)
        if not sequences:
            raise StageError(
                f"{self.version}, iteration {self.state.step}: nothing to train on is left: failures of world or "
                "engine ended episodes of every group; see the warnings above, mend the world or the engine; for a "
                "slow world raise rollout.step_timeout_s or rollout.episode_timeout_s"
            )
        if not self.gap_checked:
            # Once in every process: one that goes on has read its weights anew.
            rollout = self.context.rollout
            whole = rollout.top_p == 1.0 and rollout.min_p == 0.0
            limit = math.inf if config.sampler_gap is None or not whole else config.sampler_gap
            gap = self.learner.check_sampler_gap(sequences[:_GAP_SEQUENCES], limit)
            self.gap_checked = True
            if self.state.step == 0:
                self.progress.others |= {"sampler_gap": gap.mean, "sampler_gap_largest": gap.largest}
        sequences, numbers = self.modules.marked(sequences, episodes, self.learner, self.state.step)
        learned = {f"learner_{name}": value for name, value in self.learner.update(sequences).items()}
        self.actor.refresh()
        return {**learned, **numbers}

    def _probe(self) -> float:
        """Success on the probe tasks; the same draws at every probe, so that probes differ by the weights alone."""
        plans = plan_groups(
            self.probe_tasks, 1, f"{self.version}_probe", 0, self.context.seed, self.config.probe_temperature
        )
        return curve_numbers(list(play_plans(self.actor, plans, self.context)))["success"]


def _check(tasks: Sequence[Task], probe_tasks: Sequence[Task], config: PolicyConfig, version: str) -> None:
    if len(tasks) < config.tasks_per_iteration:
        raise StageError(
            f"{version}: tasks_per_iteration is {config.tasks_per_iteration} and there are {len(tasks)} training "
            "tasks: prepare more tasks or lower tasks_per_iteration"
        )
    if config.probe_every and not probe_tasks:
        raise StageError(f"{version}: probe_every is {config.probe_every} and no probe tasks were given")
