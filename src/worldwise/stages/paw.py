"""PaW in policy RL: which observation tokens of the played episodes the world model learns, and with what weight."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from worldwise.agents.agent import Agent
from worldwise.algorithms.paw import group_weights, most_uncertain, moving_weight, shuffled_targets, uncertainty
from worldwise.config import derive_seed
from worldwise.episodes.record import Episode, Turn
from worldwise.episodes.sequences import Role, TrainingSequence
from worldwise.rollouts.scripted import play_scripted
from worldwise.stages.paw_config import PawConfig
from worldwise.worlds.contract import Task, WorldFamily


@dataclass(frozen=True, slots=True)
class Observed:
    """A transition that can be learned from.

    Attributes:
        sequence: number of the sequence that shows it.
        places: int64 [n], its observation tokens there.
        group_id: its group.
        uncertainty: of the action that led to it, nats.
    """

    sequence: int
    places: NDArray[np.int64]
    group_id: str
    uncertainty: float


@dataclass(frozen=True, slots=True)
class Marked:
    """Sequences for the learner.

    Attributes:
        sequences: with the weights of their observation tokens. Where all weights are 0 they are as they came.
        mean_return: moving average of returns after this iteration; None where no average is wanted.
        numbers: `paw_lambda` (mean over groups), `paw_transitions` (that could be chosen), `paw_chosen` (share),
            `paw_uncertainty`, `paw_uncertainty_chosen` (means, nats).
    """

    sequences: list[TrainingSequence]
    mean_return: float | None
    numbers: dict[str, float]


def transitions(
    sequences: Sequence[TrainingSequence], episodes: Sequence[Episode], config: PawConfig
) -> list[Observed]:
    """The transitions whose observation stands in a sequence behind the action that led to it.

    Those that ended an episode show nothing after it, and are left out. So is what a sequence begins with.

    Args:
        sequences: made with `following`, so that every turn's outcome is in them.
        episodes: that they were made of.
        config: settings.
    """
    by_id = {episode.episode_id: episode for episode in episodes}
    found = []
    for number, sequence in enumerate(sequences):
        episode = by_id[sequence.sequence_id.rpartition("#")[0]]
        observed = np.flatnonzero(sequence.roles == Role.OBSERVATION)
        shown = sequence.turns[observed]
        for turn in np.unique(shown[shown > sequence.turns[0]]).tolist():
            places = observed[shown == turn][: config.max_tokens]
            value = _uncertainty(episode.turns[turn - 1], config)
            found.append(Observed(number, places, sequence.group_id, value))
    return found


def mark(
    sequences: Sequence[TrainingSequence],
    episodes: Sequence[Episode],
    config: PawConfig,
    largest: float,
    seed: int,
    mean_return: float | None = None,
) -> Marked:
    """Choose transitions of an iteration and give their observation tokens weights.

    Args:
        sequences: of whole groups, see `transitions`.
        episodes: that they were made of.
        config: settings.
        largest: the world's largest return.
        seed: of this iteration: breaks ties, draws random choices and shuffled targets.
        mean_return: moving average of returns before this iteration.
    """
    rng = np.random.default_rng(seed)
    every = transitions(sequences, episodes, config)
    values = np.asarray([own.uncertainty for own in every], dtype=np.float64)
    chosen = _choose(values, config, rng)
    weights, mean_return = _weights(episodes, config, largest, mean_return)
    taken = [own for own, picked in zip(every, chosen, strict=True) if picked]
    targets = [sequences[own.sequence].token_ids[own.places] for own in taken]
    if config.targets == "shuffled":
        targets = shuffled_targets(targets, rng)
    numbers = {
        "paw_lambda": float(np.mean(list(weights.values()))) if weights else 0.0,
        "paw_transitions": float(len(every)),
        "paw_chosen": float(chosen.mean()) if len(chosen) else 0.0,
        "paw_uncertainty": float(values.mean()) if len(values) else 0.0,
        "paw_uncertainty_chosen": float(values[chosen].mean()) if chosen.any() else 0.0,
    }
    return Marked(_with_weights(sequences, taken, targets, weights, config), mean_return, numbers)


def held_out_sequences(agent: Agent, family: WorldFamily, tasks: Sequence[Task], seed: int) -> list[TrainingSequence]:
    """Scripted play of some tasks, half of it the oracle's and half of it random, as sequences.

    The same whatever the weights are and wherever a training goes on. Nothing where the agent's chats cannot grow.

    Args:
        agent: prompts.
        family: the world.
        tasks: one episode each.
        seed: of the play.
    """
    if agent.config.context != "conversation" or not agent.prefix_preserving:
        return []
    found = []
    for number, task in enumerate(tasks):
        played = play_scripted(family, "oracle" if number % 2 == 0 else "random", task, derive_seed(seed, number), 30)
        shown = agent.transcript(played.observations[:-1], played.actions, played.infos[:-1])
        count = len(shown.token_ids)
        outcomes = (shown.roles == Role.OBSERVATION) & (shown.turns > 0)
        if not outcomes.any():
            continue
        nothing = np.zeros(count, dtype=np.float32)
        found.append(
            TrainingSequence(
                sequence_id=f"held_out/{task.task_id}#0",
                group_id=task.task_id,
                token_ids=shown.token_ids,
                roles=shown.roles,
                turns=shown.turns,
                logprobs=nothing,
                advantages=nothing,
                world_weights=outcomes.astype(np.float32),
            )
        )
    return found


def _uncertainty(turn: Turn, config: PawConfig) -> float:
    span = turn.action_span if config.span == "action" else None
    return uncertainty(turn.entropies, turn.logprobs, span, config.measure)


def _choose(values: NDArray[np.float64], config: PawConfig, rng: np.random.Generator) -> NDArray[np.bool_]:
    if config.select == "all":
        return np.ones(len(values), dtype=bool)
    # Where all are equal, ties are all that decides.
    return most_uncertain(values if config.select == "uncertain" else np.zeros(len(values)), config.alpha, rng)


def _weights(
    episodes: Sequence[Episode], config: PawConfig, largest: float, mean_return: float | None
) -> tuple[dict[str, float], float | None]:
    """Group -> lambda, and the moving average after it."""
    returns = [episode.total_reward for episode in episodes]
    groups = [episode.group_id for episode in episodes]
    if config.weight == "group":
        return group_weights(returns, groups, largest), mean_return
    if config.weight == "constant":
        return dict.fromkeys(groups, 1.0), mean_return
    mean, weight = moving_weight(mean_return, returns, largest, config.decay)
    return dict.fromkeys(groups, weight), mean


def _with_weights(
    sequences: Sequence[TrainingSequence],
    taken: Sequence[Observed],
    targets: Sequence[NDArray[np.int32]],
    weights: dict[str, float],
    config: PawConfig,
) -> list[TrainingSequence]:
    marked = list(sequences)
    for own, target in zip(taken, targets, strict=True):
        sequence = marked[own.sequence]
        weight = weights[own.group_id]
        before = np.zeros(len(sequence), dtype=np.float32)
        learned = before if sequence.world_weights is None else sequence.world_weights.copy()
        learned[own.places] = weight
        wanted = sequence.world_targets
        if config.targets == "shuffled":
            wanted = sequence.token_ids.copy() if wanted is None else wanted.copy()
            wanted[own.places] = target
        tokens = sequence.world_tokens + len(own.places)
        marked[own.sequence] = replace(sequence, world_weights=learned, world_targets=wanted, world_tokens=tokens)
    return marked
