"""From rewards of turns to advantages of turns: the estimators by name, and what they are given."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from worldwise.algorithms.advantages.gigpo import GigpoAdvantages, Statistics, episode_term, gigpo
from worldwise.algorithms.advantages.groups import Normalize
from worldwise.algorithms.advantages.reinforce_pp import reinforce_pp, reinforce_pp_baseline
from worldwise.algorithms.advantages.returns import total_returns
from worldwise.algorithms.advantages.states import similar_states
from worldwise.config import FrozenConfig
from worldwise.episodes.record import Episode

Float = NDArray[np.float64]

PPO = "ppo"
"""The one estimator that needs a critic: its advantages belong to tokens and are made by `ppo_rows`."""


class EstimatorConfig(FrozenConfig):
    """How returns become advantages. docs/algorithms.md has papers, equations and recommended values.

    Attributes:
        algorithm: `grpo`, `dr_grpo` (GRPO without the division; wants learner.aggregation=constant), `rloo`,
            `reinforce_pp`, `reinforce_pp_baseline`, `gigpo`, or `ppo` (with learner.critic).
        normalize: `std` divides by the group's standard deviation, `none` does not (GiGPO "w/o std"); of `grpo` and
            `gigpo`.
        statistics: `trajectory` counts an episode once in its group's mean and deviation, `row` once per
            turn with penalties inside, as the public release of GiGPO does.
        gamma: discount of GiGPO's step returns, [0, 1] (0.95 in the paper).
        omega: weight of GiGPO's step term (1 in the paper).
        state_similarity: None groups equal states; a number in (0, 1] also those whose texts are at least so similar
            (difflib ratio; 0.9 in the search runs of the public release).
        discount: of the returns of `reinforce_pp` (per turn) and of `ppo` (per token), [0, 1].
        trace: lambda of GAE, [0, 1], for `ppo`.
        scope: over what GAE runs: the whole `episode`, or each `turn` alone with the episode's return as its reward, as
            the public release of GiGPO runs PPO.
        invalid_penalty: subtracted from the own return of a turn whose response had not the demanded
            form (0.1 in the paper, beside a reward of 10).
    """

    algorithm: str = "gigpo"
    normalize: Normalize = "std"
    statistics: Statistics = "trajectory"
    gamma: float = Field(0.95, ge=0.0, le=1.0)
    omega: float = Field(1.0, ge=0.0)
    state_similarity: float | None = Field(None, gt=0.0, le=1.0)
    discount: float = Field(1.0, ge=0.0, le=1.0)
    trace: float = Field(1.0, ge=0.0, le=1.0)
    scope: Literal["episode", "turn"] = "episode"
    invalid_penalty: float = Field(0.1, ge=0.0)

    @model_validator(mode="after")
    def _known(self) -> Self:
        if self.algorithm not in (*ALGORITHMS, PPO):
            known = ", ".join(sorted((*ALGORITHMS, PPO)))
            raise ValueError(f"algorithm is {self.algorithm!r}: known are {known} (lower case)")
        return self


@dataclass(frozen=True, slots=True)
class TurnRows:
    """All turns of a batch of episodes, episode after episode, turn after turn (length N).

    Attributes:
        rewards: float64 [N], the world's reward.
        costs: float64 [N], what is taken off it: a KL in the reward; None = nothing.
        tokens: float64 [N], response tokens of the turn.
        groups, episodes: [N], keys of the task group and of the episode.
        states: [N], key of the state in which the turn was taken.
        penalties: float64 [N], >= 0.
        step_factors: float64 [N], see `gigpo`; None = 1.
    """

    rewards: Float
    groups: list[str]
    episodes: list[str]
    states: list[str]
    penalties: Float
    tokens: Float
    costs: Float | None = None
    step_factors: Float | None = None


def turn_rows(
    episodes: Sequence[Episode],
    config: EstimatorConfig,
    state_key: Callable[[str], str],
    costs: Sequence[Sequence[float]] | None = None,
    step_factors: Sequence[Sequence[float]] | None = None,
) -> TurnRows:
    """The turns of episodes with a valid reward; the others have none.

    Args:
        episodes: whole groups.
        config: settings.
        state_key: observation -> key of its state (`WorldFamily.canonical_state`).
        costs: per episode, what is taken off the reward of each turn; None = nothing.
        step_factors: per episode and turn, see `gigpo`; None = 1.
    """
    valid = [(number, turn) for number, e in enumerate(episodes) if e.reward_valid for turn in e.turns]
    taken, factors = (
        None if own is None else np.asarray([own[number][place] for number, place in _places(episodes)], dtype=float)
        for own in (costs, step_factors)
    )
    return TurnRows(
        rewards=np.asarray([turn.reward for _, turn in valid], dtype=np.float64),
        groups=[episodes[number].group_id for number, _ in valid],
        episodes=[episodes[number].episode_id for number, _ in valid],
        states=[state_key(turn.observation) for _, turn in valid],
        penalties=np.asarray([config.invalid_penalty * (not turn.format_valid) for _, turn in valid], dtype=float),
        tokens=np.asarray([len(turn.response_ids) for _, turn in valid], dtype=float),
        costs=taken,
        step_factors=factors,
    )


def turn_advantages(
    episodes: Sequence[Episode],
    config: EstimatorConfig,
    state_key: Callable[[str], str],
    costs: Sequence[Sequence[float]] | None = None,
    step_factors: Sequence[Sequence[float]] | None = None,
) -> list[list[float]]:
    """One advantage per turn of each episode; those without a valid reward get zeros.

    A failed episode leaves its group and changes nothing else; a group of which one episode is left gets zero.

    Args:
        episodes, config, state_key, costs, step_factors: as for `turn_rows`.

    Raises:
        KeyError: `ppo`, whose advantages belong to tokens.
    """
    rows = turn_rows(episodes, config, state_key, costs, step_factors)
    values = iter(ALGORITHMS[config.algorithm](rows, config).tolist())
    return [[next(values) if episode.reward_valid else 0.0 for _ in episode.turns] for episode in episodes]


def gigpo_parts(rows: TurnRows, config: EstimatorConfig) -> GigpoAdvantages:
    """GiGPO's advantages with their parts and state groups."""
    states: Sequence[str] | list[int] = rows.states
    if config.state_similarity is not None:
        states = similar_states(rows.states, rows.groups, config.state_similarity).tolist()
    return gigpo(
        rows.rewards,
        rows.groups,
        rows.episodes,
        states,
        discount=config.gamma,
        step_weight=config.omega,
        normalize=config.normalize,
        statistics=config.statistics,
        penalties=rows.penalties,
        step_factors=rows.step_factors,
        costs=rows.costs,
    )


