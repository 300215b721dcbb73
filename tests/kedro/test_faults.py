"""Faults that really happen to real runs: signals, disks that fill up or take nothing, two at once, a held database.

Each run is a process of its own, at toy sizes.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import mlflow
import psutil
import pytest
import yaml

from worldwise.ledger.manifest import is_complete
from worldwise.ledger.workspace import WORK_FOLDER, WORKSPACES

MEBIBYTE = 2**20
DATASETS = 7
"""What `data_collection` stores."""


@dataclass(frozen=True)
class Place:
    """Where runs read their configuration and write: a copy of `conf/`, a data root, a folder for temporary files."""

    project: Path
    conf: Path
    root: Path
    tmp: Path
    model: Path

    def begin(self, *arguments: str, pipeline: str = "data_collection", params: str = "") -> subprocess.Popen[str]:
        """A run that has just been started."""
        given = f"data_root={self.root.as_posix()},model.name={self.model.as_posix()},agent.restrict_to_admissible=true"
        command = [sys.executable, "-c", "from kedro.framework.cli.cli import main; main()", "run"]
        command += [f"--pipeline={pipeline}", "--env=test", f"--conf-source={self.conf}", f"--params={given}{params}"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": self.tmp.as_posix(), "HF_HUB_OFFLINE": "1"}
        return subprocess.Popen(
            [*command, *arguments],
            cwd=self.project,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, *arguments: str, pipeline: str = "data_collection", params: str = "") -> tuple[int, str]:
        """Exit code and everything that was said, in one line."""
        return ended(self.begin(*arguments, pipeline=pipeline, params=params))

    def manifests(self) -> list[Path]:
        return sorted(self.root.rglob("_manifest.json"))


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    said, _ = process.communicate(timeout=280)
    return process.returncode, " ".join(said.split())


def until(condition: Callable[[], bool], process: subprocess.Popen[str], pause: float = 0.02) -> None:
    """Waits while the process lives."""
    while not condition():
        assert process.poll() is None, f"the run ended too early: {ended(process)}"
        time.sleep(pause)


@pytest.fixture
def place(project: Path, tiny_folder: Path, tmp_path: Path) -> Place:
    made = Place(project, tmp_path / "conf", tmp_path / "data", tmp_path / "tmp", tiny_folder)
    shutil.copytree(project / "conf", made.conf, ignore=shutil.ignore_patterns("local"))
    (made.conf / "local").mkdir()
    made.tmp.mkdir()
    return made


@pytest.fixture
def tracked(place: Place) -> Path:
    """A database that the runs of the place are tracked in."""
    database = place.tmp.parent / "tracking.db"
    settings = {"enabled": True, "tracking_uri": f"sqlite:///{database.as_posix()}", "timeout_s": 1}
    (place.conf / "test" / "mlflow.yml").write_text(yaml.safe_dump(settings))
    return database


@pytest.fixture
def small_disk(place: Place) -> Iterator[Path]:
    """The data root as a disk of 48 MiB of its own."""
    place.root.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=48m", "tmpfs", str(place.root)]
    if os.geteuid() or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mounting a disk needs rights that this process does not have")
    yield place.root
    subprocess.run(["umount", "-l", str(place.root)], check=True)


@pytest.mark.timeout(600)
def test_a_disk_that_fills_up_loses_nothing_that_was_finished(place: Place, small_disk: Path) -> None:
    running = place.begin()
    until(lambda: bool(place.manifests()), running)
    filler = small_disk / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (MEBIBYTE, 4096, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue
    code, said = ended(running)
    assert code == 1
    assert "No space left on device" in said
    finished = place.manifests()
    assert finished
    filler.unlink()
    code, said = place.run("--only-missing-outputs")
    assert code == 0, said
    assert set(finished) <= set(place.manifests()), "what was finished is still there"
    stored = [path.parent / path.parent.parent.name for path in place.manifests()]
    assert all(is_complete(path) for path in stored)
    assert len({path.name for path in stored}) == DATASETS


@pytest.mark.timeout(600)
def test_a_disk_that_takes_nothing_is_named_and_can_still_be_read(place: Place, small_disk: Path) -> None:
    assert place.run()[0] == 0
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    code, said = place.run()
    assert code == 1
    assert f"parameter data_root is '{place.root.as_posix()}'" in said
    assert "Read-only file system" in said
    code, said = place.run("--only-missing-outputs")
    assert code == 0, "everything is there to be read: " + said
    assert "deprecat" not in said.lower()


@pytest.mark.timeout(600)
def test_two_runs_at_once_share_what_they_make(place: Place) -> None:
    first = place.begin("--only-missing-outputs", params=",collect.episodes_per_task=10")
    until(lambda: bool(list(place.root.glob(f"{WORK_FOLDER}/{WORKSPACES}/collect_episodes*"))), first)
    # Held in the middle of its node, the first one is there to be waited for however fast the machine is.
    first.send_signal(signal.SIGSTOP)
    second = place.begin("--only-missing-outputs", params=",collect.episodes_per_task=10")
    assert second.stdout is not None
    heard = ""
    while "waits for run" not in " ".join(heard.split()):
        line = second.stdout.readline()
        assert line, heard
        heard += line
    first.send_signal(signal.SIGCONT)
    outcomes = [ended(first), ended(second)]
    assert [code for code, _ in outcomes] == [0, 0], outcomes
    assert "takes the results of run" in outcomes[1][1], outcomes
    stored = place.manifests()
    assert len({path.parent.parent.name for path in stored}) == DATASETS
    assert place.run("--only-missing-outputs", params=",collect.episodes_per_task=10")[0] == 0
    assert place.manifests() == stored, "everything is there: nothing is made a second time"


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("number", "all_hear"),
    [(signal.SIGINT, False), (signal.SIGTERM, False), (signal.SIGTERM, True)],
    ids=["SIGINT", "SIGTERM", "SIGTERM to all"],
)
def test_a_stop_ends_in_order_and_says_how_to_go_on(
    place: Place, tracked: Path, number: signal.Signals, all_hear: bool
) -> None:
    running = place.begin(pipeline="rl_only", params=",policy.iterations=500,compute.workers=2,ledger.save_every_s=0")
    until(lambda: bool(list(place.root.glob(f"{WORK_FOLDER}/{WORKSPACES}/train_policy*/state-*"))), running)
    family = [running.pid, *(own.pid for own in psutil.Process(running.pid).children(recursive=True))]
    assert len(family) > 2, "the run, and the workers that play"
    if all_hear:
        for pid in family[1:]:
            os.kill(pid, number)
        # Time to see a worker die, if it did.
        time.sleep(1.0)
    running.send_signal(number)
    code, said = ended(running)
    assert code != 0
    assert f"stopped by {number.name}" in said
    assert "what was stored before is kept. To go on: kedro run --pipeline=rl_only" in said
    assert said.endswith("--only-missing-outputs")
    limit = time.monotonic() + 10
    while any(psutil.pid_exists(pid) for pid in family) and time.monotonic() < limit:
        time.sleep(0.05)
    assert not [pid for pid in family if psutil.pid_exists(pid)], "no process is left"
    client = mlflow.MlflowClient(f"sqlite:///{tracked}")
    experiment = client.get_experiment_by_name("worldwise")
    assert experiment is not None
    assert {run.info.status for run in client.search_runs([experiment.experiment_id])} >= {"KILLED"}
    assert not client.search_runs([experiment.experiment_id], "attributes.status = 'RUNNING'")


@pytest.mark.timeout(600)
def test_a_stop_lets_the_state_that_is_being_saved_finish(place: Place) -> None:
    running = place.begin(pipeline="rl_only", params=",policy.iterations=500,compute.workers=1,ledger.save_every_s=0")
    states = f"{WORK_FOLDER}/{WORKSPACES}/train_policy*"

    def held_in_a_save() -> bool:
        """Whether it is, after a stop in a save that is under way; it runs on otherwise."""
        if not list(place.root.glob(f"{states}/.state-*.part/*")):
            return False
        running.send_signal(signal.SIGSTOP)
        time.sleep(0.1)
        if list(place.root.glob(f"{states}/.state-*.part")):
            return True
        running.send_signal(signal.SIGCONT)
        return False

    until(held_in_a_save, running, pause=0.001)
    (part,) = place.root.glob(f"{states}/.state-*.part")
    running.send_signal(signal.SIGTERM)
    running.send_signal(signal.SIGCONT)
    code, said = ended(running)
    assert code != 0
    assert "stopped by SIGTERM" in said
    assert "deprecat" not in said.lower(), "what libraries say to their developers does not reach the user"
    assert not part.exists()
    state = part.with_name(part.name.split(".")[1])
    assert (state / "files.json").is_file(), "the state that was being saved is whole"


@pytest.mark.timeout(900)
def test_a_killed_runs_curves_go_on_in_the_tracker(place: Place, tracked: Path) -> None:
    params = ",policy.iterations=8,compute.workers=1,ledger.save_every_s=0"
    client = mlflow.MlflowClient(f"sqlite:///{tracked}")
    artifacts = tracked.with_name("artifacts")
    experiment = client.create_experiment("worldwise", artifact_location=artifacts.as_uri())
    running = place.begin(pipeline="rl_only", params=params)
    # The third state is saved after two iterations at least.
    until(lambda: bool(list(place.root.glob(f"{WORK_FOLDER}/{WORKSPACES}/train_policy*/state-000003"))), running)
    os.killpg(running.pid, signal.SIGKILL)
    ended(running)
    killed = {run.info.run_name: run for run in client.search_runs([experiment])}
    assert killed["train_policy_from_base"].info.status == "RUNNING", "nobody could say more"
    child = killed["train_policy_from_base"].info.run_id
    code, said = place.run("--only-missing-outputs", pipeline="rl_only", params=params)
    assert code == 0, said
    assert "goes on from the state" in said
    found = {run.info.run_id: run for run in client.search_runs([experiment])}
    assert [run.info.run_id for run in found.values() if run.info.run_name == "train_policy_from_base"] == [child]
    assert found[child].info.status == "FINISHED"
    before, after = (run.data.tags["mlflow.parentRunId"] for run in (killed["train_policy_from_base"], found[child]))
    assert [found[run].info.status for run in (before, after)] == ["KILLED", "FINISHED"]
    curves = {
        name: sorted(point.step for point in client.get_metric_history(child, name))
        for name in found[child].data.metrics
        if not name.startswith("system/")
    }
    assert curves
    everywhere = max(curves.values(), key=len)
    assert everywhere == list(range(everywhere[0], everywhere[0] + 8)), "neither gaps nor duplicates"
    assert all(len(set(steps)) == len(steps) for steps in curves.values())
    (model,) = [path for path in place.manifests() if path.parent.parent.name == "rl_only_model"]
    made = json.loads(model.read_text())["made"]
    assert (made["mlflow_run"], made["key"]) == (child, found[child].data.tags["ledger.key"])
    config = artifacts / after / "artifacts" / "config"
    catalog = json.loads((config / "catalog.json").read_text())
    assert catalog["base_model"]["filepath"].startswith(place.root.as_posix())
    assert json.loads((config / "globals.json").read_text()) == {"data_root": place.root.as_posix()}
    assert json.loads((config / "parameters.json").read_text())["policy.iterations"] == 8


@pytest.mark.timeout(600)
def test_a_database_that_is_held_stops_nothing(place: Place, tracked: Path) -> None:
    holder = sqlite3.connect(tracked, isolation_level=None)
    holder.execute("CREATE TABLE held (x)")
    holder.execute("BEGIN EXCLUSIVE")
    code, said = place.run()
    holder.execute("ROLLBACK")
    assert code == 0, said
    assert said.count("does not answer, the run goes on without it") == 1
