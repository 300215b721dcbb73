"""Difficulty subsampling of transitions (RWML, arXiv 2602.05842)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, Self

import numpy as np
from pydantic import Field, model_validator

from worldwise.algorithms.rewards.embedding import MAX_DISTANCE
from worldwise.algorithms.rewards.text import exact
from worldwise.config import FrozenConfig, derive_seed
from worldwise.episodes.transitions import Transition
from worldwise.generation.protocol import Sampling
from worldwise.stages.actor import Checkpoint, StageContext, distinct, make_actor
from worldwise.stages.difficulty import (
    Calibration,
    DifficultyReport,
    calibrate,
    is_easy,
    keep_mask,
    pass_rates,
    share_by_kind,
    split_tasks,
)
from worldwise.stages.encoder import Encoder, distances
from worldwise.stages.errors import StageError
from worldwise.stages.predicting import predict
from worldwise.stages.supervised import Curve, SupervisedConfig, train_supervised

AUXILIARY = "auxiliary"
_logger = logging.getLogger(__name__)


class SubsampleConfig(FrozenConfig):
    """How transitions are weeded.

    Attributes:
        aux_share: share of the tasks whose transitions train the auxiliary model, (0, 1); 0.1 in the paper.
        max_transitions: most transitions to score, chosen by seed; None = all.
        tries: predictions per transition (K, 10 in the paper).
        temperature, max_tokens: how they are sampled.
        tau_d: distance below which a prediction passes, in (0, 2] (0.10 in the paper with
            Qwen3-Embedding-8B), or `calibrate` to reach `easy_target`: cosine scales differ between encoders.
        tau_easy: pass rate above which a transition is easy, in [0, 1); 0 = solved at least once
            (the paper). `calibrate` (only with a calibrated tau_d) also raises it where no tau_d is
            small enough, because a model predicts many observations to the letter.
        easy_target, easy_low, easy_high: wanted easy share and the band that counts as reached
            (about 30 % in the paper; 27.5 % by its counts).
        keep_probability: of an easy transition (p, 0.1 in the paper), [0, 1].
        sft: training of the auxiliary model.
    """

    aux_share: float = Field(0.1, gt=0.0, lt=1.0)
    max_transitions: int | None = Field(None, ge=1)
    tries: int = Field(10, ge=1)
    temperature: float = Field(1.0, gt=0.0, le=10.0)
    max_tokens: int = Field(128, ge=8)
    tau_d: Literal["calibrate"] | float = "calibrate"
    tau_easy: Literal["calibrate"] | float = 0.0
    easy_target: float = Field(0.285, gt=0.0, lt=1.0)
    easy_low: float = Field(0.27, ge=0.0, lt=1.0)
    easy_high: float = Field(0.30, gt=0.0, le=1.0)
    keep_probability: float = Field(0.1, ge=0.0, le=1.0)
    sft: SupervisedConfig = Field(default_factory=SupervisedConfig)

    @model_validator(mode="after")
    def _ranges(self) -> Self:
        if self.tau_d != "calibrate" and not 0.0 < self.tau_d <= MAX_DISTANCE:
            raise ValueError(f"tau_d is {self.tau_d}: give 'calibrate' or a distance in (0, 2]")
        if self.tau_easy == "calibrate":
            if self.tau_d != "calibrate":
                raise ValueError("tau_easy is 'calibrate' but tau_d is not: set tau_d to 'calibrate' as well")
        elif not 0.0 <= self.tau_easy < 1.0:
            raise ValueError(f"tau_easy is {self.tau_easy}: give 'calibrate' or a pass rate in [0, 1)")
        if not self.easy_low <= self.easy_target <= self.easy_high:
            raise ValueError(
                f"easy_target is {self.easy_target} outside of easy_low..easy_high = "
                f"{self.easy_low}..{self.easy_high}: put it between them"
            )
        return self


@dataclass(frozen=True, slots=True)
class TransitionScore:
    """How well the auxiliary model predicts a transition.

    Attributes:
        transition_id: which one.
        kind: the world's kind of it.
        distances: one per try, 1 - cos in [0, 2]; `inf` for a try without a prediction.
        exact: one per try, the text was right to the letter.
    """

    transition_id: str
    kind: str
    distances: tuple[float, ...]
    exact: tuple[bool, ...]


def split_transitions(
    transitions: Sequence[Transition], config: SubsampleConfig, seed: int
) -> tuple[list[Transition], list[Transition]]:
    """Split by task (never by turn: turns of one game share its texts).

    Returns:
        The main part, at most `max_transitions` of it, and the part that trains the auxiliary model.

    Raises:
        StageError: fewer than two tasks.
    """
    try:
        chosen = split_tasks([transition.task_id for transition in transitions], config.aux_share, seed)
    except ValueError as error:
        raise StageError(f"subsampling cannot split the transitions: {error}") from error
    auxiliary = [transition for transition in transitions if transition.task_id in chosen]
    main = [transition for transition in transitions if transition.task_id not in chosen]
    if config.max_transitions is not None and len(main) > config.max_transitions:
        order = sorted(range(len(main)), key=lambda i: derive_seed(seed, "score", main[i].transition_id))
        main = [main[index] for index in sorted(order[: config.max_transitions])]
    return main, auxiliary


def finetune_auxiliary(
    checkpoint: Checkpoint, transitions: Sequence[Transition], config: SubsampleConfig, context: StageContext
) -> tuple[Checkpoint, Curve]:
    """Fine-tune the auxiliary model on its part of the transitions; changes the given model in place."""
    return train_supervised(checkpoint, transitions, config.sft, context, AUXILIARY)


def score_transitions(
    auxiliary: Checkpoint,
    transitions: Sequence[Transition],
    config: SubsampleConfig,
    context: StageContext,
    encoder: Encoder,
) -> list[TransitionScore]:
    """K sampled predictions of every transition and their distances to what happened."""
    tries = config.tries
    sampling = Sampling(temperature=config.temperature, max_tokens=config.max_tokens)
    seed = derive_seed(context.seed, "score_transitions")
    with make_actor(auxiliary, context, config.max_tokens) as actor:
        samples = predict(
            actor,
            transitions,
            tries,
            sampling,
            seed,
            lambda done, total: context.reporter.progress(done, total, f"{tries} predictions each"),
        )
    texts = [sample.text for own in samples for sample in own]
    targets = [transition.next_observation for transition in transitions for _ in range(tries)]
    found = distances(encoder, texts, targets).reshape(len(transitions), tries)
    right = np.reshape([exact(text, target) for text, target in zip(texts, targets, strict=True)], found.shape)
    return [
        TransitionScore(
            transition.transition_id,
            transition.kind,
            tuple(float(value) for value in row),
            tuple(bool(value) for value in hits),
        )
        for transition, row, hits in zip(transitions, found, right, strict=True)
    ]


def subsample_transitions(
    main: Sequence[Transition],
    auxiliary: Sequence[Transition],
    scores: Sequence[TransitionScore],
    config: SubsampleConfig,
    seed: int,
) -> tuple[list[Transition], DifficultyReport]:
    """Keep all hard transitions and easy ones with a small probability; the kept ones carry their pass rate.

    Args:
        main: the scored transitions.
        auxiliary: those that trained the auxiliary model (for the report).
        scores: of `main`, in its order.
        config, seed: settings.

    Raises:
        StageError: the scores belong to other transitions, or there are none.
    """
    if [score.transition_id for score in scores] != [transition.transition_id for transition in main] or not main:
        raise StageError(
            f"subsampling got {len(scores)} scores for {len(main)} transitions, or those of others: "
            "score the same transitions again"
        )
    measured = np.asarray([score.distances for score in scores], dtype=np.float64)
    found = _thresholds(measured, config)
    rates = pass_rates(measured, found.tau_d)
    easy = is_easy(rates, found.tau_easy)
    keep = keep_mask([score.transition_id for score in scores], easy, config.keep_probability, seed)
    if not found.in_band:
        _logger.warning(
            "%.1f %% of the transitions are easy, outside of the wanted %.0f-%.0f %% (tau_d %g, tau_easy %g)",
            100 * found.easy_share,
            100 * config.easy_low,
            100 * config.easy_high,
            found.tau_d,
            found.tau_easy,
        )
    report = DifficultyReport(
        tasks_main=len(distinct([transition.task_id for transition in main])),
        tasks_auxiliary=len(distinct([transition.task_id for transition in auxiliary])),
        transitions_main=len(main),
        transitions_auxiliary=len(auxiliary),
        tries=measured.shape[1],
        tau_d=found.tau_d,
        tau_easy=found.tau_easy,
        easy_share=found.easy_share,
        in_band=found.in_band,
        mean_pass_rate=float(rates.mean()),
        exact_rate=float(np.mean([score.exact for score in scores])),
        parse_rate=float(np.isfinite(measured).mean()),
        kept=int(keep.sum()),
        kept_easy=int((keep & easy).sum()),
        easy_by_kind=dict(share_by_kind([score.kind for score in scores], easy)),
    )
    rated = [replace(transition, pass_rate=float(rate)) for transition, rate in zip(main, rates, strict=True)]
    return [transition for transition, stays in zip(rated, keep, strict=True) if stays], report


def _thresholds(measured: np.typing.NDArray[np.float64], config: SubsampleConfig) -> Calibration:
    band = (config.easy_low, config.easy_high)
    if config.tau_d == "calibrate":
        tau_easy = None if config.tau_easy == "calibrate" else config.tau_easy
        return calibrate(measured, config.easy_target, band, tau_easy)
    assert config.tau_easy != "calibrate"
    share = float(is_easy(pass_rates(measured, config.tau_d), config.tau_easy).mean())
    return Calibration(config.tau_d, config.tau_easy, share, band[0] <= share <= band[1])
