"""Whole pipelines and single stages in process, at toy sizes."""

from __future__ import annotations

import json
import logging
import socket
from pathlib import Path
from typing import Any

import pytest
from kedro.runner import ThreadRunner

from worldwise.episodes.store import count_episodes, read_episodes
from worldwise.generation.models import check_model_folder
from worldwise.ledger.workspace import WORK_FOLDER
from worldwise.pipelines.errors import InputError
from worldwise.stages.estimators import EstimatorConfig

Stored = Path


@pytest.fixture(scope="module")
def stored(run: Any, tmp_path_factory: pytest.TempPathFactory) -> Stored:
    """The data root after the main job, which had no network."""
    root = tmp_path_factory.mktemp("main") / "data"

    def refuse(*address: object, **_: object) -> None:
        raise AssertionError(f"the main job asked for the network: {address}")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket, "getaddrinfo", refuse)
        patch.setattr(socket, "create_connection", refuse)
        run("rwml_then_rl", root)
    return root


def newest(root: Path, name: str) -> Path:
    """The newest stored version of a dataset, by its path below the root."""
    versions = sorted((root / name).iterdir())
    return versions[-1] / Path(name).name


def content(root: Path, name: str) -> Any:
    return json.loads(newest(root, name).read_text(encoding="utf-8"))


def test_the_main_job_leaves_everything(stored: Stored) -> None:
    for name in ("pretrained_model", "base_model", "auxiliary_model", "world_model", "policy_model"):
        check_model_folder(newest(stored, f"06_models/household/{name}"))
    tasks = content(stored, "02_intermediate/household/training_tasks.json")
    assert {name: len(rows) for name, rows in tasks.items()} == {"train": 12, "held_out": 4}
    tasks = content(stored, "02_intermediate/household/evaluation_tasks.json")
    assert {name: len(rows) for name, rows in tasks.items()} == {"valid_seen": 4, "valid_unseen": 4}
    assert count_episodes(newest(stored, "03_primary/household/collected_episodes")) == 24
    counts = content(stored, "08_reporting/household/transition_counts.json")
    assert counts["turns"] == counts["kept"] + sum(
        value for name, value in counts.items() if name.startswith("dropped")
    )
    assert len(content(stored, "08_reporting/household/rwml_curves.json")["rows"]) == 2
    assert len(content(stored, "08_reporting/household/policy_curves.json")["rows"]) == 2


def test_training_changed_the_weights(stored: Stored) -> None:
    for model in ("rwml", "policy"):
        assert content(stored, f"08_reporting/household/{model}_evaluation.json")["weights_changed"] > 0


def test_all_models_are_asked_for_the_same(stored: Stored) -> None:
    for model in ("base", "rwml", "policy"):
        evaluation = content(stored, f"08_reporting/household/{model}_evaluation.json")
        assert evaluation["world_model"]["overall"]["exact"]["count"] == 16
        scores = evaluation["acting"]["scores"]
        assert {(split, temperature) for split, row in scores.items() for temperature in row} == {
            (split, temperature) for split in ("valid_seen", "valid_unseen") for temperature in ("0", "0.4")
        }
        assert all(score["success"]["count"] == 4 for row in scores.values() for score in row.values())


def test_shown_episodes_carry_predictions(stored: Stored) -> None:
    episodes = list(read_episodes(newest(stored, "07_model_output/household/policy_evaluation_episodes")))
    assert len(episodes) == 16
    assert sum(any(turn.predictions for turn in episode.turns) for episode in episodes) == 2


def test_the_report_shows_the_models_that_ran(stored: Stored) -> None:
    summary = newest(stored, "08_reporting/household/report.md").read_text(encoding="utf-8")
    assert "| RWML, then RL |" in summary
    assert "RL alone" not in summary
    page = newest(stored, "08_reporting/household/report.html").read_text(encoding="utf-8")
    assert "Last iteration of policy RL: RWML, then RL" in page
    assert "Last iteration of policy RL: RL alone" not in page
    assert ", advantage " in page
    assert "Evaluation of Base" in page
    assert content(stored, "08_reporting/household/figures/success_by_model.json")["data"]


def test_only_missing_outputs_are_made(stored: Stored, run: Any, caplog: pytest.LogCaptureFixture) -> None:
    before = _files(stored)
    with caplog.at_level(logging.INFO, logger="kedro.runner"):
        run("rwml_then_rl", stored, only_missing_outputs=True)
    assert "Skipping all 17 nodes" in caplog.text
    assert _files(stored) == before


def _files(root: Path) -> list[Path]:
    """Everything that is stored, without what the ledger keeps for itself."""
    return sorted(path for path in root.rglob("*") if WORK_FOLDER not in path.parts)


def test_a_stage_reruns_alone_and_a_control_beside_the_rest(stored: Stored, run: Any) -> None:
    run("rl_only", stored, from_nodes=["train_policy_from_base"], node_names=None)
    report = newest(stored, "08_reporting/household/report.html").read_text(encoding="utf-8")
    assert "Last iteration of policy RL: RWML, then RL" in report
    assert "Last iteration of policy RL: RL alone" in report
    assert len(list((stored / "06_models/household/policy_model").iterdir())) == 1
    assert len(list((stored / "06_models/household/rl_only_model").iterdir())) == 1
    run("rwml_then_rl", stored, node_names=["evaluate_policy", "write_report"])
    assert len(list((stored / "08_reporting/household/policy_evaluation.json").iterdir())) == 2
    summary = newest(stored, "08_reporting/household/report.md").read_text(encoding="utf-8")
    assert "| RL alone |" in summary


def test_the_same_seed_collects_the_same_episodes(stored: Stored, run: Any, tmp_path: Path) -> None:
    run("data_collection", tmp_path)
    name = "03_primary/household/collected_episodes"
    first = [[turn.action for turn in episode.turns] for episode in read_episodes(newest(stored, name))]
    again = [[turn.action for turn in episode.turns] for episode in read_episodes(newest(tmp_path, name))]
    assert first == again


def test_the_supervised_control_runs(stored: Stored, run: Any) -> None:
    run("wm_sft_then_rl", stored, from_nodes=["finetune_world_model"])
    check_model_folder(newest(stored, "06_models/household/wm_sft_policy_model"))
    assert "WM-SFT, then RL" in newest(stored, "08_reporting/household/report.md").read_text(encoding="utf-8")
    page = newest(stored, "08_reporting/household/report.html").read_text(encoding="utf-8")
    assert "Last iteration of policy RL: WM-SFT, then RL" in page


def test_the_report_knows_the_estimator_of_the_training(stored: Stored) -> None:
    curves = content(stored, "08_reporting/household/policy_curves.json")
    assert set(curves["estimator"]) == set(EstimatorConfig.model_fields)
    assert curves["estimator"]["algorithm"] == "gigpo"


def test_the_base_model_pipeline_makes_a_model(run: Any, tmp_path: Path) -> None:
    run("base_model", tmp_path)
    folder = newest(tmp_path, "06_models/household/built_base_model")
    check_model_folder(folder)
    assert (folder / "README.md").is_file()


def test_a_stale_node_whose_input_is_nowhere_is_refused_before_it_runs(run: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the dataset world_model has no stored version"):
        run("policy_rl", tmp_path / "data", only_missing_outputs=True)


def test_other_runners_are_refused(run: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--runner takes SequentialRunner alone"):
        run("data_collection", tmp_path / "data", runner=ThreadRunner())
