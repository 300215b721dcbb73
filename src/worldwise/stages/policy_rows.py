"""The learner's rows of played groups, and the numbers that learning curves show of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from worldwise.agents.agent import Agent
from worldwise.algorithms.advantages.groups import Int
from worldwise.episodes.record import Episode, Termination, Turn
from worldwise.episodes.sequences import Following, Role, TrainingSequence, sequences_from_episode
from worldwise.stages.estimators import PPO, EstimatorConfig, gigpo_parts, turn_advantages, turn_rows
from worldwise.stages.ppo_rows import ppo_sequences, token_rows

if TYPE_CHECKING:
    from worldwise.training.learner import Learner

_STATE_GROUPS = {"state_groups_1": (1, 1), "state_groups_2_3": (2, 3), "state_groups_4_7": (4, 7)}
_LARGE_STATE_GROUP = 8


def policy_sequences(
    episodes: Sequence[Episode],
    advantages: Sequence[Sequence[float]],
    agent: Agent,
    following: Callable[[Turn], Following] | None = None,
) -> list[TrainingSequence]:
    """The learner's rows of episodes with a valid reward."""
    return [
        sequence
        for episode, values in zip(episodes, advantages, strict=True)
        if episode.reward_valid and episode.turns
        for sequence in sequences_from_episode(episode, values, agent.allowed_sequences, following)
    ]


def learner_rows(
    episodes: Sequence[Episode],
    config: EstimatorConfig,
    learner: Learner,
    agent: Agent,
    state_key: Callable[[str], str],
    outcomes: bool = False,
    step_factors: Sequence[Sequence[float]] | None = None,
) -> list[TrainingSequence]:
    """The learner's rows with the advantages of whatever estimator, before the update.

    Args:
        episodes: whole groups, played by the weights that the learner has now.
        config: the estimator.
        learner: its settings say whether the KL is taken off the rewards; it gives that KL, and the critic's values.
        agent, state_key: of the world.
        step_factors: per episode and turn, what GiGPO's step returns are multiplied by; None = 1.
        outcomes: show the outcome of a sequence's last turn as well, where it did not end the episode.
    """
    following = agent.following_context if outcomes else None
    in_reward = learner.config.kl_in == "reward" and learner.config.kl_coefficient > 0.0
    if config.algorithm != PPO and not in_reward:
        return policy_sequences(
            episodes, turn_advantages(episodes, config, state_key, None, step_factors), agent, following
        )
    valid = [episode for episode in episodes if episode.reward_valid and episode.turns]
    rows = [
        (episode, sequence)
        for episode in valid
        for sequence in sequences_from_episode(episode, [0.0] * len(episode.turns), agent.allowed_sequences, following)
    ]
    plain = [sequence for _, sequence in rows]
    costs = None
    if in_reward:
        costs = [learner.config.kl_coefficient * nats for nats in learner.reference_kl(plain)]
    if config.algorithm == PPO:
        return ppo_sequences(plain, token_rows(rows, config, costs), learner.values(plain), config)
    taken = {episode.episode_id: np.zeros(len(episode.turns)) for episode in episodes}
    for (episode, sequence), own in zip(rows, costs or [], strict=True):
        inside = sequence.roles == Role.RESPONSE
        np.add.at(taken[episode.episode_id], sequence.turns[inside], own[inside])
    by_turn = [taken[episode.episode_id].tolist() for episode in episodes]
    return policy_sequences(
        episodes, turn_advantages(episodes, config, state_key, by_turn, step_factors), agent, following
    )


def whole_groups(episodes: Sequence[Episode]) -> list[Episode]:
    """The episodes without the groups that world or engine broke: what is left of such a group is no fair sample of its
    task (what hangs or raises may depend on what the agent did), so its members are not compared."""
    broken = {episode.group_id for episode in episodes if not episode.reward_valid}
    return [episode for episode in episodes if episode.group_id not in broken]


def telling_groups(episodes: Sequence[Episode]) -> list[str]:
    """Ids of the groups whose valid returns are not all equal, in the order of play."""
    groups = _valid_groups(episodes)
    return [name for name, own in groups.items() if len({episode.total_reward for episode in own}) > 1]


