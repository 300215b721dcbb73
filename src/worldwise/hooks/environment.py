"""Prepares the process: torch's threads as the parameter block `compute` has them, and quiet libraries."""

from __future__ import annotations

import os

from kedro.framework.hooks import hook_impl
from kedro.io import DataCatalog


class EnvironmentHooks:
    """Runs before the first node."""

    @hook_impl
    def before_pipeline_run(self, catalog: DataCatalog) -> None:
        # Commands that run nothing need not wait for the parameter blocks.
        from worldwise.pipelines.parameters import ComputeConfig

        quiet_libraries()
        # Kedro hands out the typed block where a node of the run takes it, and the plain one elsewhere.
        threads = ComputeConfig.model_validate(catalog.load("params:compute")).threads
        if threads is not None:
            import torch

            torch.set_num_threads(threads)


def quiet_libraries() -> None:
    """No warnings of forked tokenizers, no bars for files that load in a blink."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
