"""Collecting episodes with the model that will be trained (RWML, arXiv 2602.05842, first step)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from pydantic import Field

from worldwise.config import FrozenConfig
from worldwise.episodes.record import Episode
from worldwise.episodes.transitions import CleaningRules
from worldwise.rollouts.config import RolloutStats, plan_groups
from worldwise.stages.actor import Checkpoint, StageContext, make_actor
from worldwise.stages.playing import play_plans, sound
from worldwise.worlds.contract import Task

STAGE = "collect"

BLOCK_PER_SLOT = 8
"""Episodes are played in blocks of so many per slot. No episode of a block begins before those of the last one have
ended, so what a collection that goes on plays does not depend on where it was stopped."""


class CollectConfig(FrozenConfig):
    """How much is collected, and what is cleaned away before a world model learns from it.

    Attributes:
        tasks: training tasks to play (2,048 in the RWML paper).
        episodes_per_task: episodes of each (N, 3 in the paper).
        temperature: of the responses, > 0: greedy play would repeat itself.
        max_turns: turn limit of these episodes (30 in the paper); None = the world's own.
        cleaning: rules by which transitions leave.
    """

    tasks: int = Field(256, ge=1)
    episodes_per_task: int = Field(3, ge=1)
    temperature: float = Field(1.0, gt=0.0, le=10.0)
    max_turns: int | None = Field(30, ge=1)
    cleaning: CleaningRules = Field(default_factory=CleaningRules)


def block_size(context: StageContext) -> int:
    """Episodes in a block; the same whatever the number of workers."""
    return BLOCK_PER_SLOT * context.rollout.slots


def collect_episodes(
    checkpoint: Checkpoint,
    tasks: Sequence[Task],
    config: CollectConfig,
    context: StageContext,
    before: Iterable[Episode] = (),
) -> Iterator[Episode]:
    """Play every task `episodes_per_task` times; yields episodes in the order of the tasks, as they finish.

    Logs the rollout's own numbers (`RolloutStats.metrics`) and the share of solved episodes once at the end.

    Args:
        checkpoint: the weights that play.
        tasks: what to play; the first `config.tasks` of them are used.
        config, context: settings.
        before: the first episodes, whole blocks of them, where they were played earlier: they are not played again.

    Raises:
        StageError: too many episodes ended in failures of world or engine (`rollout.failures_max`).
    """
    plans = plan_groups(tasks[: config.tasks], config.episodes_per_task, STAGE, 0, context.seed, config.temperature)
    stats = RolloutStats()
    solved, done, failed = 0, 0, Counter[str]()
    for episode in before:
        solved, done = solved + episode.success, done + 1
        failed.update([] if episode.reward_valid else [episode.termination.value])
    size = block_size(context)
    with make_actor(checkpoint, context) as actor:
        blocks = (plans[start : start + size] for start in range(done, len(plans), size))
        episodes = (
            episode for block in blocks for episode in play_plans(actor, block, context, config.max_turns, stats=stats)
        )
        watched = sound(episodes, len(plans), STAGE, context.rollout.failures_max, failed)
        for number, episode in enumerate(watched, start=done + 1):
            solved += episode.success
            context.reporter.progress(number, len(plans), f"{solved} solved")
            yield episode
    context.reporter.log({**stats.metrics(), "success": solved / len(plans)}, 0)
