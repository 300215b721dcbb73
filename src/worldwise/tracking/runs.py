"""A run in the tracker, new or taken up again."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mlflow.entities import Run
    from mlflow.tracking import MlflowClient

PARENT = "mlflow.parentRunId"
"""Tag of a run that is part of another one."""

Point = tuple[str, float, int, int]
"""(metric, value, milliseconds since 1970, step)."""


@dataclass(eq=False)
class TrackedRun:
    """A run that may come to be in the tracker later than here.

    Attributes:
        id: None before it is there.
        made: set once it is there, or is given up.
        resumed: whether it was there before.
        known: metric -> the steps that it had then.
        points: what of its curves is still to be sent.
        announced: whether that will be done.
        closed: set once it gets its last status.
    """

    id: str | None = None
    made: threading.Event = field(default_factory=threading.Event)
    resumed: bool = False
    known: dict[str, set[int]] = field(default_factory=dict)
    points: deque[Point] = field(default_factory=deque)
    announced: bool = False
    closed: threading.Event = field(default_factory=threading.Event)


def take_up(
    client: MlflowClient, run: TrackedRun, earlier: str, tags: Mapping[str, str], goes_on: Callable[[], None]
) -> bool:
    """Goes on with an earlier run; called again after an error, it goes on where that came.

    Args:
        client: of the tracker.
        run: becomes that one.
        earlier: its id.
        tags: set anew, with the new parent. The parent before is ended as KILLED if it counts as running: its process
            has let go of the node.
        goes_on: called after every answer.

    Returns:
        False where there is no such run any more.
    """
    found = _running(client, earlier)
    if found is None:
        return False
    before = found.data.tags.get(PARENT)
    if before is not None and before != tags.get(PARENT):
        _end(client, before)
    for name, value in tags.items():
        client.set_tag(earlier, name, value)
    run.id, run.resumed = earlier, True
    run.made.set()
    for name in found.data.metrics:
        if name not in run.known:
            goes_on()
            run.known[name] = {own.step for own in client.get_metric_history(earlier, name)}
    return True


def _running(client: MlflowClient, run: str) -> Run | None:
    """An active run, which has the status RUNNING now; None where there is none."""
    try:
        client.update_run(run, status="RUNNING")
        return client.get_run(run)
    except Exception as error:
        if _is_unknown(error):
            return None
        raise


def _end(client: MlflowClient, run: str) -> None:
    try:
        if client.get_run(run).info.status == "RUNNING":
            client.set_terminated(run, "KILLED")
    except Exception as error:
        if not _is_unknown(error):
            raise


def _is_unknown(error: Exception) -> bool:
    """Whether MLflow says that there is no such run, or none that takes anything."""
    from mlflow.exceptions import MlflowException

    codes = ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE")
    return isinstance(error, MlflowException) and error.error_code in codes
