"""PPO's rows: advantages of single tokens, from the rewards of turns and a critic's values (arXiv:1707.06347).

A turn's reward is paid at its last response token. The penalty for a badly formed response is taken off the tokens of
its own turn once advantages are made, so that it reaches no other turn; the critic does not hear of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from worldwise.algorithms.advantages.gae import flat_gae, whiten
from worldwise.episodes.record import Episode
from worldwise.episodes.sequences import Role, TrainingSequence
from worldwise.stages.estimators import EstimatorConfig

Float = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class TokenRows:
    """The response tokens of some sequences, one after another (length N).

    Attributes:
        rewards: float64 [N], less a KL where it is taken off the rewards.
        penalties: float64 [N] >= 0, of the token's turn.
        chains: [N], key of what GAE runs over.
        positions: per sequence, int64, the response tokens in it.
    """

    rewards: Float
    penalties: Float
    chains: list[str]
    positions: list[NDArray[np.int64]]


def token_rows(
    rows: Sequence[tuple[Episode, TrainingSequence]],
    config: EstimatorConfig,
    costs: Sequence[NDArray[np.float32]] | None = None,
) -> TokenRows:
    """Rewards, penalties and chains of response tokens.

    Args:
        rows: sequences with their episodes, in the order of episodes and turns.
        config: settings.
        costs: per sequence float32 [T], what is taken off the reward of each token; None = nothing.
    """
    rewards, penalties, chains, positions = [], [], [], []
    for number, (episode, sequence) in enumerate(rows):
        places = np.flatnonzero(sequence.roles == Role.RESPONSE)
        turns = sequence.turns[places]
        paid = np.zeros(len(places)) if costs is None else -costs[number][places].astype(np.float64)
        for place in np.flatnonzero(np.append(turns[1:] != turns[:-1], True)[: len(places)]):
            alone = config.scope == "turn"
            paid[place] += episode.total_reward if alone else episode.turns[turns[place]].reward
        rewards.append(paid)
        bad = np.asarray([not turn.format_valid for turn in episode.turns], dtype=np.float64)
        penalties.append(config.invalid_penalty * bad[turns])
        chains += [f"{episode.episode_id}#{turn}" if config.scope == "turn" else episode.episode_id for turn in turns]
        positions.append(places)
    return TokenRows(_flat(rewards), _flat(penalties), chains, positions)


def ppo_sequences(
    sequences: Sequence[TrainingSequence],
    rows: TokenRows,
    values: Sequence[NDArray[np.float32]],
    config: EstimatorConfig,
) -> list[TrainingSequence]:
    """The sequences with advantages (whitened over the batch), values and returns on their response tokens.

    Args:
        sequences: as given to `token_rows`.
        rows: their tokens.
        values: per sequence float32 [T], the critic's.
        config: settings.
    """
    valued = _flat([own[places].astype(np.float64) for own, places in zip(values, rows.positions, strict=True)])
    advantages, returns = flat_gae(rows.rewards, valued, rows.chains, discount=config.discount, trace=config.trace)
    scale = advantages.std(ddof=1) if len(advantages) > 1 else 0.0
    # On the scale of the whitened advantages; a batch without spread keeps the penalty as it is.
    white = whiten(advantages) - rows.penalties / (scale if scale > 1e-4 else 1.0)
    ends = np.cumsum([len(places) for places in rows.positions])
    made = []
    for sequence, places, end in zip(sequences, rows.positions, ends, strict=True):
        own = slice(int(end) - len(places), int(end))
        made.append(
            replace(
                sequence,
                advantages=_spread(white[own], places, len(sequence)),
                returns=_spread(returns[own], places, len(sequence)),
                values=_spread(valued[own], places, len(sequence)),
            )
        )
    return made


def _spread(values: Float, places: NDArray[np.int64], length: int) -> NDArray[np.float32]:
    table = np.zeros(length, dtype=np.float32)
    table[places] = values
    return table


def _flat(parts: Sequence[Float]) -> Float:
    return np.concatenate(parts) if parts else np.zeros(0)
