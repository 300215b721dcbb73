"""A toy run with the project's hooks for tracking and signals, in this process or in one of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from kedro.framework.hooks.manager import _create_hook_manager, _register_hooks
from kedro.io import DataCatalog
from kedro.pipeline import Pipeline
from kedro.runner import SequentialRunner

from worldwise.hooks.interrupt import InterruptHooks
from worldwise.pipelines.wiring import node
from worldwise.tracking.hook import MlflowHooks
from worldwise.tracking.listeners import reporter

VERSION = "2026-01-01T00.00.00.000Z"
PROJECT = Path(__file__).resolve().parents[2]


def trains(points: int, first: int = 0) -> None:
    """Tells numbers of so many steps."""
    tell = reporter()
    for step in range(first, first + points):
        tell.log({"loss": 1.0 / (step + 1)}, step)


def first(given: Any) -> dict[str, Any]:
    """A node that trains a little."""
    trains(1)
    return {}


def run_toy(
    project: Path,
    functions: Sequence[Callable[[Any], dict[str, Any]]],
    settings: dict[str, Any] | None = None,
    hooks: Sequence[object] = (),
    loader: dict[str, Any] | None = None,
) -> None:
    """Runs functions one after the other, each as a node with the tag `train` that takes what the one before made.

    Args:
        project: the folder that the run stores in.
        functions: their names are the nodes'.
        settings: of mlflow.yml.
        hooks: further ones.
        loader: further configuration.
    """
    project.mkdir(exist_ok=True)
    given = {"tracking_uri": "sqlite:///tracking.db", "system_metrics": False, **(settings or {})}
    config = {} if loader is None else loader
    config["mlflow"] = given
    context = SimpleNamespace(config_loader=config, project_path=project)
    names = ["params:toy", *(f"{function.__name__}_made" for function in functions)]
    pipeline = Pipeline(
        [
            node(function, before, after, name=function.__name__, tags="train")
            for function, before, after in zip(functions, names, names[1:], strict=False)
        ]
    )
    stored = {"type": "worldwise.datasets.atomic.JSONDataset", "versioned": True}
    catalog = DataCatalog.from_config(
        {name: {**stored, "filepath": (project / "08_reporting" / f"{name}.json").as_posix()} for name in names[1:]},
        save_version=VERSION,
    )
    catalog["params:toy"] = {"steps": 3}
    manager = _create_hook_manager()
    _register_hooks(manager, (MlflowHooks(), InterruptHooks(), *hooks))
    run_params = {"run_id": VERSION, "env": "test", "pipeline_names": ["toy"]}
    arguments = {"run_params": run_params, "pipeline": pipeline, "catalog": catalog}
    manager.hook.after_context_created(context=context)
    manager.hook.before_pipeline_run(**arguments)
    try:
        result = SequentialRunner().run(pipeline, catalog, manager, VERSION)
    except Exception as error:
        manager.hook.on_pipeline_error(error=error, **arguments)
        raise
    manager.hook.after_pipeline_run(run_result=result, **arguments)


def begin_toy(code: str, *arguments: str) -> subprocess.Popen[str]:
    """A process that runs code, in which what this module has is imported already."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(PROJECT), *sys.path])}
    for name in ("CI", "PYTEST_CURRENT_TEST", "MLFLOW_DISABLE_TELEMETRY"):
        environment.pop(name, None)
    return subprocess.Popen(
        [sys.executable, "-c", f"from tests.tracking.toy import *\n{code}", *arguments],
        cwd=PROJECT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