def chosen_groups(episodes: Sequence[Episode], count: int) -> list[Episode]:
    """What dynamic sampling trains on: the first `count` telling groups; where there are fewer, the groups played last
    fill the rest."""
    telling = telling_groups(episodes)[:count]
    others = [name for name in dict.fromkeys(episode.group_id for episode in episodes) if name not in telling]
    rest = others[len(others) - min(count - len(telling), len(others)) :]
    wanted = {*telling, *rest}
    return [episode for episode in episodes if episode.group_id in wanted]


def _valid_groups(episodes: Sequence[Episode]) -> dict[str, list[Episode]]:
    groups: dict[str, list[Episode]] = {}
    for episode in episodes:
        if episode.reward_valid:
            groups.setdefault(episode.group_id, []).append(episode)
    return groups


def group_numbers(episodes: Sequence[Episode]) -> dict[str, float]:
    """Shares of groups, counted over episodes with a valid reward.

    `mixed_groups`: solved and unsolved episodes in one group; `zero_variance`: all returns equal;
    `solved_groups`: all solved. Groups without a valid episode do not count.
    """
    groups = _valid_groups(episodes)
    count = max(len(groups), 1)
    solved = [[episode.success for episode in members] for members in groups.values()]
    returns = [{episode.total_reward for episode in members} for members in groups.values()]
    return {
        "mixed_groups": sum(any(own) and not all(own) for own in solved) / count,
        "zero_variance": sum(len(own) == 1 for own in returns) / count,
        "solved_groups": sum(all(own) for own in solved) / count,
    }


def truncation_numbers(episodes: Sequence[Episode]) -> dict[str, float]:
    """What limits cut off, counted over episodes with a valid reward.

    `truncated_episodes`: share that ended at a turn or token limit; `token_limit_episodes`: the part of it that ended
    at the token limit of an episode; `truncated_responses`: share of turns whose response did not end by itself (the
    token cap of a response, or the end of the model's room).
    """
    valid = [episode for episode in episodes if episode.reward_valid]
    turns = [turn for episode in valid for turn in episode.turns]
    tokens = sum(episode.termination is Termination.TOKEN_LIMIT for episode in valid)
    cut = tokens + sum(episode.termination is Termination.TURN_LIMIT for episode in valid)
    return {
        "truncated_episodes": cut / max(len(valid), 1),
        "token_limit_episodes": tokens / max(len(valid), 1),
        "truncated_responses": sum(not turn.finished for turn in turns) / max(len(turns), 1),
    }


def state_numbers(
    episodes: Sequence[Episode], config: EstimatorConfig, state_key: Callable[[str], str]
) -> dict[str, float]:
    """How often states come back in their task group; nothing where the estimator does not look at states.

    `state_group_size`: turns per state, the mean size of GiGPO's state groups (1 = no state occurs twice, and GiGPO is
    GRPO; the first turns of a group always share theirs); `state_group_size_later`: the same without the states that an
    episode began in, where there are others; `state_groups_1`, `state_groups_2_3`, `state_groups_4_7`,
    `state_groups_8_up`: shares of turns in groups of these sizes.
    """
    rows = turn_rows(episodes, config, state_key)
    if config.algorithm != "gigpo" or not len(rows.rewards):
        return {}
    groups = gigpo_parts(rows, config).state_groups
    first = np.asarray([turn.index == 0 for e in episodes if e.reward_valid for turn in e.turns], dtype=bool)
    later = groups[~np.isin(groups, groups[first])]
    numbers = group_sizes(groups)
    return {**numbers, "state_group_size_later": len(later) / len(np.unique(later))} if len(later) else numbers


def group_sizes(groups: Int) -> dict[str, float]:
    """Mean size of state groups and shares of turns by the size of theirs; see `state_numbers`.

    Args:
        groups: int64 [N], N > 0: number of each turn's state group.
    """
    sizes = np.bincount(groups)
    own = sizes[groups]
    return {
        "state_group_size": len(groups) / np.count_nonzero(sizes),
        **{name: float(((own >= low) & (own <= high)).mean()) for name, (low, high) in _STATE_GROUPS.items()},
        "state_groups_8_up": float((own >= _LARGE_STATE_GROUP).mean()),
    }