def _places(episodes: Sequence[Episode]) -> list[tuple[int, int]]:
    """(episode, turn) of every turn with a valid reward."""
    return [(number, place) for number, e in enumerate(episodes) if e.reward_valid for place in range(len(e.turns))]


def _in_groups(rows: TurnRows, config: EstimatorConfig, normalize: Normalize) -> Float:
    return episode_term(
        total_returns(rows.rewards, rows.episodes),
        rows.groups,
        rows.episodes,
        normalize=normalize,
        statistics=config.statistics,
        penalties=rows.penalties,
        costs=None if rows.costs is None else total_returns(rows.costs, rows.episodes),
    )


def _grpo(rows: TurnRows, config: EstimatorConfig) -> Float:
    return _in_groups(rows, config, config.normalize)


def _dr_grpo(rows: TurnRows, config: EstimatorConfig) -> Float:
    return _in_groups(rows, config, "none")


def _rloo(rows: TurnRows, config: EstimatorConfig) -> Float:
    return _in_groups(rows, config, "leave_one_out")


def _reinforce_pp(rows: TurnRows, config: EstimatorConfig) -> Float:
    paid = rows.rewards if rows.costs is None else rows.rewards - rows.costs
    return reinforce_pp(paid, rows.episodes, discount=config.discount, weights=rows.tokens, penalties=rows.penalties)


def _reinforce_pp_baseline(rows: TurnRows, config: EstimatorConfig) -> Float:
    return reinforce_pp_baseline(
        rows.rewards, rows.groups, rows.episodes, weights=rows.tokens, penalties=rows.penalties, costs=rows.costs
    )


def _gigpo(rows: TurnRows, config: EstimatorConfig) -> Float:
    return gigpo_parts(rows, config).total


ALGORITHMS: Mapping[str, Callable[[TurnRows, EstimatorConfig], Float]] = {
    "grpo": _grpo,
    "dr_grpo": _dr_grpo,
    "rloo": _rloo,
    "reinforce_pp": _reinforce_pp,
    "reinforce_pp_baseline": _reinforce_pp_baseline,
    "gigpo": _gigpo,
}
"""Name of an advantage estimator -> advantages of turn rows, float64 [N]."""
