"""The supervised control of RWML: the same transitions, cross-entropy instead of a reward (arXiv 2602.05842)."""

from __future__ import annotations

from collections.abc import Sequence

from worldwise.episodes.transitions import Transition
from worldwise.stages.actor import Checkpoint, StageContext
from worldwise.stages.supervised import Curve, SupervisedConfig, train_supervised

VERSION = "wm_sft"


def finetune_world_model(
    checkpoint: Checkpoint, transitions: Sequence[Transition], config: SupervisedConfig, context: StageContext
) -> tuple[Checkpoint, Curve]:
    """Fine-tune a model on true next observations; see `train_supervised`."""
    return train_supervised(checkpoint, transitions, config, context, VERSION)
