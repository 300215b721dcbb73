"""Objects of the stages as JSON values and tables, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from worldwise.stages.subsample import TransitionScore
from worldwise.worlds.contract import Task

TaskTable = dict[str, list[dict[str, Any]]]
"""What `tasks` stores: set of tasks -> its tasks in order."""


def tasks_to_json(tasks: Mapping[str, Sequence[Task]]) -> TaskTable:
    """Tasks as JSON values."""
    return {
        name: [
            {"task_id": task.task_id, "task_type": task.task_type, "split": task.split, "payload": dict(task.payload)}
            for task in chosen
        ]
        for name, chosen in tasks.items()
    }


def tasks_from_json(table: TaskTable) -> dict[str, list[Task]]:
    """The tasks that `tasks_to_json` wrote."""
    return {name: [Task(**row) for row in rows] for name, rows in table.items()}


def scores_to_frame(scores: Sequence[TransitionScore]) -> pd.DataFrame:
    """One row a transition: `transition_id`, `kind`, lists `distances` and `exact` with one value per try."""
    return pd.DataFrame(
        {
            "transition_id": [score.transition_id for score in scores],
            "kind": [score.kind for score in scores],
            "distances": [list(score.distances) for score in scores],
            "exact": [list(score.exact) for score in scores],
        }
    )


def scores_from_frame(frame: pd.DataFrame) -> list[TransitionScore]:
    """The scores that `scores_to_frame` wrote."""
    columns = (frame[name].tolist() for name in ("transition_id", "kind", "distances", "exact"))
    return [
        TransitionScore(name, kind, tuple(float(value) for value in distances), tuple(bool(value) for value in exact))
        for name, kind, distances, exact in zip(*columns, strict=True)
    ]
