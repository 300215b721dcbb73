"""Format tuning as a node: off it hands the model on, on it trains; what cannot work is said before anything runs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kedro.config import OmegaConfigLoader

from worldwise.generation.models import check_model_folder
from worldwise.pipelines.errors import InputError
from worldwise.pipelines.parameters import validated
from worldwise.pipelines.preflight import preflight

NODES = ["prepare_base_model", "tune_format"]
SHORT = {"sizes": ["small"], "purposeful_turns": 2, "random_turns": 2}


def newest(root: Path, name: str) -> Path:
    """The newest stored version of a model."""
    return sorted((root / "06_models/household" / name).iterdir())[-1] / name


def weights(folder: Path) -> str:
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


def curves(root: Path) -> Any:
    path = sorted((root / "08_reporting/household/format_tuning_curves.json").iterdir())[-1]
    return json.loads((path / "format_tuning_curves.json").read_text(encoding="utf-8"))


def test_without_updates_the_model_is_handed_on_unopened(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("the model was loaded")

    monkeypatch.setattr("worldwise.pipelines.data_collection.nodes.load_checkpoint", refuse)
    run("data_collection", tmp_path, node_names=NODES)
    assert weights(newest(tmp_path, "base_model")) == weights(newest(tmp_path, "pretrained_model"))
    assert curves(tmp_path) == {"rows": [], "summary": {}}


def test_with_updates_it_trains_the_same_each_time(run: Any, tmp_path: Path) -> None:
    params = {"format_tuning": {"updates": 2, "batch": 2, "play": SHORT, "learner": {"learning_rate": 0.01}}}
    for root in (tmp_path / "one", tmp_path / "two"):
        run("data_collection", root, params, node_names=NODES)
    tuned = newest(tmp_path / "one", "base_model")
    check_model_folder(tuned)
    assert weights(tuned) != weights(newest(tmp_path / "one", "pretrained_model"))
    assert weights(tuned) == weights(newest(tmp_path / "two", "base_model"))
    stored = curves(tmp_path / "one")
    assert [row["step"] for row in stored["rows"]] == [0.0, 1.0]
    assert stored["summary"]["rows"] == 4.0


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"format_tuning": {"updates": -1}}, r"format_tuning\.updates is -1: input should be greater than"),
        ({"format_tuning": {"prediction_share": 2}}, r"format_tuning\.prediction_share is 2"),
        ({"format_tuning": {"play": {"turns": 3}}}, r"parameter format_tuning\.play\.turns is not known"),
        (
            {"format_tuning": {"updates": 5}, "agent": {"context": "window"}},
            r"format_tuning\.updates is 5: .* agent\.context is 'window': set it to conversation",
        ),
        (
            {"format_tuning": {"updates": 5}, "agent": {"list_admissible": True}},
            r"agent\.list_admissible is true: set it to false, or set format_tuning\.updates to 0",
        ),
    ],
)
def test_what_cannot_work_is_said_first(
    loader: Callable[..., OmegaConfigLoader], params: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        preflight(validated(loader("test", **params)["parameters"]))


def test_an_agent_that_it_cannot_serve_may_go_without(loader: Callable[..., OmegaConfigLoader]) -> None:
    preflight(validated(loader("test", agent={"context": "window"})["parameters"]))
