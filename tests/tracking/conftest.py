"""A database of MLflow's: making one takes long, copying it does not."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.tracking.toy import first, run_toy


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One that knows a finished run."""
    folder = tmp_path_factory.mktemp("made")
    run_toy(folder, [first])
    return folder / "tracking.db"


@pytest.fixture
def database(made: Path, tmp_path: Path) -> Path:
    """One for a test, where `run_toy` looks for it."""
    return Path(shutil.copy(made, tmp_path / made.name))
