"""Ends a run in order on Ctrl-C and SIGTERM."""

from __future__ import annotations

from kedro.framework.hooks import hook_impl

from worldwise.tracking.interruption import Interruption


class InterruptHooks:
    """Listens for signals while a pipeline runs."""

    def __init__(self) -> None:
        self._interruption = Interruption()

    @hook_impl
    def before_pipeline_run(self) -> None:
        self._interruption.install()

    @hook_impl(tryfirst=True)
    def before_dataset_loaded(self) -> None:
        self._interruption.check()

    @hook_impl(tryfirst=True)
    def before_node_run(self) -> None:
        self._interruption.check()

    @hook_impl
    def after_pipeline_run(self) -> None:
        self._interruption.remove()

    @hook_impl
    def on_pipeline_error(self) -> None:
        self._interruption.remove()
