"""Observation tokens that a world model learns in the policy's own forward pass (PaW, arXiv:2606.02388)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from worldwise.algorithms.losses.aggregation import aggregate
from worldwise.algorithms.losses.world_model import world_model_losses
from worldwise.episodes.sequences import TrainingSequence
from worldwise.training.batching import Row, concatenate_marks
from worldwise.training.forward import Scores
from worldwise.training.metrics import Means
from worldwise.training.world_config import WorldModelConfig


@dataclass(frozen=True, slots=True)
class WorldBatch:
    """What of an optimizer step the world model learns; flat over the scored tokens of its rows.

    Attributes:
        observed: bool [N], the tokens that were observed; the policy has nothing to do with them.
        weights: float32 [N], share of each of them in the loss: its own weight over the number of all selected tokens
            of the step, those of weight 0 and those that the loss leaves alone included. So the loss fades as
            predictions get better, and never depends on how the step is cut.
        config: the loss.
    """

    observed: NDArray[np.bool_]
    weights: torch.Tensor
    config: WorldModelConfig

    def loss(self, places: NDArray[np.int64], scores: Scores, means: Means) -> torch.Tensor:
        """The loss of the observed tokens among some; a scalar, this micro-batch's share of the step's.

        Args:
            places: int64 [M], where the tokens are.
            scores: of these tokens.
            means: hears `world_probability`, `world_nats`, `world_open_share` and `world_tokens`.
        """
        which = torch.from_numpy(np.flatnonzero(self.observed[places])).to(scores.logprobs.device)
        logprobs = scores.logprobs[which]
        probabilities = logprobs.detach().exp()
        means.add("world_probability", probabilities)
        means.add("world_nats", -logprobs.detach())
        means.add("world_open_share", (probabilities <= self.config.rho).double())
        means.count("world_tokens", len(which))
        losses = world_model_losses(logprobs, self.config.loss, self.config.rho)
        return self.config.coefficient * aggregate(losses, self.weights[places][which])


def to_learn(sequence: TrainingSequence, config: WorldModelConfig | None) -> NDArray[np.int64] | None:
    """Positions of the observation tokens that are learned; None where there can be none."""
    if config is None or config.coefficient == 0.0 or sequence.world_weights is None:
        return None
    return np.flatnonzero(sequence.world_weights > 0.0)


def world_batch(
    sequences: Sequence[TrainingSequence], rows: Sequence[Row], config: WorldModelConfig | None, device: torch.device
) -> WorldBatch | None:
    """The world model's part of an optimizer step; None where nothing is learned.

    Args:
        sequences: all of the step.
        rows: those of them that go through the model.
        config: the loss; None = nothing is learned.
        device: of the model.
    """
    observed = concatenate_marks(rows)
    if config is None or not observed.any():
        return None
    weights = np.zeros(len(observed))
    start = 0
    for row in rows:
        if row.observed is not None and row.sequence.world_weights is not None:
            weights[start : start + len(row.scored)] = row.sequence.world_weights[row.scored]
        start += len(row.scored)
    weights /= max(1, sum(sequence.world_tokens for sequence in sequences))
    return WorldBatch(observed, torch.from_numpy(weights.astype(np.float32)).to(device), config)
