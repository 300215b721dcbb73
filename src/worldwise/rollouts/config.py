"""How episodes are played, which ones, and what is counted meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Annotated

from pydantic import Field

from worldwise.config import COSMETIC, FrozenConfig, derive_seed
from worldwise.worlds.contract import Task


class RolloutError(ValueError):
    """Episodes cannot be played as configured. The message names parameter, value and fix."""


class RolloutConfig(FrozenConfig):
    """How a model plays.

    Attributes:
        slots: episodes that live at once in each process that plays, at least 1 (at most the engine's capacity
            is used).
        max_tokens: most tokens in one response.
        max_turns: most turns in an episode; None = the world's own limit, which always holds as well.
        max_episode_tokens: most tokens that an episode may cost, contexts and responses together; None =
            only the engine's length holds.
        temperature: > 0 samples, 0 takes the most probable token.
        top_p: nucleus, (0, 1].
        min_p: drop tokens below this share of the most probable one, [0, 1).
        step_timeout_s: seconds a world may take for one answer; 0 = no limit, and no thread in between.
        episode_timeout_s: seconds an episode may take in all, looked at between turns; 0 = no limit.
        predictions: observations that the model predicts after each of its actions (World-In-Agent), 0 = none. They
            change nothing in play. Policy RL sets them where its modules want some.
        prediction_tokens: most tokens of such an answer.
        failures_max: share of the episodes of a collection or an evaluation that may end in a failure of world or
            engine (a time limit counts as one), [0, 1]; with more the stage stops and stores nothing. Policy RL drops
            the groups of such episodes and stops where none is left.
    """

    slots: int = Field(32, ge=1)
    max_tokens: int = Field(32, ge=1)
    max_turns: int | None = Field(None, ge=1)
    max_episode_tokens: int | None = Field(None, ge=16)
    temperature: float = Field(1.0, ge=0.0, le=10.0)
    top_p: float = Field(1.0, gt=0.0, le=1.0)
    min_p: float = Field(0.0, ge=0.0, lt=1.0)
    step_timeout_s: float = Field(300.0, ge=0.0)
    episode_timeout_s: float = Field(0.0, ge=0.0)
    predictions: int = Field(0, ge=0, le=100)
    prediction_tokens: int = Field(64, ge=1)
    failures_max: Annotated[float, COSMETIC] = Field(0.1, ge=0.0, le=1.0)


@dataclass(frozen=True, slots=True)
class EpisodePlan:
    """One episode to play.

    Attributes:
        task: what to play.
        group_id: the episodes of one task in one iteration share it.
        sample: index within the group.
        iteration: iteration of the stage that plays.
        seed: everything the model draws in this episode derives from it, turn by turn.
        world_seed: the world's own seed; one for a group, whose members so begin alike.
        temperature: instead of the configuration's; None = that one.
    """

    task: Task
    group_id: str
    sample: int
    iteration: int
    seed: int
    world_seed: int
    temperature: float | None = None

    @property
    def episode_id(self) -> str:
        """Unique within a stage: `<stage>/<iteration>/<task_id>/<sample>`."""
        return f"{self.group_id}/{self.sample}"


def plan_groups(
    tasks: Sequence[Task],
    group_size: int,
    stage: str,
    iteration: int,
    seed: int,
    temperature: float | None = None,
) -> list[EpisodePlan]:
    """A group of episodes for every task, group after group.

    A task that occurs several times gets a group each time; from the second on `#2`, `#3`, ... is put behind
    its id, so that group ids stay unique and the groups draw differently.

    Raises:
        RolloutError: group_size below 1.
    """
    if group_size < 1:
        raise RolloutError(f"group_size={group_size} must be at least 1")
    seen: dict[str, int] = {}
    plans: list[EpisodePlan] = []
    for task in tasks:
        count = seen[task.task_id] = seen.get(task.task_id, 0) + 1
        name = task.task_id if count == 1 else f"{task.task_id}#{count}"
        world_seed = derive_seed(seed, stage, iteration, name, "world")
        for sample in range(group_size):
            plan_seed = derive_seed(seed, stage, iteration, name, sample)
            group_id = f"{stage}/{iteration}/{name}"
            plans.append(EpisodePlan(task, group_id, sample, iteration, plan_seed, world_seed, temperature))
    return plans


@dataclass(slots=True)
class RolloutStats:
    """Counters of play. Give one object to several calls of `play` to add up over them.

    Attributes:
        episodes, turns: finished ones.
        invalid: responses without the demanded form.
        unfinished: responses cut at `max_tokens`.
        rejected: turns whose action the world did not understand.
        restarts: contexts built from scratch after an episode's first turn.
        failures: episodes that a broken world or engine, or a time limit, ended.
        context_tokens: tokens that the turns had to read: their contexts, and the last token of the response
            before, which was sampled but never read by the model.
        prefix_tokens: context tokens that the engine ran through the model.
        sampled_tokens: tokens in the responses.
        predictions: answers to the question what comes next.
        predicted_tokens: tokens in them.
        prediction_seconds: wall seconds inside the engine for them.
        engine_seconds: wall seconds inside the engine, but for predictions.
        world_seconds: wall seconds inside the worlds.
        other_seconds: wall seconds of the scheduler itself; the consumer's time between episodes not counted.

    Where several workers play, their seconds are added up, and rates per second are those of one worker.
    """

    episodes: int = 0
    turns: int = 0
    invalid: int = 0
    unfinished: int = 0
    rejected: int = 0
    restarts: int = 0
    failures: int = 0
    context_tokens: int = 0
    prefix_tokens: int = 0
    sampled_tokens: int = 0
    predictions: int = 0
    predicted_tokens: int = 0
    prediction_seconds: float = 0.0
    engine_seconds: float = 0.0
    world_seconds: float = 0.0
    other_seconds: float = 0.0

    def add(self, other: RolloutStats) -> None:
        """Add another object's counters."""
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))

    def metrics(self) -> dict[str, float]:
        """Rates for curves.

        `prefix_ratio` is 1 where every token that a turn had to read went through the model once; it may be less where
        episodes of a group share their first prompt. A context that is built from scratch has to be read from scratch,
        so `restart_share` belongs to it: 0 where episodes only grow.
        """
        turns, seconds = max(1, self.turns), self.engine_seconds + self.world_seconds + self.other_seconds
        return {
            "episodes": float(self.episodes),
            "turns_per_episode": self.turns / max(1, self.episodes),
            "tokens_per_response": self.sampled_tokens / turns,
            "invalid_share": self.invalid / turns,
            "unfinished_share": self.unfinished / turns,
            "rejected_share": self.rejected / turns,
            "restart_share": self.restarts / turns,
            "failure_share": self.failures / max(1, self.episodes),
            "prefix_ratio": self.prefix_tokens / max(1, self.context_tokens),
            "sampled_tokens_per_second": self.sampled_tokens / seconds if seconds > 0 else 0.0,
            "scheduler_microseconds_per_turn": 1e6 * self.other_seconds / turns,
        }
