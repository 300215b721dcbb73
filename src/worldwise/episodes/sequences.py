"""Training sequences: the learner's only food, derived from episodes and predictions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

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
        turns: int32 [T], turn index in the episode that the token belongs to, -1 for none. An observation
            belongs to the turn before whose response it stands, so to the one after the action it answers.
        logprobs: float32 [T], nats, behaviour log-probability of response tokens, 0 elsewhere.
        advantages: float32 [T], one value per response token, 0 elsewhere; NaN-free.
        temperature: the sampling temperature the log-probabilities belong to (> 0).
        allowed: per token the ids that restricted decoding allowed there, or None
            (None as a whole: nothing was restricted).
        branches: int32 [T] or None. A tree row: 0 = shared prefix, k >= 1 = branch k. Token i attends to
            j <= i only where branches[j] is 0 or branches[i]; every branch's positions continue from the
            end of the prefix. Several continuations of one prompt then share one forward pass of it.
        values, returns: float32 [T] or None. What a critic said of the response tokens at the time of collection, and
            what it should have said; 0 elsewhere.
        world_weights: float32 [T] or None. Weight of each observation token that a world model is to learn from, beside
            the policy; 0 elsewhere.
        world_targets: int32 [T] or None. What is to be predicted at those places instead of the tokens themselves.
        world_tokens: observation tokens that were selected for a world model, those of weight 0 included.
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
    values: NDArray[np.float32] | None = None
    returns: NDArray[np.float32] | None = None
    world_weights: NDArray[np.float32] | None = None
    world_targets: NDArray[np.int32] | None = None
    world_tokens: int = 0

    def __len__(self) -> int:
        return len(self.token_ids)


class Following(Protocol):
    """Tokens that show an observation behind a response: `agents.agent.Context` is one."""

    @property
    def ids(self) -> NDArray[np.int32]: ...

    @property
    def observation_span(self) -> tuple[int, int]: ...


def sequences_from_episode(
    episode: Episode,
    turn_advantages: Sequence[float],
    commands: Callable[[Sequence[str]], Sequence[Sequence[int]]] | None = None,
    following: Callable[[Turn], Following] | None = None,
) -> list[TrainingSequence]:
    """The training sequences of an episode: a new one at every turn whose context restarts.

    Args:
        episode: the record.
        turn_advantages: one advantage per turn, spread over all response tokens of the turn.
        commands: the responses that say one of given admissible commands (`Agent.allowed_sequences`); needed
            where decoding was restricted, to know what each token was chosen from.
        following: what shows a turn's next observation (`Agent.following_context`). If given, a sequence
            whose last turn did not end the episode shows its outcome at the end, as PaW needs in a `window`
            context. In a `conversation` that only grew it adds nothing before the episode's last turn.

    Raises:
        ValueError: another number of advantages than turns, or restricted decoding without `commands`.
    """
    if len(turn_advantages) != len(episode.turns):
        raise ValueError(
            f"turn_advantages has {len(turn_advantages)} values for {len(episode.turns)} turns "
            f"of {episode.episode_id}: give one per turn"
        )
    if episode.restricted and commands is None:
        raise ValueError(
            f"decoding was restricted in {episode.episode_id}: give commands=agent.allowed_sequences, or the "
            "log-probabilities would belong to another distribution"
        )
    pieces: list[list[Turn]] = []
    for turn in episode.turns:
        if turn.restart or not pieces:
            pieces.append([])
        pieces[-1].append(turn)
    sequences = []
    for piece in pieces:
        last = piece[-1]
        shown = None if following is None or last.terminated or last.truncated else following(last)
        choices = _choices(piece, commands, shown) if commands is not None and episode.restricted else None
        sequences.append(_sequence(episode, piece, turn_advantages, shown, choices))
    return sequences


def allowed_ids(sequences: Sequence[Sequence[int]], response_ids: Sequence[int]) -> list[NDArray[np.int32]]:
    """The tokens that restricted decoding could choose from at each position of a response.

    Args:
        sequences: the allowed responses, each with its end token.
        response_ids: the response that was sampled, R tokens.

    Returns:
        R sorted int32 arrays.

    Raises:
        ValueError: the response is not one of the sequences, nor the beginning of one.
    """
    left = list(sequences)
    choices: list[NDArray[np.int32]] = []
    for position, token in enumerate(response_ids):
        tokens = {sequence[position] for sequence in left if len(sequence) > position}
        if token not in tokens:
            raise ValueError(
                f"token {token} at position {position} of a response was not allowed there: the record's "
                "admissible commands and the agent do not belong together"
            )
        choices.append(np.asarray(sorted(tokens), dtype=np.int32))
        left = [sequence for sequence in left if len(sequence) > position and sequence[position] == token]
    return choices


def _choices(
    piece: Sequence[Turn],
    commands: Callable[[Sequence[str]], Sequence[Sequence[int]]],
    shown: Following | None,
) -> Allowed:
    choices: list[NDArray[np.int32] | None] = []
    for turn in piece:
        choices += [None] * len(turn.context_ids)
        choices += allowed_ids(commands(turn.admissible or ()), turn.response_ids.tolist())
    return choices + [None] * (0 if shown is None else len(shown.ids))


def _sequence(
    episode: Episode,
    piece: Sequence[Turn],
    turn_advantages: Sequence[float],
    shown: Following | None,
    choices: Allowed | None,
) -> TrainingSequence:
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
    if shown is not None:
        role = np.zeros(len(shown.ids), dtype=np.int8)
        role[slice(*shown.observation_span)] = Role.OBSERVATION
        ids.append(shown.ids)
        roles.append(role)
        turns.append(np.full(len(role), piece[-1].index + 1, dtype=np.int32))
        logprobs.append(np.zeros(len(role), dtype=np.float32))
        advantages.append(np.zeros(len(role), dtype=np.float32))
    return TrainingSequence(
        sequence_id=f"{episode.episode_id}#{piece[0].index}",
        group_id=episode.group_id,
        token_ids=np.concatenate(ids).astype(np.int32),
        roles=np.concatenate(roles),
        turns=np.concatenate(turns),
        logprobs=np.concatenate(logprobs).astype(np.float32),
        advantages=np.concatenate(advantages),
        temperature=episode.temperature,
        allowed=choices,
    )
