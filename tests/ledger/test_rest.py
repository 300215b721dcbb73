"""A part of the project reads of the rest what belongs to the parameters of now, or says that it does not."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kedro.pipeline import Pipeline, node

from tests.ledger.toy import EARLIER, LATER, OWN, Toy, TrainConfig
from worldwise.ledger.rest import look_ahead, made_otherwise

LAST = "2026-01-04T00.00.00.000Z"
REPORT = ("report",)


@pytest.fixture
def toy(tmp_path: Path) -> Toy:
    """Models of two rates are stored, the newer one of 0.2, and no report."""
    toy = Toy(tmp_path, knows_all=True)
    toy.run(EARLIER)
    toy.train = TrainConfig(rate=0.2)
    toy.run(OWN)
    shutil.rmtree(toy.root / "report.json")
    return toy


def test_a_part_that_goes_back_reads_the_earlier_version(toy: Toy) -> None:
    toy.train = TrainConfig()
    assert toy.run(LATER, nodes=REPORT) == ["report"]
    assert toy.load("report", LATER)[1] == "model of tasks at 0.1"
    assert toy.notes == []
    assert toy.run(LAST) == [], "the whole finds what the part has made"


def test_a_part_reads_the_newest_version_and_says_so_where_none_belongs_to_the_parameters(toy: Toy) -> None:
    toy.train = TrainConfig(rate=0.3, steps=2)
    assert toy.run(LATER, nodes=REPORT) == ["report"]
    assert toy.load("report", LATER)[1] == "model of tasks at 0.2"
    curves, model = toy.notes
    assert model.startswith(
        f"model:{OWN} is read, which was made with other parameters than those of now: parameter train.rate from 0.2 "
        f"to 0.3 (and 1 more). `kedro worldwise lineage model:{OWN} --parameters` shows all"
    )
    assert "run train and what comes after it as well" in model
    assert curves.startswith(f"curves:{OWN} is read")
    toy.run(LAST, nodes=REPORT)
    assert toy.notes == [], "nothing runs, so nothing is read"


def test_a_run_of_all_nodes_of_a_part_reads_the_newest_version_and_says_so(toy: Toy) -> None:
    toy.train = TrainConfig()
    toy.run(LATER, only_missing=False, nodes=REPORT)
    assert toy.load("report", LATER)[1] == "model of tasks at 0.2"
    assert [note.partition(" is read")[0] for note in toy.notes] == [f"curves:{OWN}", f"model:{OWN}"]
    toy.train = TrainConfig(rate=0.2)
    toy.run(LAST, only_missing=False, nodes=REPORT)
    assert toy.notes == []


def test_a_version_that_is_asked_for_is_read_without_a_word(toy: Toy) -> None:
    toy.train = TrainConfig()
    toy.run(LATER, nodes=REPORT, model=OWN, curves=OWN)
    assert toy.load("report", LATER)[1] == "model of tasks at 0.2"
    assert toy.notes == []


def test_parameters_of_what_an_input_was_made_from_count_as_well(toy: Toy) -> None:
    toy.run(LATER)
    toy.train = TrainConfig(rate=0.3)
    around = toy.around(LAST)
    last = Pipeline([node(_length, "report", "notes", name="count")])
    (note,) = made_otherwise(around, last, last.inputs())
    assert note.startswith(
        f"report:{LATER} is read, which was made with other parameters than those of now: model:{OWN}, "
    )
    assert "where parameter train.rate from 0.2 to 0.3" in note


def test_what_was_stored_outside_of_a_run_has_no_parameters_to_compare(toy: Toy) -> None:
    toy.store(LATER, model="a model", curves="curves")
    toy.train = TrainConfig(rate=0.3)
    toy.run(LAST, nodes=REPORT)
    assert toy.load("report", LAST)[1] == "a model"
    assert toy.notes == []


def test_what_the_rest_needs_may_be_absent(toy: Toy) -> None:
    def raw(own: Any, blocks: Mapping[str, Any]) -> Mapping[str, str]:
        if own.name == "prepare":
            raise ValueError("the games are not there")
        return {}

    toy.train = TrainConfig()
    around = replace(toy.around(LATER), raw=raw)
    outlook = look_ahead(around, toy.pipeline().only_nodes("report"))
    assert outlook.notes[0] == (
        "which version of curves, model, tasks serves is not known (the games are not there): the newest is read"
    )
    assert outlook.chosen["model"].version == OWN


def test_nodes_that_make_the_same_are_no_reason_to_choose(toy: Toy) -> None:
    toy.train = TrainConfig()
    around = toy.around(LATER)
    other = node(_length, "tasks", "model", name="another_way")
    outlook = look_ahead(replace(around, registered=[*around.registered, other]), toy.pipeline().only_nodes("report"))
    assert outlook.chosen["model"].version == OWN


def _length(given: str) -> int:
    return len(given)
