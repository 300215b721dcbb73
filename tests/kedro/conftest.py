"""The project in process: sessions on a temporary data root, with a tiny random model that plays valid commands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kedro.config import OmegaConfigLoader
from kedro.framework.project import configure_project, settings
from kedro.framework.session import KedroSession
from kedro.framework.startup import bootstrap_project

from worldwise.generation.models import save_model
from worldwise.generation.tiny import tiny_model, tiny_tokenizer

PROJECT = Path(__file__).resolve().parents[2]

Run = Callable[..., dict[str, Any]]


@pytest.fixture(scope="session")
def project() -> Iterator[Path]:
    """The project's root, made known to Kedro."""
    bootstrap_project(PROJECT)
    yield PROJECT
    configure_project("worldwise")


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder with 28,000 random weights."""
    folder = tmp_path_factory.mktemp("model") / "tiny"
    save_model(tiny_model(max_positions=4096), tiny_tokenizer(), folder)
    return folder


@pytest.fixture
def loader(project: Path) -> Callable[..., OmegaConfigLoader]:
    """Makes a configuration loader as the project's settings have it."""

    def make(env: str | None = None, **params: Any) -> OmegaConfigLoader:
        return settings.CONFIG_LOADER_CLASS(
            conf_source=str(project / settings.CONF_SOURCE),
            env=env,
            runtime_params=params,
            **settings.CONFIG_LOADER_ARGS,
        )

    return make


@pytest.fixture(scope="session")
def run(project: Path, tiny_folder: Path) -> Run:
    """Runs a pipeline at toy sizes with the tiny model and returns the catalog's outputs.

    The random model knows no commands, so decoding is restricted to those that are admissible.
    """

    def run_pipeline(pipeline: str, root: Path, params: dict[str, Any] | None = None, **options: Any) -> dict[str, Any]:
        runtime = {
            "data_root": root.as_posix(),
            "model": {"name": tiny_folder.as_posix()},
            "agent": {"restrict_to_admissible": True},
            **(params or {}),
        }
        with KedroSession.create(project, save_on_close=False, env="test", runtime_params=runtime) as session:
            assert isinstance(session, KedroSession)
            return session.run(pipeline_names=[pipeline], **options)

    return run_pipeline
