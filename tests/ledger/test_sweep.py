"""What is removed serves nobody."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ledger.toy import EARLIER, LATER, OWN, Toy, TrainConfig
from worldwise.ledger.manifest import Provenance, damage, manifest_of, read_manifest, write_manifest
from worldwise.ledger.provenance import set_made
from worldwise.ledger.publish import keep_scratch, scratch_folder, store_kept
from worldwise.ledger.stored import stored_versions
from worldwise.ledger.sweep import leftovers
from worldwise.ledger.workspace import KEY_SHOWN, WORK_FOLDER, WORKSPACES


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Toy:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    return Toy(tmp_path / "data")


def _paths(toy: Toy, alive: tuple[str, ...] = (), keep: int | None = None) -> list[Path]:
    return [own.path for own in leftovers(toy.root, alive, keep)]


def test_whole_versions_stay(toy: Toy) -> None:
    toy.run(EARLIER)
    assert _paths(toy) == []


def test_unfinished_versions_go_unless_their_run_is_at_work(toy: Toy) -> None:
    toy.run(EARLIER)
    manifest_of(toy.place("model", EARLIER)).unlink()
    manifest_of(toy.place("curves", EARLIER)).write_text("{")
    found = leftovers(toy.root, ())
    assert {own.path: own.why for own in found} == {
        toy.place("model", EARLIER).parent: "unfinished: it has no manifest",
        toy.place("curves", EARLIER).parent: "its manifest cannot be read",
    }
    assert all(own.size > 0 for own in found)
    assert _paths(toy, alive=(EARLIER,)) == []
    for own in found:
        own.remove()
    assert _paths(toy) == []
    assert not toy.place("model", EARLIER).parent.exists()


def test_what_killed_processes_were_writing_goes(toy: Toy, tmp_path: Path) -> None:
    toy.run(EARLIER)
    (toy.root / ".model.json.abc.part").write_text("half")
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
    scratch = tmp_path / "temporary" / f"worldwise-scratch-{ended.pid}-model-xyz"
    scratch.mkdir()
    (scratch / "weights").write_text("12345")
    scratch.with_name(f"{scratch.name}.json").write_text("{}")
    assert _paths(toy) == [toy.root / ".model.json.abc.part", scratch, scratch.with_name(f"{scratch.name}.json")]
    assert toy.root / ".model.json.abc.part" not in _paths(toy, alive=(OWN,))


def test_old_versions_go_but_not_what_newer_ones_were_made_from(toy: Toy) -> None:
    toy.run(EARLIER)
    toy.train = TrainConfig(rate=0.2)
    toy.run(OWN)
    toy.train = TrainConfig(rate=0.3)
    toy.run(LATER)
    gone = {path.parent.name: path.name for path in _paths(toy, keep=2)}
    assert gone == {"model.json": EARLIER, "curves.json": EARLIER, "report.json": EARLIER}
    only = set(_paths(toy, keep=1))
    assert {
        toy.place(name, version).parent for name in ("model", "curves", "report") for version in (EARLIER, OWN)
    } == only
    assert toy.place("tasks", EARLIER).parent not in only, "the newest model was made from it"
    assert _paths(toy, keep=3) == []
    for own in leftovers(toy.root, (), 1):
        own.remove()
    assert toy.run("2026-01-09T00.00.00.000Z") == []


def test_while_a_run_is_at_work_old_versions_stay(toy: Toy) -> None:
    toy.run(EARLIER)
    toy.train = TrainConfig(rate=0.2)
    toy.run(OWN)
    assert len(_paths(toy, keep=1)) == 3
    assert _paths(toy, alive=(LATER,), keep=1) == []


def test_workspaces_go_once_their_results_are_stored(toy: Toy) -> None:
    toy.run(EARLIER)
    key = stored_versions(toy.catalog(LATER)["model"])[0].manifest.made.key
    places = toy.root / WORK_FOLDER / WORKSPACES
    for name in (f"train-{key[:KEY_SHOWN]}", "train-of-another-key", "train-long-ago"):
        (places / name).mkdir(parents=True)
    os.utime(places / "train-long-ago", (0, 0))
    assert set(_paths(toy)) == {places / f"train-{key[:KEY_SHOWN]}", places / "train-long-ago"}
    assert _paths(toy, alive=(LATER,)) == []


def _workspace(toy: Toy, key: str) -> Path:
    """The workspace of a training node that was killed."""
    folder = toy.root / WORK_FOLDER / WORKSPACES / f"train-{key[:KEY_SHOWN]}"
    (folder / "state-000001").mkdir(parents=True)
    return folder


def test_the_workspace_of_a_node_that_was_killed_between_two_outputs_stays(toy: Toy) -> None:
    toy.run(EARLIER)
    workspace = _workspace(toy, stored_versions(toy.catalog(LATER)["model"])[0].manifest.made.key)
    shutil.rmtree(toy.place("curves", EARLIER).parent)
    assert not toy.plan()["train"].is_cached
    assert workspace not in _paths(toy), "the node runs again, and goes on from there"
    toy.run(OWN, only_missing=False)
    shutil.rmtree(toy.place("model", OWN).parent)
    assert not toy.plan()["train"].is_cached
    assert workspace not in _paths(toy), "all outputs are there, but of different runs"
    toy.run(LATER)
    assert toy.plan()["train"].is_cached
    assert workspace in _paths(toy)


def test_a_manifest_that_does_not_say_what_else_the_node_stores_removes_no_workspace(toy: Toy) -> None:
    toy.run(EARLIER)
    for name in ("model", "curves"):
        manifest = read_manifest(toy.place(name, EARLIER))
        assert manifest is not None
        write_manifest(toy.place(name, EARLIER), manifest.made.model_copy(update={"outputs": ()}))
    assert _workspace(toy, stored_versions(toy.catalog(LATER)["model"])[0].manifest.made.key) not in _paths(toy)


def test_a_kept_result_that_was_stored_later_removes_no_workspace(toy: Toy) -> None:
    made = Provenance(run_id=EARLIER, node="train", key="0123456789abcdef01", outputs=("policy", "curves"))
    set_made(made)
    try:
        scratch = scratch_folder("policy")
    finally:
        set_made(None)
    (scratch / "weights").write_text("trained for days")
    target = toy.root / "policy" / EARLIER / "policy"
    keep_scratch(scratch, target)
    (kept,) = (path for path in scratch.parent.glob("worldwise-kept-*") if path.is_dir())
    assert store_kept(kept, target).made == made
    workspace = _workspace(toy, made.key)
    assert workspace not in _paths(toy)
    curves = toy.root / "curves" / EARLIER / "curves"
    curves.mkdir(parents=True)
    write_manifest(curves, made)
    assert workspace in _paths(toy)


def test_what_lies_in_a_whole_version_is_no_leftover(toy: Toy) -> None:
    stored = toy.root / "episodes" / EARLIER / "episodes"
    stored.mkdir(parents=True)
    for name in ("a.parquet", ".b.parquet.abc.part"):
        (stored / name).write_text(name)
    manifest = write_manifest(stored, Provenance())
    (stored.parent / ".episodes.abc.part").mkdir()
    (toy.root / ".other.abc.part" / ".inner.abc.part").mkdir(parents=True)
    found = leftovers(toy.root, ())
    assert {own.path for own in found} == {stored.parent / ".episodes.abc.part", toy.root / ".other.abc.part"}
    for own in found:
        own.remove()
    assert damage(stored, manifest.files) is None
    manifest_of(stored).unlink()
    assert _paths(toy) == [stored.parent], "an unfinished one goes as a whole"
