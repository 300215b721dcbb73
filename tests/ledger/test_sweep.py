"""What is removed serves nobody."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ledger.toy import EARLIER, LATER, OWN, Toy, TrainConfig
from worldwise.ledger.manifest import manifest_of
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
