"""`--only-missing-outputs` runs exactly what is stale, and says why."""

from __future__ import annotations

import importlib
import shutil
import sys
from pathlib import Path

import pytest
from kedro.io import MemoryDataset
from kedro.pipeline import Pipeline, node

from tests.ledger.toy import EARLIER, LATER, OWN, Toy, TrainConfig
from worldwise.datasets.atomic import JSONDataset
from worldwise.ledger.manifest import DamagedVersionError, Provenance, damage, manifest_of, write_manifest
from worldwise.ledger.plan import Codec, PlanError, Planner
from worldwise.ledger.run import LedgerRun


@pytest.fixture
def toy(tmp_path: Path) -> Toy:
    return Toy(tmp_path)


def test_what_is_stored_does_not_run_again(toy: Toy) -> None:
    assert toy.run(EARLIER) == ["prepare", "train", "report"]
    assert toy.run(OWN) == []
    plans = toy.plan()
    assert all(own.is_cached for own in plans.values())
    assert {name: found.version for name, found in plans["train"].cached.items()} == {
        "model": EARLIER,
        "curves": EARLIER,
    }


def test_a_changed_parameter_makes_stale_what_depends_on_it(toy: Toy) -> None:
    toy.run(EARLIER)
    toy.train = TrainConfig(rate=0.2)
    assert toy.why("train") == "parameter train.rate from 0.1 to 0.2"
    assert toy.why("report") == "model is made anew; curves is made anew"
    assert toy.plan()["prepare"].is_cached
    assert toy.run(OWN) == ["train", "report"]
    assert toy.load("report")[1] == "model of tasks at 0.2"


def test_going_back_finds_the_earlier_versions(toy: Toy) -> None:
    toy.run(EARLIER)
    toy.train = TrainConfig(rate=0.2)
    toy.run(OWN)
    toy.train = TrainConfig()
    plans = toy.plan()
    assert [own.cached[name].version for own, name in ((plans["train"], "model"), (plans["report"], "report"))] == [
        EARLIER,
        EARLIER,
    ]
    assert toy.run(LATER) == []


def test_a_deleted_middle_stage_makes_stale_what_depends_on_it(toy: Toy) -> None:
    toy.run(EARLIER)
    shutil.rmtree(toy.root / "model.json")
    assert toy.why("train") == "model is not stored"
    assert toy.run(OWN) == ["train", "report"]


def test_a_version_without_manifest_does_not_count(toy: Toy) -> None:
    toy.run(EARLIER)
    manifest_of(toy.place("model", EARLIER)).unlink()
    assert toy.why("train") == "model is not stored"
    assert not toy.catalog(LATER)["model"].exists()
    assert toy.run(OWN) == ["train", "report"]


def test_outputs_of_different_runs_do_not_serve(toy: Toy) -> None:
    toy.run(EARLIER)
    toy.run(OWN, only_missing=False)
    shutil.rmtree(toy.place("curves", OWN).parent)
    shutil.rmtree(toy.place("model", EARLIER).parent)
    assert toy.why("train") == "its outputs are of different runs: it was stopped between them"
    assert toy.run(LATER) == ["train", "report"]


def test_a_changed_input_is_named_with_both_versions(toy: Toy) -> None:
    toy.run(EARLIER)
    toy.store(OWN, tasks="other tasks")
    alone = toy.pipeline().only_nodes("train")
    (plan,) = Planner(toy.around(LATER)).plan(alone)
    assert plan.reasons == (f"input tasks from {EARLIER} to {OWN}",)
    assert toy.run(LATER, nodes=("train",)) == ["train"]
    assert toy.load("model") == "model of other tasks at 0.1"
    assert toy.plan()["train"].cached["model"].version == EARLIER, "prepare's own tasks are those of the first run"


def test_an_optional_input_that_comes_makes_stale(toy: Toy) -> None:
    toy.run(EARLIER)
    toy.store(OWN, notes="a note")
    assert toy.why("report") == f"input notes from nothing to {OWN}"
    assert toy.run(OWN) == ["report"]
    assert toy.load("report")[3] == "a note"


def test_equal_content_under_another_version_changes_nothing(toy: Toy) -> None:
    toy.run(EARLIER)
    assert toy.run(OWN, only_missing=False, nodes=("prepare",)) == ["prepare"]
    assert toy.run(LATER) == []


def test_what_is_read_outside_of_the_catalog_counts(toy: Toy) -> None:
    toy.raw["prepare"] = {"the games": "1"}
    toy.run(EARLIER)
    toy.raw["prepare"] = {"the games": "2"}
    assert toy.why("prepare") == "the games has changed"
    assert toy.run(OWN) == ["prepare", "train", "report"]


