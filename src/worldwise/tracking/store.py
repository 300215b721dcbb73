"""A tracking store that never stops a run: all its calls are made in the background, and a failure is said once."""

from __future__ import annotations

import logging
import os
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from worldwise.tracking.config import MlflowConfig
from worldwise.tracking.flatten import numbers
from worldwise.tracking.machine import PREFIX, sample_machine
from worldwise.tracking.outbox import Outbox, Parcel
from worldwise.tracking.process import HOST, has_ended, process_tags
from worldwise.tracking.runs import PARENT, TrackedRun, take_up

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

Status = Literal["FINISHED", "FAILED", "KILLED"]

_logger = logging.getLogger(__name__)
_LONGEST_PARAM = 5000
_BATCH = 90
"""Parameters or tags in one request; MLflow takes 100."""

POINTS_SENT = 1000
"""Points of curves in one request, as many as MLflow takes."""

POINTS_KEPT = 100_000
"""Points of one run that wait at once for a server that does not answer; some 20 MB."""

_FIRST_S = 120.0
"""Seconds that importing mlflow may take, and making a database."""

_DRAIN_S = 30.0
"""Seconds at the end for what a server that answers was not sent yet."""

_PASSING = ("TEMPORARILY_UNAVAILABLE", "REQUEST_LIMIT_EXCEEDED", "RESOURCE_EXHAUSTED")
"""MLflow's refusals that have nothing to do with what it was sent; a locked database is one."""

_SILENT = "MLflow at %s does not answer, the run goes on without it and tries again: %s"
_ANSWERS = "MLflow at %s answers again and gets what it missed"
_REFUSES = "MLflow at %s does not take everything, the run goes on without that: %s"
_NO_FILES = "MLflow at %s takes no files, the run goes on without storing them there too: %s"
_FULL = "MLflow at %s is too far behind: curves have gaps there from here on; they are stored with the results as well"
_LATE = "MLflow at %s has not taken everything in time: it lacks the end of this run"


