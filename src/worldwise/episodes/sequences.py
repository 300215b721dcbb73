"""Training sequences: the learner's only food, derived from episodes and predictions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from worldwise.episodes.record import Episode, Turn

Allowed = Sequence[NDArray[np.int32] | None]


class Role(IntEnum):
    """What a token is to the losses."""

    CONTEXT = 0
    RESPONSE = 1
    OBSERVATION = 2


@dataclass(frozen=True, slots=True)
class TrainingSequence:
    """One row for the learner.

    Attributes:
        sequence_id: episode id plus the first turn it holds.
        group_id: group of the episode; mini-batches are split by it.
        token_ids: int32 [T].
        roles: int8 [T], `Role` of each token.
        turns: int32 [T], turn index in the episode that the token belongs to, -1 for none.
        logprobs: float32 [T], nats, behaviour log-probability of response tokens, 0 elsewhere.
        advantages: float32 [T], one value per response token, 0 elsewhere; NaN-free.
        temperature: the sampling temperature the log-probabilities belong to (> 0).
        allowed: per token the ids that restricted decoding allowed there, or None
            (None as a whole: nothing was restricted).
        branches: int32 [T] or None. A tree row: 0 = shared prefix, k >= 1 = branch k. Token i attends to
            j <= i only where branches[j] is 0 or branches[i]; every branch's positions continue from the
            end of the prefix. Several continuations of one prompt then share one forward pass of it.
    """

    sequence_id: str
    group_id: str
    token_ids: NDArray[np.int32]
    roles: NDArray[np.int8]
    turns: NDArray[np.int32]
    logprobs: NDArray[np.float32]
    advantages: NDArray[np.float32]
    temperature: float = 1.0
    allowed: Allowed | None = None
    branches: NDArray[np.int32] | None = None

    def __len__(self) -> int:
        return len(self.token_ids)


def sequences_from_episode(episode: Episode, turn_advantages: Sequence[float]) -> list[TrainingSequence]:
    """The training sequences of an episode: a new one at every turn whose context restarts.

    Args:
        episode: the record.
        turn_advantages: one advantage per turn, spread over all response tokens of the turn.

    Raises:
        ValueError: another number of advantages than turns.
    """
    if len(turn_advantages) != len(episode.turns):
        raise ValueError(
            f"turn_advantages has {len(turn_advantages)} values for {len(episode.turns)} turns "
            f"of {episode.episode_id}: give one per turn"
        )
    pieces: list[list[Turn]] = []
    for turn in episode.turns:
        if turn.restart or not pieces:
            pieces.append([])
        pieces[-1].append(turn)
    return [_sequence(episode, piece, turn_advantages) for piece in pieces]


def _sequence(episode: Episode, piece: Sequence[Turn], turn_advantages: Sequence[float]) -> TrainingSequence:
    ids: list[NDArray[np.int32]] = []
    roles: list[NDArray[np.int8]] = []
    turns: list[NDArray[np.int32]] = []
    logprobs: list[NDArray[np.float32]] = []
    advantages: list[NDArray[np.float32]] = []
    for turn in piece:
        context, response = len(turn.context_ids), len(turn.response_ids)
        role = np.zeros(context + response, dtype=np.int8)
        start, end = turn.observation_span
        role[start:end] = Role.OBSERVATION
        role[context:] = Role.RESPONSE
        ids += [turn.context_ids, turn.response_ids]
        roles.append(role)
        turns.append(np.full(context + response, turn.index, dtype=np.int32))
        logprobs += [np.zeros(context, dtype=np.float32), turn.logprobs]
        advantages += [
            np.zeros(context, dtype=np.float32),
            np.full(response, turn_advantages[turn.index], dtype=np.float32),
        ]
    return TrainingSequence(
        sequence_id=f"{episode.episode_id}#{piece[0].index}",
        group_id=episode.group_id,
        token_ids=np.concatenate(ids).astype(np.int32),
        roles=np.concatenate(roles),
        turns=np.concatenate(turns),
        logprobs=np.concatenate(logprobs).astype(np.float32),
        advantages=np.concatenate(advantages),
        temperature=episode.temperature,
    )
