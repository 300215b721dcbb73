"""Keeps what a node has finished when storing it fails or is stopped."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from kedro.framework.hooks import hook_impl
from kedro.io import DataCatalog

from worldwise.datasets.folder import FolderDataset
from worldwise.ledger.publish import is_scratch, keep_scratch

_logger = logging.getLogger(__name__)


class UnstoredHooks:
    """Remembers the prepared folders that a node hands over until they are stored."""

    def __init__(self) -> None:
        self._waiting: dict[str, Path] = {}

    @hook_impl
    def before_pipeline_run(self) -> None:
        self._waiting.clear()

    @hook_impl
    def after_node_run(self, outputs: dict[str, Any]) -> None:
        self._waiting |= {name: data for name, data in outputs.items() if isinstance(data, Path) and is_scratch(data)}

    @hook_impl
    def after_dataset_saved(self, dataset_name: str) -> None:
        self._waiting.pop(dataset_name, None)

    @hook_impl
    def on_pipeline_error(self, catalog: DataCatalog) -> None:
        for name, folder in self._waiting.items():
            dataset = catalog.get(name)
            # What failed itself has been kept already, and its error says so.
            if folder.is_dir() and isinstance(dataset, FolderDataset) and not dataset.target().exists():
                _logger.error("%s was not stored; %s", name, keep_scratch(folder, dataset.target()))
        self._waiting.clear()
