"""Playing a list of plans with an actor, and the numbers every stage shows of it."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from worldwise.episodes.record import Episode
from worldwise.rollouts.config import EpisodePlan, RolloutConfig, RolloutStats
from worldwise.rollouts.scheduler import play
from worldwise.stages.actor import Actor, StageContext
from worldwise.stages.errors import StageError

logger = logging.getLogger(__name__)

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


def sound(
    episodes: Iterator[Episode],
    planned: int,
    stage: str,
    failures_max: float,
    before: Mapping[str, int] | None = None,
) -> Iterator[Episode]:
    """The episodes, as long as few enough of them end in failures of world or engine.

    An episode that failed says nothing about the policy. Where many did, what is left is no fair sample
    (long episodes fail more often), so nothing of it should be stored or reported.

    Args:
        episodes: as they finish.
        planned: how many there will be.
        stage: for the message.
        failures_max: share of `planned` that may fail, [0, 1].
        before: how the failed ones of the same plan ended that were played earlier, and how many did.

    Raises:
        StageError: more failed; at the first one too many.
    """
    failed = Counter(before or {})
    for episode in episodes:
        if not episode.reward_valid:
            failed[episode.termination.value] += 1
            if failed.total() > failures_max * planned:
                raise StageError(
                    f"{stage}: {_told(failed, planned)}, more than rollout.failures_max={failures_max:g} "
                    "allows: see the first failure above and mend the world or the engine; for a slow world raise "
                    "rollout.step_timeout_s or rollout.episode_timeout_s"
                )
        yield episode
    if failed:
        logger.warning("%s: %s; these episodes count nowhere", stage, _told(failed, planned))


def _told(failed: Counter[str], planned: int) -> str:
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(failed.items()))
    return f"{failed.total()} of {planned} episodes ended in failures of world or engine ({kinds})"


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
