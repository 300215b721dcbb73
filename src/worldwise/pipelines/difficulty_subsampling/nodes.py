"""Nodes of difficulty subsampling."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from worldwise.episodes.transitions import Transition
from worldwise.generation.models import ModelConfig
from worldwise.pipelines.conversion import scores_from_frame, scores_to_frame
from worldwise.pipelines.support import in_context, stored
from worldwise.stages import subsample as stage
from worldwise.stages.actor import StageContext, load_checkpoint
from worldwise.stages.encoder import EncoderConfig, SentenceEncoder


def split_transitions(
    transitions: list[Transition], subsample: stage.SubsampleConfig, seed: int
) -> tuple[list[Transition], list[Transition]]:
    """The part to weed, and the part that trains the auxiliary model."""
    return stage.split_transitions(transitions, subsample, seed)


@in_context
def finetune_auxiliary(
    base_model: Path,
    transitions_aux: list[Transition],
    subsample: stage.SubsampleConfig,
    context: StageContext,
    model: ModelConfig,
) -> tuple[Path, dict[str, Any]]:
    """A copy of the base model that has seen a tenth of the transitions."""
    start = load_checkpoint(base_model, "base", model)
    trained, curve = stage.finetune_auxiliary(start, transitions_aux, subsample, context)
    return stored(trained), {"rows": curve, "summary": {}}


@in_context
def score_transitions(
    auxiliary_model: Path,
    transitions_main: list[Transition],
    subsample: stage.SubsampleConfig,
    encoder: EncoderConfig,
    context: StageContext,
    model: ModelConfig,
) -> pd.DataFrame:
    """How well the auxiliary model predicts every transition."""
    auxiliary = load_checkpoint(auxiliary_model, stage.AUXILIARY, model)
    scores = stage.score_transitions(auxiliary, transitions_main, subsample, context, SentenceEncoder(encoder))
    return scores_to_frame(scores)


def subsample_transitions(
    transitions_main: list[Transition],
    transitions_aux: list[Transition],
    scored_transitions: pd.DataFrame,
    subsample: stage.SubsampleConfig,
    seed: int,
) -> tuple[list[Transition], dict[str, float], dict[str, Any]]:
    """The transitions that stay, the threshold in force, and what was measured."""
    scores = scores_from_frame(scored_transitions)
    kept, report = stage.subsample_transitions(transitions_main, transitions_aux, scores, subsample, seed)
    return kept, {"tau_d": report.tau_d}, report.model_dump(mode="json")
