"""A tracking store that never stops a run: after its first failure it warns once and stays quiet."""

from __future__ import annotations

import logging
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from worldwise.tracking.caller import Caller
from worldwise.tracking.config import MlflowConfig
from worldwise.tracking.flatten import numbers
from worldwise.tracking.interruption import RunInterrupted
from worldwise.tracking.process import HOST, has_ended, process_tags

if TYPE_CHECKING:
    from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor
    from mlflow.tracking import MlflowClient

Status = Literal["FINISHED", "FAILED", "KILLED"]

Entry = TypeVar("Entry")
Result = TypeVar("Result")

_logger = logging.getLogger(__name__)
_PARENT = "mlflow.parentRunId"
_BATCH = 90
_LONGEST_PARAM = 5000
_FIRST_S = 60.0
"""Seconds for the first call, which may have to make a database."""


class TrackingStore:
    """Runs in MLflow, by plain calls of its client.

    Curves are handed over in the background (a call costs well under a millisecond instead of about 40) and
    waited for when their run closes.

    Args:
        config: where to.
        project: the project's root.
    """

    def __init__(self, config: MlflowConfig, project: Path) -> None:
        self._config = config
        self._project = project
        self._usable = config.enabled
        self._client: MlflowClient | None = None
        self._experiment = ""
        self._waiting: dict[str, list[Any]] = {}
        self._monitors: dict[str, SystemMetricsMonitor] = {}
        self._takes_files = True
        self._caller = Caller()

    def open_run(self, name: str, tags: Mapping[str, str], parent: str | None = None) -> str | None:
        """A new run, None where there is no store."""
        all_tags = {**self._config.tags, **tags, **process_tags(), "mlflow.runName": name}
        if parent is not None:
            all_tags[_PARENT] = parent

        def create(client: MlflowClient) -> str:
            return str(client.create_run(self._experiment, tags=all_tags, run_name=name).info.run_id)

        return self._call(create)

    def reopen_run(self, run: str, parent: str) -> bool:
        """Goes on with a run that was killed, under a new parent; False where it cannot be found any more."""

        def reopen(client: MlflowClient) -> bool:
            from mlflow.exceptions import MlflowException

            try:
                client.update_run(run, status="RUNNING")
            except MlflowException:
                return False
            for name, value in {_PARENT: parent, **process_tags()}.items():
                client.set_tag(run, name, value)
            return True

        return bool(self._call(reopen))

    def end_dead(self) -> None:
        """Runs of this machine that count as running while their process has ended become KILLED."""
        wanted = f"attributes.status = 'RUNNING' and tags.`{HOST}` = '{process_tags()[HOST]}'"

        def end(client: MlflowClient) -> None:
            for run in client.search_runs([self._experiment], wanted):
                if has_ended(run.data.tags):
                    client.set_terminated(run.info.run_id, "KILLED")

        self._call(end)

    def known_steps(self, run: str) -> dict[str, set[int]]:
        """Metric -> the steps at which it was logged."""

        def find(client: MlflowClient) -> dict[str, set[int]]:
            names = client.get_run(run).data.metrics
            return {name: {own.step for own in client.get_metric_history(run, name)} for name in names}

        return self._call(find) or {}

    def params(self, run: str, params: Mapping[str, Any]) -> None:
        """Logs parameters; long values are cut."""
        from mlflow.entities import Param

        for part in _parts([Param(name, str(value)[:_LONGEST_PARAM]) for name, value in params.items()]):
            self._call(partial(_send, run=run, params=part))

    def tags(self, run: str, tags: Mapping[str, str]) -> None:
        """Sets tags."""
        from mlflow.entities import RunTag

        for part in _parts([RunTag(name, value) for name, value in tags.items()]):
            self._call(partial(_send, run=run, tags=part))

    def metrics(self, run: str, metrics: Mapping[str, float], step: int) -> None:
        """Logs the finite ones of `metrics` at `step`, in the background."""
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        for part in _parts([Metric(name, value, now, step) for name, value in numbers("", metrics).items()]):
            operation = self._call(partial(_send, run=run, metrics=part, synchronous=False))
            if operation is not None:
                self._waiting.setdefault(run, []).append(operation)

    def file(self, run: str, path: Path, folder: str) -> None:
        """Copies a small file below the run's artifacts. A place that takes none is said once."""
        if not self._takes_files or path.stat().st_size > self._config.artifact_bytes:
            return

        def copy(client: MlflowClient) -> None:
            try:
                client.log_artifact(run, str(path), folder)
            except RunInterrupted:
                raise
            except Exception as error:
                self._takes_files = False
                _logger.warning("MLflow takes no files, the run goes on without storing them there too: %s", error)

        self._call(copy)

    def text(self, run: str, content: str, name: str) -> None:
        """Stores a text as a file of the run."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / Path(name).name
            path.write_text(content, encoding="utf-8")
            self.file(run, path, str(Path(name).parent))

    def watch(self, run: str) -> None:
        """Samples the machine (processors, memory, disk, network, graphics cards) into a run until it is closed."""
        if not self._config.system_metrics:
            return

        def begin(client: MlflowClient) -> None:
            from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor

            monitor = SystemMetricsMonitor(run, resume_logging=True, tracking_uri=client.tracking_uri)  # type: ignore[no-untyped-call]
            monitor.start()  # type: ignore[no-untyped-call]
            self._monitors[run] = monitor

        self._call(begin)

    def close_run(self, run: str, status: Status) -> None:
        """Waits for the run's curves and gives it its final status."""
        if (monitor := self._monitors.pop(run, None)) is not None:
            self._call(lambda client: monitor.finish())  # type: ignore[no-untyped-call]
        waiting = self._waiting.pop(run, [])
        if waiting:
            self._call(partial(_wait, operations=waiting))
        self._call(lambda client: client.set_terminated(run, status))

    def _call(self, action: Callable[[MlflowClient], Result]) -> Result | None:
        if not self._usable:
            return None
        try:
            if self._client is None:
                self._client = self._caller.call(self._connect, _FIRST_S)
            client = self._client
            return self._caller.call(lambda: action(client), 2.0 * self._config.timeout_s + 1.0)
        except RunInterrupted:
            raise
        except Exception as error:
            self._usable = False
            _logger.warning(
                "MLflow at %s does not answer, the run goes on without it: %s", self._config.tracking_uri, error
            )
            return None

    def _connect(self) -> MlflowClient:
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", str(self._config.timeout_s))
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        from mlflow.tracking import MlflowClient

        # It sets its own handlers on import, and tells of every table that it creates.
        logging.getLogger("mlflow").setLevel(logging.WARNING)
        # What they find of a store that does not answer is said once, by this class.
        for name in ("mlflow.system_metrics", "mlflow.store.db.utils", "mlflow.utils.async_logging"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        client = MlflowClient(tracking_uri=self._config.absolute_uri(self._project))
        found = client.get_experiment_by_name(self._config.experiment)
        if found is not None:
            self._experiment = found.experiment_id
        else:
            local = self._config.tracking_uri.startswith("sqlite:")
            artifacts = (self._project / "mlartifacts").as_uri() if local else None
            self._experiment = client.create_experiment(self._config.experiment, artifact_location=artifacts)
        return client


def _parts(entries: Sequence[Entry]) -> list[Sequence[Entry]]:
    return [entries[start : start + _BATCH] for start in range(0, len(entries), _BATCH)]


def _send(client: MlflowClient, run: str, *, synchronous: bool = True, **entries: Any) -> Any:
    return client.log_batch(run, synchronous=synchronous, **entries)


def _wait(client: MlflowClient, operations: Sequence[Any]) -> None:
    for operation in operations:
        operation.wait()
