"""Samples of the machine that a run is on: processors, memory, disk, network, graphics cards."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

PREFIX = "system/"
"""What the names of samples begin with; MLflow shows them on a page of their own."""

_EVERY_S = 10.0

_logger = logging.getLogger(__name__)


def sample_machine(tell: Callable[[Mapping[str, float], int], None], ended: threading.Event, first: int) -> None:
    """Begins to sample in a daemon thread.

    MLflow's own monitor asks the server before every sample, and ends for good where that fails once.

    Args:
        tell: called with numbers and their step.
        ended: set when it is enough.
        first: number of the first step.
    """
    from mlflow import environment_variables

    variables: Any = environment_variables
    every = float(variables.MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL.get() or _EVERY_S)
    samples = int(variables.MLFLOW_SYSTEM_METRICS_SAMPLES_BEFORE_LOGGING.get() or 1)
    node = variables.MLFLOW_SYSTEM_METRICS_NODE_ID.get()
    prefix = f"{PREFIX}{node}/" if node else PREFIX
    monitors = _monitors()

    def sample() -> None:
        step = first
        while True:
            for _ in range(samples):
                for monitor in monitors:
                    monitor.collect_metrics()
                if ended.wait(every):
                    return
            numbers = {prefix + name: value for own in monitors for name, value in own.aggregate_metrics().items()}
            tell(numbers, step)
            step += 1
            for monitor in monitors:
                monitor.clear_metrics()

    def guarded() -> None:
        try:
            sample()
        except Exception as error:
            _logger.warning("the machine is not sampled any more: %s", error)

    threading.Thread(target=guarded, name="worldwise samples", daemon=True).start()


def _monitors() -> list[Any]:
    from mlflow.system_metrics.metrics.cpu_monitor import CPUMonitor
    from mlflow.system_metrics.metrics.disk_monitor import DiskMonitor
    from mlflow.system_metrics.metrics.gpu_monitor import GPUMonitor
    from mlflow.system_metrics.metrics.network_monitor import NetworkMonitor
    from mlflow.system_metrics.metrics.rocm_monitor import ROCMMonitor

    kinds: list[Any] = [CPUMonitor, DiskMonitor, NetworkMonitor]
    found = [kind() for kind in kinds]
    cards: list[Any] = [GPUMonitor, ROCMMonitor]
    for kind in cards:
        # Each says by an error of its own that there is no such card, or not what it takes to ask one.
        with suppress(Exception):
            found.append(kind())
            break
    return found