def test_changed_code_is_named(toy: Toy) -> None:
    toy.run(EARLIER)
    toy.code.digests_by_node["train"] = {"toy": "2", "toy.learner": "1"}
    assert toy.why("train") == "code of toy, toy.learner"
    assert toy.run(OWN) == ["train", "report"]


def test_what_was_stored_outside_of_a_run_is_no_result_of_a_node(toy: Toy) -> None:
    toy.store(EARLIER, tasks="tasks")
    assert toy.why("prepare") == "what is stored was not made by a run"


def test_a_version_that_is_asked_for_serves_whatever_made_it(toy: Toy) -> None:
    toy.run(EARLIER)
    toy.train = TrainConfig(rate=0.2)
    plans = toy.plan(model=EARLIER)
    assert plans["train"].is_cached
    assert plans["train"].cached["curves"].version == EARLIER
    assert plans["report"].is_cached
    assert toy.run(OWN, model=EARLIER) == []


def test_a_clock_that_goes_backwards_changes_no_order(toy: Toy) -> None:
    toy.run(LATER)
    toy.train = TrainConfig(rate=0.2)
    toy.run(EARLIER)
    assert toy.load("model") == "model of tasks at 0.2"
    toy.run(OWN, only_missing=False, nodes=("report",))
    assert toy.load("report", OWN)[1] == "model of tasks at 0.2"


def test_a_flipped_byte_is_found_before_it_is_used(toy: Toy) -> None:
    toy.run(EARLIER)
    toy.run(OWN, only_missing=False)
    place = toy.place("model", OWN)
    content = bytearray(place.read_bytes())
    content[3] ^= 1
    place.write_bytes(content)
    with pytest.raises(DamagedVersionError) as caught:
        toy.run(LATER, only_missing=False, nodes=("report",))
    assert f"model:{OWN} is damaged: {place} has changed since it was stored" in str(caught.value)
    assert f"--load-versions=model:{EARLIER}" in str(caught.value)
    assert f"delete {place.parent} and run train again" in str(caught.value)
    place.write_bytes(content[:-4])
    with pytest.raises(DamagedVersionError, match="bytes instead of"):
        toy.run(LATER, only_missing=False, nodes=("report",))
    shutil.rmtree(toy.place("model", EARLIER).parent)
    with pytest.raises(DamagedVersionError, match="There is no other whole version"):
        toy.run(LATER, only_missing=False, nodes=("report",))


def test_a_named_version_of_a_run_that_is_not_whole_is_refused(toy: Toy) -> None:
    toy.run(EARLIER)
    toy.run(OWN, only_missing=False)
    shutil.rmtree(toy.place("curves", EARLIER).parent)
    with pytest.raises(PlanError, match=f"names model:{EARLIER}, and curves of that run is not stored"):
        toy.plan(model=EARLIER)
    toy.run(LATER, only_missing=False)
    with pytest.raises(PlanError, match="others of another run"):
        toy.plan(model=OWN, curves=LATER)


def test_a_manifest_that_cannot_be_read_is_damage(toy: Toy) -> None:
    toy.run(EARLIER)
    manifest_of(toy.place("model", EARLIER)).write_text("{")
    with pytest.raises(DamagedVersionError, match=f"model:{EARLIER} is damaged: its manifest .* cannot be read"):
        toy.run(OWN, only_missing=False, nodes=("report",), model=EARLIER)


def test_a_file_that_was_added_is_damage(tmp_path: Path) -> None:
    folder = tmp_path / "episodes" / EARLIER / "episodes"
    folder.mkdir(parents=True)
    (folder / "a.parquet").write_text("1")
    manifest = write_manifest(folder, Provenance())
    assert damage(folder, manifest.files) is None
    (folder / "b.parquet").write_text("2")
    assert damage(folder, manifest.files) == f"{folder / 'b.parquet'} was not there when it was stored"
    (folder / "b.parquet").unlink()
    (folder / "a.parquet").unlink()
    assert damage(folder, manifest.files) == f"{folder / 'a.parquet'} is gone"


def _flip(place: Path) -> None:
    content = bytearray(place.read_bytes())
    content[3] ^= 1
    place.write_bytes(content)


