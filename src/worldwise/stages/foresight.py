"""World-In-Agent in policy RL: predictions of played episodes get their scores, and what they do to the returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from worldwise.algorithms.rewards.text import text_ratio
from worldwise.algorithms.world_in_agent import (
    foresight_and_outcome,
    foresight_return,
    horizon,
    reward_factors,
    step_factors,
)
from worldwise.episodes.record import Episode, Prediction, Turn
from worldwise.rollouts.config import RolloutConfig
from worldwise.stages.world_in_agent_config import WorldInAgentConfig

_ratio = lru_cache(65536)(text_ratio)
"""The same predictions meet the same observations again and again."""


def asking(rollout: RolloutConfig, config: WorldInAgentConfig, turn_limit: int) -> RolloutConfig:
    """The same settings of play, with predictions.

    Args:
        rollout: of plain play.
        config: settings.
        turn_limit: most turns of an episode.
    """
    count = horizon(turn_limit) if config.horizon is None else config.horizon
    return rollout.model_copy(update={"predictions": count, "prediction_tokens": config.max_tokens})


def scored(episodes: Sequence[Episode], config: WorldInAgentConfig, seed: int) -> list[Episode]:
    """The episodes with a score at every prediction of an observation that came; those beyond the end stay without.

    Args:
        episodes: with a valid reward or not.
        config: settings.
        seed: of shuffled targets.
    """
    others = _strangers(episodes, seed) if config.targets == "shuffled" else None
    found = []
    for number, episode in enumerate(episodes):
        came = [turn.next_observation for turn in episode.turns]
        texts = came if others is None else others[number]
        turns = tuple(_with_scores(turn, texts, config.autojunk) for turn in episode.turns)
        found.append(replace(episode, turns=turns))
    return found


def foresight_numbers(episodes: Sequence[Episode], config: WorldInAgentConfig) -> dict[str, float]:
    """What curves show, over episodes with a valid reward.

    `foresight_score`: mean similarity of predictions of the very next observation (one that was not said counts 0);
    `foresight_missing`: share of them that was not said; `foresight_return`: mean R_pre of a turn;
    `foresight_correlation`, `foresight_p_value`: point-biserial, of the episodes' mean scores and their success; left
    out where one of both does not vary.
    """
    valid = [episode for episode in episodes if episode.reward_valid and episode.turns]
    turns = [turn for episode in valid for turn in episode.turns]
    if not turns:
        return {}
    means = [float(np.mean([_first(turn) for turn in episode.turns])) for episode in valid]
    numbers = {
        "foresight_score": float(np.mean([_first(turn) for turn in turns])),
        "foresight_missing": float(np.mean([not any(own.text for own in turn.predictions[:1]) for turn in turns])),
        "foresight_return": float(np.mean([_foreseen(turn, config) for turn in turns])),
    }
    found = foresight_and_outcome(means, [episode.success for episode in valid])
    if found.value is not None and found.p_value is not None:
        numbers |= {"foresight_correlation": found.value, "foresight_p_value": found.p_value}
    return numbers


def with_paid_foresight(episodes: Sequence[Episode], config: WorldInAgentConfig) -> list[Episode]:
    """The episodes with the immediate rewards of the `reward` variant; for advantages alone, never to be stored."""
    paid = []
    for episode in episodes:
        factors = reward_factors([_first(turn) for turn in episode.turns], config.share)
        turns = (replace(turn, reward=turn.reward * float(f)) for turn, f in zip(episode.turns, factors, strict=True))
        paid.append(replace(episode, turns=tuple(turns)))
    return paid


def factors_of_steps(episodes: Sequence[Episode], config: WorldInAgentConfig) -> list[list[float]]:
    """Per episode and turn 1 + R_pre, for the `step` variant."""
    return [step_factors([_foreseen(turn, config) for turn in episode.turns]).tolist() for episode in episodes]


def _foreseen(turn: Turn, config: WorldInAgentConfig) -> float:
    return foresight_return([own.score for own in turn.predictions], config.gamma, config.normalized)


def _first(turn: Turn) -> float:
    """Score of the prediction of the next observation, 0 without one."""
    score = turn.predictions[0].score if turn.predictions else None
    return 0.0 if score is None else score


def _with_scores(turn: Turn, came: Sequence[str], autojunk: bool) -> Turn:
    if not turn.predictions:
        return turn
    return replace(turn, predictions=tuple(_with_score(own, turn.index, came, autojunk) for own in turn.predictions))


def _with_score(prediction: Prediction, index: int, came: Sequence[str], autojunk: bool) -> Prediction:
    place = index + prediction.horizon - 1
    if place >= len(came):
        return prediction
    return replace(prediction, score=_ratio(prediction.text or None, came[place], autojunk))


def _strangers(episodes: Sequence[Episode], seed: int) -> list[list[str]]:
    """For every episode, in place of what came, as many observations of other episodes."""
    rng = np.random.default_rng(seed)
    pool = [(number, turn.next_observation) for number, episode in enumerate(episodes) for turn in episode.turns]
    found: list[list[str]] = []
    for number, episode in enumerate(episodes):
        foreign = [text for owner, text in pool if owner != number] or [""]
        found.append([foreign[int(place)] for place in rng.integers(0, len(foreign), len(episode.turns))])
    return found
