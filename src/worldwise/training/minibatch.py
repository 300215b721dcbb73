"""What one optimizer step of policy training is about: rows, loss weights, advantages, old log-probabilities."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from worldwise.algorithms.losses.aggregation import token_weights
from worldwise.algorithms.losses.choices import RatioLevel
from worldwise.episodes.sequences import Role, TrainingSequence
from worldwise.training.batching import Row, make_row
from worldwise.training.config import LearnerConfig
from worldwise.training.errors import LearnerError


@dataclass(frozen=True, slots=True)
class PolicyBatch:
    """The rows of one optimizer step and, flat over their scored tokens, what the losses need.

    Attributes:
        rows: those that go through the model.
        sequences: number of rows that the step is about, the skipped ones included.
        weights: float32 [N], share of each token in the loss. The shares of all rows, skipped ones
            included, are taken together: the denominator is global.
        advantages: float32 [N].
        old_logprobs: float32 [N], nats, or None: those of the step's own forward pass.
        units: int64 [N], what the importance ratio belongs to; None for token ratios.
    """

    rows: list[Row]
    sequences: int
    weights: torch.Tensor
    advantages: torch.Tensor
    old_logprobs: torch.Tensor | None
    units: NDArray[np.int64] | None


def policy_batch(sequences: Sequence[TrainingSequence], config: LearnerConfig, device: torch.device) -> PolicyBatch:
    """Prepare one optimizer step.

    Raises:
        LearnerError: no response token at all, an advantage that is not finite, a malformed row.
    """
    everything = [make_row(sequence, responses(sequence)) for sequence in sequences]
    units = number_units(everything, "sequence")
    if len(units) == 0:
        raise LearnerError("the sequences have no response tokens: there is nothing to train on")
    advantages = concatenate(row.sequence.advantages[row.scored] for row in everything)
    if not np.isfinite(advantages).all():
        raise LearnerError("an advantage is not finite: leave out episodes without a valid reward")
    others = config.kl_coefficient > 0.0 or config.entropy_coefficient > 0.0
    keep = [
        others or not config.skip_zero_advantage or bool(row.sequence.advantages[row.scored].any())
        for row in everything
    ]
    rows = [row for row, kept in zip(everything, keep, strict=True) if kept]
    tokens = np.repeat(keep, [len(row.scored) for row in everything])
    weights = token_weights(units, config.aggregation, config.aggregation_length)
    old = concatenate(row.sequence.logprobs[row.scored] for row in everything)
    return PolicyBatch(
        rows=rows,
        sequences=len(everything),
        weights=_tensor(weights[tokens], device),
        advantages=_tensor(advantages[tokens], device),
        old_logprobs=_tensor(old[tokens], device),
        units=None if config.ratio == "token" else number_units(rows, config.ratio),
    )


def split_by_group(sequences: Sequence[TrainingSequence], parts: int) -> list[list[TrainingSequence]]:
    """Mini-batches of near-equal numbers of groups, in the groups' order of appearance; no group is cut.

    Fewer groups than `parts` give fewer mini-batches. Splitting by group keeps the number of optimizer
    steps independent of how long the episodes are.
    """
    groups: dict[str, list[TrainingSequence]] = {}
    for sequence in sequences:
        groups.setdefault(sequence.group_id, []).append(sequence)
    members = list(groups.values())
    bounds = np.linspace(0, len(members), min(parts, len(members)) + 1).round().astype(int).tolist()
    return [[s for group in members[start:stop] for s in group] for start, stop in pairwise(bounds)]


def responses(sequence: TrainingSequence) -> NDArray[np.int64]:
    """int64 [N]: positions of the response tokens."""
    return np.flatnonzero(sequence.roles == Role.RESPONSE)


def role_weights(sequence: TrainingSequence, observation_weight: float) -> NDArray[np.float32]:
    """float32 [T]: 1 on response tokens, `observation_weight` on observation tokens, 0 elsewhere.

    A first token has nothing before it that could predict it and gets 0.
    """
    weights = np.zeros(len(sequence), dtype=np.float32)
    weights[sequence.roles == Role.OBSERVATION] = observation_weight
    weights[sequence.roles == Role.RESPONSE] = 1.0
    weights[:1] = 0.0
    return weights


def number_units(rows: Sequence[Row], level: RatioLevel) -> NDArray[np.int64]:
    """int64 [N], flat over the rows' scored tokens: number of the token's sequence, or turn in it.

    Every branch of a tree row is a sequence of its own.
    """
    numbers: list[NDArray[np.int64]] = []
    start = 0
    for row in rows:
        branches = row.sequence.branches
        branch = np.zeros(len(row.scored), np.int64) if branches is None else branches[row.scored]
        turn = row.sequence.turns[row.scored] if level == "turn" else np.zeros_like(branch)
        _, own = np.unique(np.stack([branch, turn]), axis=1, return_inverse=True)
        numbers.append(start + own.reshape(-1))
        start += int(own.max()) + 1 if len(own) else 0
    return concatenate(numbers).astype(np.int64)


def concatenate(arrays: Iterable[NDArray[Any]]) -> NDArray[Any]:
    """The arrays in a row; an empty array if there are none."""
    listed = list(arrays)
    return np.concatenate(listed) if listed else np.zeros(0)


def _tensor(values: NDArray[Any], device: torch.device) -> torch.Tensor:
    return torch.from_numpy(values.astype(np.float32)).to(device)
