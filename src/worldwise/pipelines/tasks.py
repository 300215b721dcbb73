"""Sets of tasks as a dataset: which there are, whether their files can be read, JSON and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from worldwise.worlds.contract import Task, WorldFamily

TaskTable = dict[str, list[dict[str, Any]]]
"""What `training_tasks` and `evaluation_tasks` store: set of tasks -> its tasks in order."""


def table_of(family: WorldFamily, sets: Mapping[str, Sequence[Task]]) -> TaskTable:
    """The sets as they are stored.

    Tasks that are read from files are begun once, so that a damaged file is named here and not in the middle
    of training.

    Raises:
        ValueError: a file is damaged; the message names it.
    """
    world = family.new()
    for task in (task for chosen in sets.values() for task in chosen):
        if not task.payload:
            world.reset(task, 0)
    return tasks_to_json(sets)


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
