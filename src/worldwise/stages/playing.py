"""Playing a list of plans with an actor, and the numbers every stage shows of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from worldwise.episodes.record import Episode
from worldwise.rollouts.config import EpisodePlan, RolloutConfig, RolloutStats
from worldwise.rollouts.scheduler import play
from worldwise.stages.actor import Actor, StageContext

SHARED_FROM = 16
"""Episodes from which worker processes play: fewer are over before the processes are up."""


def play_plans(
    actor: Actor,
    plans: Sequence[EpisodePlan],
    context: StageContext,
    max_turns: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    stats: RolloutStats | None = None,
) -> Iterator[Episode]:
    """Episodes of the plans in their order.

    Args:
        actor: who plays.
        plans: what is played.
        context: world and settings of play.
        max_turns: turn limit instead of `context.rollout.max_turns`; None = that one.
        progress: told (finished, planned).
        stats: counters to add to.
    """
    rollout = limited(context.rollout, max_turns)
    if actor.pool is not None and len(plans) >= SHARED_FROM:
        return actor.pool.play(plans, rollout, actor.checkpoint.version, progress, stats)
    return play(
        context.family,
        actor.engine,
        actor.agent,
        plans,
        rollout,
        actor.checkpoint.version,
        progress,
        stats,
    )


def limited(rollout: RolloutConfig, max_turns: int | None) -> RolloutConfig:
    """The same settings with another turn limit; None changes nothing."""
    return rollout if max_turns is None else rollout.model_copy(update={"max_turns": max_turns})


def curve_numbers(episodes: Sequence[Episode]) -> dict[str, float]:
    """What learning curves show of a batch of episodes; only those with a valid reward count.

    `success`, `reward`, `progress`: means over episodes; `turns`: mean number; `invalid_rate`,
    `nothing_rate`: shares of turns; `entropy`: mean over sampled tokens, nats; `sampled_tokens`: sum;
    `failed_episodes`: infrastructure failures.
    """
    valid = [episode for episode in episodes if episode.reward_valid]
    turns = [turn for episode in valid for turn in episode.turns]
    entropies = np.concatenate([turn.entropies for turn in turns]) if turns else np.zeros(0)
    return {
        "success": _mean([episode.success for episode in valid]),
        "reward": _mean([episode.total_reward for episode in valid]),
        "progress": _mean([episode.progress for episode in valid]),
        "turns": _mean([len(episode.turns) for episode in valid]),
        "invalid_rate": _mean([not turn.format_valid for turn in turns]),
        "nothing_rate": _mean([not turn.accepted for turn in turns]),
        "entropy": float(entropies.mean()) if len(entropies) else 0.0,
        "sampled_tokens": float(sum(episode.sampled_tokens for episode in valid)),
        "failed_episodes": float(len(episodes) - len(valid)),
    }


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(np.asarray(values, dtype=np.float64))) if values else 0.0
