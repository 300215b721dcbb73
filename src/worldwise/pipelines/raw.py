"""What nodes read outside of the catalog: files that others own, whose content decides what a node makes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from worldwise.generation.models import source_of as model_source
from worldwise.ledger.digests import DigestCache
from worldwise.stages.encoder import source_of as encoder_source
from worldwise.worlds.registry import make_family

Blocks = Mapping[str, Any]
"""Parameter block -> its validated value."""


def _model(blocks: Blocks) -> dict[str, Path | None]:
    return {"the model's folder": model_source(blocks["model"])}


def _games(values: Blocks, taken: Blocks) -> dict[str, Path | None]:
    """The games of the splits that a node may play: the evaluated ones if it evaluates, else that of training."""
    family = make_family(values["world"].name, values["world"])
    splits = taken["evaluate"].splits if "evaluate" in taken else [values["tasks"].split]
    return {f"the games of {split}": path for split in splits for path in family.files(split)}


def _encoder(blocks: Blocks) -> dict[str, Path | None]:
    return {"the encoder's folder": encoder_source(blocks["encoder"])}


def raw_digests(node: str, values: Blocks, taken: Blocks, cache: DigestCache) -> dict[str, str]:
    """What a node reads outside of the catalog -> digest of its content.

    Args:
        node: its name.
        values: all parameter blocks.
        taken: those that the node takes.
        cache: remembers digests of files that did not change.
    """
    found = _model(taken) if node == "prepare_base_model" else {}
    if "world" in taken:
        found |= _games(values, taken)
    if "encoder" in taken:
        found |= _encoder(taken)
    return {name: cache.digest(path) for name, path in found.items() if path is not None}
