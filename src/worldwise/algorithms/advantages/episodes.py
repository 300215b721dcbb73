"""From episodes to one advantage per turn, by a named estimator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from worldwise.algorithms.advantages.gigpo import Statistics, episode_term, gigpo
from worldwise.algorithms.advantages.groups import Float, Normalize, codes, group_statistics
from worldwise.algorithms.advantages.returns import total_returns
from worldwise.config import FrozenConfig
from worldwise.episodes.record import Episode


class AdvantageConfig(FrozenConfig):
    """How episodes are credited.

    Attributes:
        estimator: `grpo` (with `normalize="none"`: Dr.GRPO), `rloo` or `gigpo`.
        normalize: `std` divides by the group's standard deviation, `none` does not (ignored by `rloo`).
        statistics: `trajectory` counts every episode of a group once, as the papers say; `row` counts it
            once per turn, as the public GiGPO release does.
        discount: gamma of GiGPO's step returns (0.95 in its runs).
        step_weight: omega, weight of GiGPO's step term.
        invalid_penalty: subtracted from the row of a turn whose response was badly formed, in the units of
            the world's rewards times `reward_scale`; it stays with that turn.
        reward_scale: factor on the world's rewards (the papers' runs pay 10 for success beside a penalty of
            0.1).
    """

    estimator: Literal["grpo", "rloo", "gigpo"] = "grpo"
    normalize: Normalize = "std"
    statistics: Statistics = "trajectory"
    discount: float = Field(0.95, ge=0.0, le=1.0)
    step_weight: float = Field(1.0, ge=0.0)
    invalid_penalty: float = Field(0.0, ge=0.0)
    reward_scale: float = Field(1.0, gt=0.0)


@dataclass(frozen=True, slots=True)
class Credit:
    """What an estimator made of a batch of episodes.

    Attributes:
        turns: one float64 array [turns of the episode] per episode, in the order given. Episodes without
            a valid reward get zeros and do not enter any statistics: leave them out of training.
        metrics: `mixed_groups` (share of groups whose episodes differ in return), `return_mean`,
            `zero_advantage_turns` (share), `invalid_turns` (share); GiGPO adds `state_group_size` (mean over
            turns of the number of turns taken in the same state) and `lone_states` (share of turns whose
            state occurs once).
    """

    turns: list[Float]
    metrics: dict[str, float]


def credit_episodes(episodes: Sequence[Episode], config: AdvantageConfig) -> Credit:
    """One advantage per turn.

    Groups are `Episode.group_id`, states the raw observations before the turns, invalid turns those with
    `format_valid` False.
    """
    counted = [i for i, episode in enumerate(episodes) if episode.reward_valid and episode.turns]
    lengths = [len(episodes[i].turns) for i in counted]
    turns = [turn for i in counted for turn in episodes[i].turns]
    trajectories = np.repeat(np.arange(len(counted)), lengths)
    groups = np.repeat(codes([episodes[i].group_id for i in counted]), lengths)
    rewards = np.array([turn.reward for turn in turns], dtype=np.float64) * config.reward_scale
    invalid = np.array([not turn.format_valid for turn in turns], dtype=np.float64)
    penalties = config.invalid_penalty * invalid
    totals = total_returns(rewards, trajectories)
    normalize = "leave_one_out" if config.estimator == "rloo" else config.normalize
    metrics: dict[str, float] = {}
    if config.estimator == "gigpo":
        result = gigpo(
            rewards,
            groups,
            trajectories,
            [turn.observation for turn in turns],
            discount=config.discount,
            step_weight=config.step_weight,
            normalize=normalize,
            statistics=config.statistics,
            penalties=penalties,
        )
        flat = result.total
        sizes = np.bincount(result.state_groups)[result.state_groups]
        metrics["state_group_size"] = _mean(sizes)
        metrics["lone_states"] = _mean(sizes == 1)
    else:
        flat = episode_term(
            totals, groups, trajectories, normalize=normalize, statistics=config.statistics, penalties=penalties
        )
    first = np.cumsum([0, *lengths[:-1]]) if lengths else np.zeros(0, dtype=np.int64)
    metrics["return_mean"] = _mean(totals[first])
    metrics["mixed_groups"] = _mean(~group_statistics(totals[first], groups[first]).constant)
    metrics["zero_advantage_turns"] = _mean(flat == 0.0)
    metrics["invalid_turns"] = _mean(invalid)
    pieces = dict(zip(counted, np.split(flat, np.cumsum(lengths)[:-1]), strict=True)) if counted else {}
    return Credit([pieces.get(i, np.zeros(len(e.turns))) for i, e in enumerate(episodes)], metrics)


def _mean(values: NDArray[Any]) -> float:
    return float(values.mean()) if len(values) else 0.0
