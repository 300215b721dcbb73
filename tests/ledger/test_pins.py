"""What a run reads is settled when it begins: its own results, and what was the newest then."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ledger.toy import EARLIER, LATER, OWN, Toy


@pytest.fixture
def toy(tmp_path: Path) -> Toy:
    toy = Toy(tmp_path)
    toy.run(EARLIER)
    return toy


@pytest.mark.parametrize("only_missing", [True, False])
def test_a_run_beside_this_one_changes_nothing_for_it(toy: Toy, only_missing: bool) -> None:
    everything = dict.fromkeys(("tasks", "model", "curves", "report", "notes"), "of another run")
    toy.train = toy.train.model_copy(update={"rate": 0.2})
    toy.meanwhile = lambda: toy.store(LATER, **everything)
    toy.run(OWN, only_missing, nodes=("train", "report"))
    assert toy.load("report", OWN) == ["tasks", "model of tasks at 0.2", "curves", None]


def test_runs_on_other_folders_do_not_meet(toy: Toy, tmp_path: Path) -> None:
    other = Toy(tmp_path / "other")
    other.train = other.train.model_copy(update={"rate": 0.2})

    def beside() -> None:
        other.run(OWN)

    toy.meanwhile = beside
    toy.run(OWN, only_missing=False)
    assert toy.load("report", OWN)[1] == "model of tasks at 0.1"
    assert other.load("report", OWN)[1] == "model of tasks at 0.2"


def test_a_version_that_is_asked_for_is_read(toy: Toy) -> None:
    toy.store(LATER, tasks="later tasks")
    assert toy.run(OWN, only_missing=False, nodes=("train",), tasks=EARLIER) == ["train"]
    assert toy.load("model", OWN) == "model of tasks at 0.1"


def test_a_run_that_makes_everything_reads_only_its_own(toy: Toy) -> None:
    toy.store(LATER, tasks="later tasks", model="later model")
    assert toy.run(OWN, only_missing=False) == ["prepare", "train", "report"]
    assert toy.load("report", OWN)[:2] == ["tasks", "model of tasks at 0.1"]