def test_instead_of_a_damaged_version_one_that_was_made_in_the_same_way_is_offered(toy: Toy) -> None:
    toy.run(EARLIER)
    toy.train = TrainConfig(rate=0.2)
    toy.run(OWN)
    toy.train = TrainConfig()
    toy.run(LATER, only_missing=False)
    _flip(toy.place("model", LATER))
    with pytest.raises(DamagedVersionError) as caught:
        toy.run("2026-01-04T00.00.00.000Z", only_missing=False, nodes=("report",))
    said = str(caught.value)
    assert f"Use a version that was made in the same way (--load-versions=model:{EARLIER})" in said
    assert OWN not in said, "it is newer, but of other parameters"
    _flip(toy.place("model", EARLIER))
    with pytest.raises(DamagedVersionError) as caught:
        toy.run("2026-01-05T00.00.00.000Z", only_missing=False, nodes=("report",))
    said = str(caught.value)
    assert f"delete {toy.place('model', LATER).parent} and run train again" in said
    assert f"--load-versions=model:{OWN}), but it was made with other parameters, inputs or code" in said
    assert f"kedro worldwise lineage model:{OWN} --parameters" in said


@pytest.mark.parametrize("only_missing", [True, False])
@pytest.mark.parametrize("harm", ["flip", "manifest"])
def test_a_damaged_version_that_is_asked_for_is_told_before_anything_begins(
    toy: Toy, only_missing: bool, harm: str
) -> None:
    toy.store(EARLIER, notes="a note")
    place = toy.place("notes", EARLIER)
    if harm == "flip":
        _flip(place)
    else:
        manifest_of(place).write_text("{")
    with pytest.raises(DamagedVersionError, match=f"notes:{EARLIER} is damaged"):
        toy.run(OWN, only_missing, notes=EARLIER)
    assert toy.ran == [], "the report alone reads it, and comes last"
    assert not toy.place("tasks", OWN).exists()


def reads() -> None:
    """Stands for what a dataset reads with."""


def writes() -> None:
    """Stands for what it writes with."""


def test_what_datasets_read_and_write_with_counts_where_it_is_used(toy: Toy) -> None:
    toy.codecs = {JSONDataset: Codec(reads, writes)}
    toy.code.digests_by_node |= {"reads": {"toy.store": "1"}, "writes": {"toy.store": "1"}}
    toy.run(EARLIER)
    assert toy.run(OWN) == []
    toy.code.digests_by_node["reads"] = {"toy.tables": "1"}
    assert toy.plan()["prepare"].is_cached, "it reads no dataset"
    assert toy.why("train") == "code of toy.tables"
    toy.code.digests_by_node["writes"] = {"toy.store": "2"}
    assert toy.why("prepare") == "code of toy.store"


def test_a_file_without_versions_counts_by_its_content(toy: Toy) -> None:
    toy.unversioned = ("notes",)
    toy.run(EARLIER)
    assert toy.run(OWN) == []
    toy.store(OWN, notes="a note")
    assert toy.why("report").startswith("input notes from nothing to a file ")
    assert toy.run(OWN) == ["report"]
    assert toy.load("report")[3] == "a note"
    assert toy.run(LATER) == []
    toy.store(LATER, notes="another note")
    first, second = toy.why("report").removeprefix("input notes from a file ").split(" to a file ")
    assert first != second
    assert toy.run(LATER) == ["report"]
    assert toy.load("report")[3] == "another note"
    toy.store(LATER, notes="a note")
    assert toy.plan()["report"].cached["report"].version == OWN, "going back finds the earlier one"


@pytest.mark.parametrize("only_missing", [True, False])
def test_the_code_of_what_runs_is_taken_in_before_the_first_node(
    toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, only_missing: bool
) -> None:
    (tmp_path / "toy_estimator.py").write_text("VALUE = 'as the key was made'")
    monkeypatch.syspath_prepend(str(tmp_path))
    toy.code.digests_by_node = {"train": {"toy_estimator": "1"}}
    seen = []

    def edit_and_use() -> None:
        (tmp_path / "toy_estimator.py").write_text("VALUE = 'edited'")
        seen.append(importlib.import_module("toy_estimator").VALUE)

    toy.meanwhile = edit_and_use
    try:
        toy.run(OWN, only_missing)
        assert seen == ["as the key was made"]
    finally:
        sys.modules.pop("toy_estimator", None)


def test_what_cannot_be_looked_at_is_never_what_it_was(toy: Toy) -> None:
    around = toy.around(OWN)
    around.catalog["given"] = MemoryDataset(["a"])
    copy = Pipeline([node(_same, "given", "model", name="copy")])
    LedgerRun(around, OWN).sign(copy.nodes[0])
    keys = {Planner(around).key(copy.nodes[0]).digest for _ in range(3)}
    assert len(keys) == 3


def _same(given: list[str]) -> list[str]:
    return given
