"""Node of the base model."""

from __future__ import annotations

from pathlib import Path

from worldwise.ledger.publish import scratch_folder
from worldwise.ledger.workspace import workspace
from worldwise.stages.base_model.build import BaseModelConfig
from worldwise.stages.base_model.build import build_base_model as build
from worldwise.tracking.listeners import reporter


def build_base_model(base_model: BaseModelConfig) -> Path:
    """The folder of a base model made from nothing: play, tokenizer, training, card."""
    folder = scratch_folder("base_model")
    build(base_model, folder, reporter().log, workspace())
    return folder
