"""Runs that really die: SIGKILL at random moments, then the same command again, until it ends."""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from kedro.framework.project import pipelines

from worldwise.ledger.workspace import WORK_FOLDER, WORKSPACES
from worldwise.tracking.hook import TRACKED_TAGS

TIMES = ("seconds", "evaluated_at")
STATES = f"{WORK_FOLDER}/{WORKSPACES}/*/state-*"
MOMENT = re.compile(r"\d{4}-\d{2}-\d{2}T[\d:]+\+00:00")
SECONDS = re.compile(r"(\| seconds\w* \| |<td>seconds\w*</td><td>)[\d.,e+-]+")
"""A row of a table."""


def _command(root: Path, tiny: Path, workers: int) -> list[str]:
    params = (
        f"data_root={root.as_posix()},model.name={tiny.as_posix()},agent.restrict_to_admissible=true,"
        f"compute.workers={workers},ledger.save_every_s=0,rollout.slots=4,collect.episodes_per_task=6,"
        "policy.iterations=6,rwml.max_updates=6,subsample.sft.max_updates=6"
    )
    start = "from kedro.framework.cli.cli import main; main()"
    return [
        sys.executable,
        "-c",
        start,
        "run",
        "--pipeline=rwml_then_rl",
        "--env=test",
        "--only-missing-outputs",
        f"--params={params}",
    ]


def _environment(tmp: Path) -> dict[str, str]:
    tmp.mkdir(exist_ok=True)
    return {**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": tmp.as_posix(), "HF_HUB_OFFLINE": "1"}


def _to_the_end(command: list[str], project: Path, tmp: Path) -> str:
    result = subprocess.run(
        command, cwd=project, env=_environment(tmp), capture_output=True, text=True, check=False, timeout=280
    )
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
    return result.stdout


def _killed(
    seconds: float, in_node: bool, root: Path, command: list[str], project: Path, tmp: Path, states: str = STATES
) -> bool:
    """Kills a run after so many seconds, or once a node has saved one of `states`; False where it had ended before."""
    with (
        (tmp / "log").open("a") as log,
        subprocess.Popen(
            command,
            cwd=project,
            env=_environment(tmp),
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as process,
    ):
        before = set(root.glob(states))
        limit = time.monotonic() + (240.0 if in_node else seconds)
        while process.poll() is None and time.monotonic() < limit:
            if in_node and set(root.glob(states)) - before:
                break
            time.sleep(0.02)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            return True
        assert process.returncode == 0
        return False


def _results(root: Path) -> dict[str, set[str]]:
    """File of a dataset -> digests of it in all stored versions, of which each counts: what a killed run left as well.

    Bytes count, of what tells how long it took and when it was (curves, evaluations, the report) all but that. The
    manifest lies beside what is stored and names the run.
    """
    found: dict[str, set[str]] = {}
    for manifest in sorted(root.rglob("_manifest.json")):
        stored = manifest.parent / manifest.parent.parent.name
        for path in sorted(stored.rglob("*")) if stored.is_dir() else [stored]:
            if path.is_file():
                name = f"{manifest.parent.parent.relative_to(root)}/{path.relative_to(stored.parent)}"
                found.setdefault(name, set()).add(hashlib.sha256(_content(path, path == stored)).hexdigest())
    return found


def _content(path: Path, alone: bool) -> bytes:
    """The bytes of a file without times, where it is a dataset of its own that has some."""
    if alone and path.suffix == ".json":
        return json.dumps(_timeless(json.loads(path.read_text(encoding="utf-8"))), sort_keys=True).encode()
    if alone and path.suffix in (".md", ".html"):
        return SECONDS.sub(r"\1", MOMENT.sub("", path.read_text(encoding="utf-8"))).encode()
    return path.read_bytes()


def _timeless(value: object) -> object:
    if isinstance(value, dict):
        return {key: _timeless(inner) for key, inner in value.items() if not any(part in key for part in TIMES)}
    return [_timeless(inner) for inner in value] if isinstance(value, list) else value


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("seed", "kills", "workers"),
    [
        (0, 3, 1),
        pytest.param(1, 20, 1, marks=pytest.mark.slow),
        pytest.param(2, 6, 2, marks=pytest.mark.slow),
    ],
    ids=["some", "twenty", "workers"],
)
def test_a_run_that_is_killed_again_and_again_ends_with_the_same_bits(
    project: Path, tiny_folder: Path, tmp_path: Path, seed: int, kills: int, workers: int
) -> None:
    tmp = tmp_path / "tmp"
    _to_the_end(_command(tmp_path / "whole", tiny_folder, workers), project, tmp)
    draws = random.Random(seed)
    died, ended = 0, 0
    while died < kills:
        root = tmp_path / f"killed_{ended}"
        # Every other one in the middle of a node for sure, however fast the machine is.
        command = _command(root, tiny_folder, workers)
        if _killed(draws.uniform(4.0, 20.0), died % 2 == 0, root, command, project, tmp):
            died += 1
        else:
            ended += 1
    roots = sorted(tmp_path.glob("killed_*"))
    assert roots
    whole = _results(tmp_path / "whole")
    assert {Path(name).suffix for name in whole} >= {".parquet", ".safetensors", ".json", ".md", ".html"}
    for root in roots:
        _to_the_end(_command(root, tiny_folder, workers), project, tmp)
        assert _results(root) == whole
    assert "goes on from the state" in (tmp / "log").read_text(), "some node was stopped in its middle"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_node_that_learns_or_collects_goes_on_where_it_was_killed(
    project: Path, tiny_folder: Path, tmp_path: Path
) -> None:
    tmp, root = tmp_path / "tmp", tmp_path / "killed"
    _to_the_end(_command(tmp_path / "whole", tiny_folder, 1), project, tmp)
    command = _command(root, tiny_folder, 1)
    nodes = [node.name for node in pipelines["rwml_then_rl"].nodes if node.tags & TRACKED_TAGS]
    assert {"collect_episodes", "finetune_auxiliary", "midtrain_world_model", "train_policy"} <= set(nodes)
    nodes.remove("tune_format")  # is off here
    for name in nodes:
        assert _killed(0.0, True, root, command, project, tmp, f"{WORK_FOLDER}/{WORKSPACES}/{name}*/state-*"), name
    said = _to_the_end(command, project, tmp) + (tmp / "log").read_text()
    assert all(f"{name} goes on from the state" in " ".join(said.split()) for name in nodes)
    assert _results(root) == _results(tmp_path / "whole")
