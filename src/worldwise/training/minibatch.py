"""One optimizer step of policy training: rows, loss weights, advantages, log-probabilities, and the losses of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from worldwise.algorithms.losses.aggregation import aggregate, token_weights
from worldwise.algorithms.losses.choices import RatioLevel
from worldwise.algorithms.losses.kl import kl_tokens
from worldwise.algorithms.losses.mismatch import mismatch_weights
from worldwise.algorithms.losses.policy import LOG_RATIO_LIMIT, PolicyLoss, clipped_surrogate
from worldwise.episodes.sequences import Role, TrainingSequence
from worldwise.training.batching import Row, concatenate_marks, make_row
from worldwise.training.config import LearnerConfig
from worldwise.training.critic import Targets
from worldwise.training.errors import LearnerError
from worldwise.training.forward import Scores
from worldwise.training.metrics import Means
from worldwise.training.world_batch import WorldBatch, to_learn, world_batch
from worldwise.training.world_config import WorldModelConfig


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
        sampler_logprobs: float32 [N], nats, as recorded; None where no mismatch is corrected.
        mismatch_units: int64 [N], sequence of each token where the correction is per sequence; None otherwise.
        targets: what the critic should say of the tokens; None without one.
        tokens: response tokens of all rows, the skipped ones included.
        world: the tokens that a world model learns and the policy has nothing to do with; None = none.
    """

    rows: list[Row]
    sequences: int
    weights: torch.Tensor
    advantages: torch.Tensor
    old_logprobs: torch.Tensor | None
    units: NDArray[np.int64] | None
    sampler_logprobs: torch.Tensor | None = None
    mismatch_units: NDArray[np.int64] | None = None
    targets: Targets | None = None
    tokens: int = 0
    world: WorldBatch | None = None

    def sampled(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Which of some tokens were sampled, as indices into `places`."""
        return np.arange(len(places)) if self.world is None else np.flatnonzero(~self.world.observed[places])


def policy_batch(
    sequences: Sequence[TrainingSequence],
    config: LearnerConfig,
    device: torch.device,
    world_model: WorldModelConfig | None = None,
) -> PolicyBatch:
    """Prepare one optimizer step.

    Args:
        sequences: of the step.
        config: the settings.
        device: of the model.
        world_model: loss of marked observation tokens; None leaves them alone.

    Raises:
        LearnerError: no response token at all, an advantage that is not finite (or a recorded log-probability,
            where a mismatch is corrected), a malformed row.
    """
    everything = [make_row(own, responses(own), observed=to_learn(own, world_model)) for own in sequences]
    observed = concatenate_marks(everything)
    units = number_units(everything, "sequence")
    count = len(units) - int(observed.sum())
    if count == 0:
        raise LearnerError("the sequences have no response tokens: there is nothing to train on")
    advantages = concatenate(row.sequence.advantages[row.scored] for row in everything)
    if not np.isfinite(advantages).all():
        raise LearnerError("an advantage is not finite: leave out episodes without a valid reward")
    others = kl_in_loss(config) or config.entropy_coefficient > 0.0 or config.critic is not None
    keep = [
        others
        or not config.skip_zero_advantage
        or row.observed is not None
        or bool(row.sequence.advantages[row.scored].any())
        for row in everything
    ]
    rows = [row for row, kept in zip(everything, keep, strict=True) if kept]
    tokens = np.repeat(keep, [len(row.scored) for row in everything])
    weights = np.zeros(len(units))
    weights[~observed] = token_weights(units[~observed], config.aggregation, config.aggregation_length)
    old = concatenate(row.sequence.logprobs[row.scored] for row in everything)
    recorded = _tensor(old[tokens], device)
    corrects = config.mismatch != "none"
    if corrects and not np.isfinite(old).all():
        raise LearnerError(
            f"mismatch is {config.mismatch} and a recorded log-probability is not finite: collect episodes with the "
            "sampler's log-probabilities, or set mismatch to none"
        )
    return PolicyBatch(
        rows=rows,
        sequences=len(everything),
        weights=_tensor(weights[tokens], device),
        advantages=_tensor(advantages[tokens], device),
        old_logprobs=recorded,
        units=None if config.ratio == "token" else number_units(rows, config.ratio),
        sampler_logprobs=recorded if corrects else None,
        mismatch_units=number_units(rows, "sequence") if corrects and config.mismatch_level == "sequence" else None,
        targets=None if config.critic is None else _targets(rows, device),
        tokens=count,
        world=world_batch(sequences, rows, world_model, device),
    )


def policy_losses(
    batch: PolicyBatch,
    places: NDArray[np.int64],
    scores: Scores,
    reference: torch.Tensor | None,
    config: LearnerConfig,
    means: Means,
) -> dict[str, torch.Tensor]:
    """The losses of one micro-batch, as shares of the step's, by name; their metrics go to `means`.

    Args:
        batch: the optimizer step.
        places: int64 [M], where the micro-batch's tokens are in it; all tokens of a row together.
        scores: of these tokens under the present weights.
        reference: float32 [M], nats, of these tokens under the reference; None without a KL term.
        config: the settings.
        means: collects the metrics that `Learner.update` describes.
    """
    everything, all_places = scores, places
    if batch.world is not None:
        sampled = batch.sampled(places)
        which = torch.from_numpy(sampled).to(scores.logprobs.device)
        scores, places = scores.part(which), places[sampled]
        reference = None if reference is None else reference[which]
    weights, advantages = batch.weights[places], batch.advantages[places]
    current = scores.logprobs.detach()
    old = current if batch.old_logprobs is None else batch.old_logprobs[places]
    policy = clipped_surrogate(
        scores.logprobs,
        old,
        advantages,
        clip_low=config.clip_low,
        clip_high=config.clip_high,
        dual_clip=config.dual_clip,
        units=_units_here(batch.units, places, old.device),
    )
    losses = policy.losses
    if batch.sampler_logprobs is not None:
        units = _units_here(batch.mismatch_units, places, old.device)
        losses = losses * _correction(old, batch.sampler_logprobs[places], units, config, means)
    parts = {"policy_loss": aggregate(losses, weights)}
    if reference is not None:
        kl = kl_tokens(scores.logprobs, reference, config.kl_estimator, old)
        parts["kl_loss"] = config.kl_coefficient * aggregate(kl, weights)
        means.add("kl_reference", kl_tokens(current, reference, "k3"))
    if config.entropy_coefficient > 0.0:
        parts["entropy_loss"] = -config.entropy_coefficient * aggregate(scores.entropies, weights)
    _add_metrics(policy, current, old, means)
    means.add("entropy", scores.entropies)
    means.add("advantage_size", advantages.abs())
    if batch.world is not None:
        parts["world_loss"] = batch.world.loss(all_places, everything, means)
    return parts


def _correction(
    old: torch.Tensor, sampler: torch.Tensor, units: torch.Tensor | None, config: LearnerConfig, means: Means
) -> torch.Tensor:
    """[M]: what the policy loss of each token is multiplied by."""
    correction = mismatch_weights(old, sampler, config.mismatch, cap=config.mismatch_cap, units=units)
    means.add("mismatch_weight_mean", correction.weights)
    means.add("mismatch_share", correction.changed)
    means.add("mismatch_kl", kl_tokens(sampler, old, "k3"))
    return correction.weights


def _add_metrics(policy: PolicyLoss, current: torch.Tensor, old: torch.Tensor, means: Means) -> None:
    token_ratios = (current - old).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp()
    means.add("kl_old", kl_tokens(old, current, "k3"))
    means.add("ratio_mean", token_ratios)
    means.most("ratio_max", token_ratios.max())
    means.add("clip_fraction", policy.clipped)
    means.add("dual_clip_fraction", policy.dual_clipped)


def _units_here(
    units: NDArray[np.int64] | None, places: NDArray[np.int64], device: torch.device
) -> torch.Tensor | None:
    """int64 [M]: the units of the tokens at `places`, numbered from 0."""
    if units is None:
        return None
    _, here = np.unique(units[places], return_inverse=True)
    return torch.from_numpy(here).to(device)


def loss_names(config: LearnerConfig, batch: PolicyBatch) -> list[str]:
    """The losses that a step adds up, as `Learner.update` reports them."""
    names = ["policy_loss"]
    names += ["kl_loss"] if kl_in_loss(config) else []
    names += ["entropy_loss"] if config.entropy_coefficient > 0.0 else []
    names += ["world_loss"] if batch.world is not None else []
    return names + (["value_loss"] if config.critic is not None else [])


def kl_in_loss(config: LearnerConfig) -> bool:
    """Whether the divergence from the reference is a term of the loss."""
    return config.kl_coefficient > 0.0 and config.kl_in == "loss"


def _targets(rows: Sequence[Row], device: torch.device) -> Targets:
    found = []
    for name in ("returns", "values"):
        given = [row.sequence.returns if name == "returns" else row.sequence.values for row in rows]
        if any(own is None for own in given):
            raise LearnerError(
                f"the learner has a critic and a sequence has no {name}: set policy.algorithm to ppo, or critic to null"
            )
        found.append(concatenate(own[row.scored] for own, row in zip(given, rows, strict=True) if own is not None))
    return Targets(_tensor(found[0], device), _tensor(found[1], device))


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