class TrackingStore:
    """Runs in MLflow, by plain calls of its client in a thread of the store's own.

    Only `id_of` and `finish` wait for the server, for a while. What it misses as long as it does not answer is kept and
    sent once it does.

    Args:
        config: where to.
        project: the project's root.
    """

    def __init__(self, config: MlflowConfig, project: Path) -> None:
        self._config = config
        self._project = project
        self._connection: MlflowClient | None = None
        self._experiment = ""
        self._makes_database = config.lacks_database(project)
        self._takes_files = True
        self._said: set[str] = set()
        self._outbox = Outbox(self, 2.0 * config.timeout_s + 1.0)
        self._imported = threading.Event()
        self._first_s = _FIRST_S

    def open_run(
        self, name: str, tags: Mapping[str, str], parent: TrackedRun | None = None, earlier: str | None = None
    ) -> TrackedRun:
        """A run.

        Args:
            name, tags: of a new one.
            parent: the run that it is a part of.
            earlier: id of one that was killed and goes on under a new parent. If it is gone, there is a new one.
        """
        run = TrackedRun()
        own = process_tags()
        all_tags = {**self._config.tags, **tags, **own, "mlflow.runName": name}

        def send() -> None:
            client = self._client()
            if parent is not None and parent.id is None:
                run.made.set()
                return
            above = {} if parent is None else {PARENT: str(parent.id)}
            if earlier is None or not take_up(client, run, earlier, {**above, **own}, self._outbox.goes_on):
                created = client.create_run(self._experiment, tags={**all_tags, **above}, run_name=name)
                run.id = str(created.info.run_id)
                run.made.set()

        def lost(error: Exception) -> None:
            run.made.set()
            self._refused(error)

        self._outbox.put(Parcel(send, lost))
        return run

    def id_of(self, run: TrackedRun) -> str | None:
        """The run's id; waits for it while the server answers. None as long as there is none."""
        if not self._outbox.wait(self._imported, self._first_s):
            self._first_s = 0.0
        makes_database = self._makes_database and self._connection is None
        self._outbox.wait(run.made, self._first_s if makes_database else None)
        return run.id

    def end_dead(self) -> None:
        """Runs of this machine that count as running while their process has ended become KILLED."""
        wanted = f"attributes.status = 'RUNNING' and tags.`{HOST}` = '{process_tags()[HOST]}'"

        def send() -> None:
            client = self._client()
            for run in client.search_runs([self._experiment], wanted):
                if has_ended(run.data.tags):
                    self._outbox.goes_on()
                    client.set_terminated(run.info.run_id, "KILLED")

        self._outbox.put(Parcel(send, self._refused))

    def params(self, run: TrackedRun, params: Mapping[str, Any]) -> None:
        """Logs parameters of a new run; long values are cut."""

        def send(client: MlflowClient, run_id: str, part: Mapping[str, str]) -> None:
            from mlflow.entities import Param

            # A parameter never changes in MLflow; those that change no result may differ where a run is taken up.
            if not run.resumed:
                client.log_batch(run_id, params=[Param(name, value) for name, value in part.items()])

        self._put_parts(run, {name: str(value)[:_LONGEST_PARAM] for name, value in params.items()}, send)

    def tags(self, run: TrackedRun, tags: Mapping[str, str]) -> None:
        """Sets tags."""

        def send(client: MlflowClient, run_id: str, part: Mapping[str, str]) -> None:
            from mlflow.entities import RunTag

            client.log_batch(run_id, tags=[RunTag(name, value) for name, value in part.items()])

        self._put_parts(run, tags, send)

    def _put_parts(
        self, run: TrackedRun, entries: Mapping[str, str], send: Callable[[MlflowClient, str, Mapping[str, str]], None]
    ) -> None:
        names = list(entries)
        for start in range(0, len(names), _BATCH):
            part = {name: entries[name] for name in names[start : start + _BATCH]}
            self._put(run, lambda client, run_id, part=part: send(client, run_id, part))  # type: ignore[misc]

    def metrics(self, run: TrackedRun, metrics: Mapping[str, float], step: int) -> None:
        """Logs the finite ones of `metrics` at `step`, but what a run that was taken up has already."""
        now = int(time.time() * 1000)
        points = [(name, value, now, step) for name, value in numbers("", metrics).items()]
        if len(run.points) + len(points) > POINTS_KEPT:
            self._say(logging.WARNING, _FULL)
            return
        run.points.extend(points)
        if not run.announced:
            run.announced = True
            self._put(run, lambda client, run_id: self._send_points(client, run_id, run), self._points_lost(run))

    def _send_points(self, client: MlflowClient, run_id: str, run: TrackedRun) -> None:
        from mlflow.entities import Metric

        # What comes from here on is either seen below or sent with the next parcel.
        run.announced = False
        while run.points:
            # Others put more in meanwhile: no iterating.
            part = [run.points[position] for position in range(min(len(run.points), POINTS_SENT))]
            new = [Metric(*own) for own in part if own[0].startswith(PREFIX) or own[3] not in run.known.get(own[0], ())]
            if new:
                client.log_batch(run_id, metrics=new)
                self._outbox.goes_on()
            for _ in part:
                run.points.popleft()

    def _points_lost(self, run: TrackedRun) -> Callable[[Exception], None]:
        def lost(error: Exception) -> None:
            run.points.clear()
            self._refused(error)

        return lost

    def file(self, run: TrackedRun, path: Path, folder: str) -> None:
        """Copies a small file below the run's artifacts. A place that takes none is said once."""

        def send(client: MlflowClient, run_id: str) -> None:
            if self._takes_files and path.stat().st_size <= self._config.artifact_bytes:
                client.log_artifact(run_id, str(path), folder)

        self._put(run, send, self._no_files)

    def text(self, run: TrackedRun, content: str, name: str) -> None:
        """The same with a text, which becomes a file of the run."""

        def send(client: MlflowClient, run_id: str) -> None:
            if not self._takes_files or len(content.encode()) > self._config.artifact_bytes:
                return
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / Path(name).name
                path.write_text(content, encoding="utf-8")
                client.log_artifact(run_id, str(path), str(Path(name).parent))

        self._put(run, send, self._no_files)

    def watch(self, run: TrackedRun) -> None:
        """Samples the machine (processors, memory, disk, network, graphics cards) into a run until it is closed."""

        def send(client: MlflowClient, run_id: str) -> None:
            if not run.closed.is_set():
                steps = {step for name, known in run.known.items() if name.startswith(PREFIX) for step in known}
                first = max(steps, default=-1) + 1
                sample_machine(lambda sample, step: self.metrics(run, sample, step), run.closed, first)

        if self._config.system_metrics:
            self._put(run, send)

    def close_run(self, run: TrackedRun, status: Status) -> None:
        """Gives the run its last status, after its curves."""
        run.closed.set()
        self._put(run, lambda client, run_id: client.set_terminated(run_id, status), last=True)

    def finish(self) -> None:
        """Waits until everything is sent, for a while; nothing is taken any more after it."""
        if not self._outbox.finish(_DRAIN_S) and (not self._outbox.is_silent or _ANSWERS in self._said):
            self._say(logging.WARNING, _LATE)

    def _put(
        self,
        run: TrackedRun,
        send: Callable[[MlflowClient, str], object],
        lost: Callable[[Exception], None] | None = None,
        *,
        last: bool = False,
    ) -> None:
        def with_client() -> None:
            # A run that was refused has no id.
            if run.id is not None:
                send(self._client(), run.id)

        self._outbox.put(Parcel(with_client, lost or self._refused, last))

    def _client(self) -> MlflowClient:
        """The client, connected before the first use. In the store's thread only."""
        if self._connection is None:
            self._connection = self._connect()
        return self._connection

    def _connect(self) -> MlflowClient:
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", str(self._config.timeout_s))
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        self._outbox.works()
        try:
            from mlflow.tracking import MlflowClient
        finally:
            self._imported.set()
        if not self._makes_database:
            self._outbox.goes_on()
        # It sets its own handlers on import, and tells of every table that it creates.
        logging.getLogger("mlflow").setLevel(logging.WARNING)
        # What they find of a store that does not answer is said once, by this class.
        for name in ("mlflow.store.db.utils", "urllib3.connectionpool"):
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

    def refuses(self, error: Exception) -> bool:
        """Whether the server answers all the same, see `Postmaster`."""
        if self._connection is None:
            return False
        from mlflow.exceptions import MlflowException

        if isinstance(error, MlflowException) and error.error_code in _PASSING:
            return False
        try:
            self._connection.get_experiment(self._experiment)
        except Exception:
            return False
        return True

    def silent(self, error: Exception) -> None:
        """Says so once."""
        self._say(logging.WARNING, _SILENT, error)

    def answers(self) -> None:
        """Says so once."""
        self._say(logging.INFO, _ANSWERS)

    def _refused(self, error: Exception) -> None:
        self._say(logging.WARNING, _REFUSES, error)

    def _no_files(self, error: Exception) -> None:
        self._takes_files = False
        self._say(logging.WARNING, _NO_FILES, error)

    def _say(self, level: int, text: str, *values: object) -> None:
        if text not in self._said:
            self._said.add(text)
            _logger.log(level, text, self._config.tracking_uri, *values)
