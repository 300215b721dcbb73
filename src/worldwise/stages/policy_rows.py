"""From played groups to the learner's rows: which estimator, which advantages, which sequences."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from worldwise.agents.agent import Agent
from worldwise.algorithms.advantages.gigpo import Statistics, episode_term, gigpo
from worldwise.algorithms.advantages.groups import Normalize
from worldwise.algorithms.advantages.returns import total_returns
from worldwise.config import FrozenConfig
from worldwise.episodes.record import Episode
from worldwise.episodes.sequences import TrainingSequence, sequences_from_episode

Float = NDArray[np.float64]


class EstimatorConfig(FrozenConfig):
    """How returns become advantages.

    Attributes:
        algorithm: `grpo` or `gigpo` (exactly matched states).
        normalize: `std` divides by the group's standard deviation, `none` does not (Dr.GRPO; GiGPO "w/o std").
        statistics: `trajectory` counts an episode once in its group's mean and deviation, `row` once per
            turn with penalties inside, as the public release of GiGPO does.
        gamma: discount of GiGPO's step returns, [0, 1] (0.95 in the paper).
        omega: weight of GiGPO's step term (1 in the paper).
        invalid_penalty: subtracted from the own return of a turn whose response had not the demanded
            form (0.1 in the paper, beside a reward of 10).
    """

    algorithm: str = "gigpo"
    normalize: Normalize = "std"
    statistics: Statistics = "trajectory"
    gamma: float = Field(0.95, ge=0.0, le=1.0)
    omega: float = Field(1.0, ge=0.0)
    invalid_penalty: float = Field(0.1, ge=0.0)

    @model_validator(mode="after")
    def _known(self) -> Self:
        if self.algorithm not in ALGORITHMS:
            raise ValueError(f"algorithm is {self.algorithm!r}: known are {', '.join(sorted(ALGORITHMS))} (lower case)")
        return self


@dataclass(frozen=True, slots=True)
class TurnRows:
    """All turns of a batch of episodes, episode after episode, turn after turn (length N).

    Attributes:
        rewards: float64 [N], the world's reward.
        groups, episodes: [N], keys of the task group and of the episode.
        states: [N], key of the state in which the turn was taken.
        penalties: float64 [N], >= 0.
    """

    rewards: Float
    groups: list[str]
    episodes: list[str]
    states: list[str]
    penalties: Float


def turn_rows(episodes: Sequence[Episode], config: EstimatorConfig, state_key: Callable[[str], str]) -> TurnRows:
    """The turns of episodes with a valid reward; the others have none.

    Args:
        episodes: whole groups.
        config: settings.
        state_key: observation -> key of its state (`WorldFamily.canonical_state`).
    """
    valid = [(episode, turn) for episode in episodes if episode.reward_valid for turn in episode.turns]
    return TurnRows(
        rewards=np.asarray([turn.reward for _, turn in valid], dtype=np.float64),
        groups=[episode.group_id for episode, _ in valid],
        episodes=[episode.episode_id for episode, _ in valid],
        states=[state_key(turn.observation) for _, turn in valid],
        penalties=np.asarray([config.invalid_penalty * (not turn.format_valid) for _, turn in valid], dtype=float),
    )


def turn_advantages(
    episodes: Sequence[Episode], config: EstimatorConfig, state_key: Callable[[str], str]
) -> list[list[float]]:
    """One advantage per turn of each episode; those without a valid reward get zeros.

    A failed episode leaves its group and changes nothing else; a group of which one episode is left gets zero.
    """
    rows = turn_rows(episodes, config, state_key)
    values = iter(ALGORITHMS[config.algorithm](rows, config).tolist())
    return [[next(values) if episode.reward_valid else 0.0 for _ in episode.turns] for episode in episodes]


def policy_sequences(
    episodes: Sequence[Episode], advantages: Sequence[Sequence[float]], agent: Agent
) -> list[TrainingSequence]:
    """The learner's rows of episodes with a valid reward."""
    return [
        sequence
        for episode, values in zip(episodes, advantages, strict=True)
        if episode.reward_valid and episode.turns
        for sequence in sequences_from_episode(episode, values, agent.allowed_sequences)
    ]


def group_numbers(episodes: Sequence[Episode]) -> dict[str, float]:
    """Shares of groups, counted over episodes with a valid reward.

    `mixed_groups`: solved and unsolved episodes in one group; `zero_variance`: all returns equal;
    `solved_groups`: all solved. Groups without a valid episode do not count.
    """
    groups: dict[str, list[Episode]] = {}
    for episode in episodes:
        if episode.reward_valid:
            groups.setdefault(episode.group_id, []).append(episode)
    count = max(len(groups), 1)
    solved = [[episode.success for episode in members] for members in groups.values()]
    returns = [{episode.total_reward for episode in members} for members in groups.values()]
    return {
        "mixed_groups": sum(any(own) and not all(own) for own in solved) / count,
        "zero_variance": sum(len(own) == 1 for own in returns) / count,
        "solved_groups": sum(all(own) for own in solved) / count,
    }


def _grpo(rows: TurnRows, config: EstimatorConfig) -> Float:
    return episode_term(
        total_returns(rows.rewards, rows.episodes),
        rows.groups,
        rows.episodes,
        normalize=config.normalize,
        statistics=config.statistics,
        penalties=rows.penalties,
    )


def _gigpo(rows: TurnRows, config: EstimatorConfig) -> Float:
    return gigpo(
        rows.rewards,
        rows.groups,
        rows.episodes,
        rows.states,
        discount=config.gamma,
        step_weight=config.omega,
        normalize=config.normalize,
        statistics=config.statistics,
        penalties=rows.penalties,
    ).total


ALGORITHMS: Mapping[str, Callable[[TurnRows, EstimatorConfig], Float]] = {"grpo": _grpo, "gigpo": _gigpo}
"""Name of an advantage estimator -> advantages of turn rows, float64 [N]."""
