"""The benchmarks account for time without gaps, say where they were run, and run at toy sizes."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil
import pytest

from worldwise.stages.acting_scores import ActingScore
from worldwise.stages.difficulty import DifficultyReport
from worldwise.stages.intervals import counted
from worldwise.stages.world_model_scores import WorldModelReport, WorldModelScore

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"


def load(name: str) -> ModuleType:
    """A benchmark as a module."""
    spec = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def benchmark() -> Iterator[Any]:
    """Loads benchmarks and forgets them afterwards."""
    before = dict(sys.modules)
    sys.path.insert(0, str(BENCHMARKS))
    yield load
    sys.path.remove(str(BENCHMARKS))
    for name in ("common", "iteration", "main_job"):
        if name not in before:
            sys.modules.pop(name, None)


def test_every_moment_is_charged_to_the_innermost_part(benchmark: Any) -> None:
    moments = iter([(0.0, 0.0), (1.0, 0.5), (3.0, 1.5), (7.0, 2.0), (8.0, 3.0), (10.0, 4.0)])
    clock = benchmark("iteration").Clock(lambda: next(moments), "nothing")
    assert clock.take() == {}
    with clock.part("outer"), clock.part("inner"):
        pass
    # Up to 1 nothing ran, up to 3 the outer part alone, to 7 the inner one, to 8 the outer one again, to 10 nothing.
    assert clock.take() == {"nothing": (3.0, 1.5), "outer": (3.0, 2.0), "inner": (4.0, 0.5)}


def test_wrapped_functions_are_charged(benchmark: Any) -> None:
    class Work:
        def inside(self) -> str:
            return "done"

        def all(self) -> str:
            return self.inside()

    times = iter(float(number) for number in range(100))
    clock = benchmark("iteration").Clock(lambda: (next(times), 0.0))
    clock.wrap(Work, "inside", "small")
    clock.wrap(Work, "all", "large")
    clock.take()
    assert Work().all() == "done"
    spent = {part: wall for part, (wall, _) in clock.take().items()}
    assert spent["small"] == 1.0
    assert spent["large"] == 2.0


def test_a_failing_function_ends_its_part(benchmark: Any) -> None:
    class Work:
        def fail(self) -> None:
            raise ValueError("no")

    times = iter(float(number) for number in range(100))
    clock = benchmark("iteration").Clock(lambda: (next(times), 0.0), "nothing")
    clock.wrap(Work, "fail", "work")
    clock.take()
    with pytest.raises(ValueError, match="no"):
        Work().fail()
    assert clock.take() == {"nothing": (2.0, 0.0), "work": (1.0, 0.0)}


def test_the_main_job_reports_what_there_is(benchmark: Any, tmp_path: Path) -> None:
    main_job = benchmark("main_job")

    def score(successes: int) -> dict[str, Any]:
        names = [name for name, field in ActingScore.model_fields.items() if field.annotation is float]
        numbers = dict.fromkeys(names, 0.0)
        success = counted(successes, 100)
        return ActingScore(
            success=success, success_by_type={}, terminations={}, invalid_episodes=0, **numbers
        ).model_dump()

    def evaluation(successes: int) -> dict[str, Any]:
        scores = {split: {"0": score(successes)} for split in main_job.SPLITS}
        return {"acting": {"model": "x", "restricted": False, "scores": scores}}

    rows = main_job.difference_rows(3, {"base": evaluation(20), "policy": evaluation(50)})
    assert rows == [["3", "policy", "0", rows[0][3], "yes"]]
    assert rows[0][3].startswith("+30.0 [+20")
    assert main_job.difference_rows(3, {"base": evaluation(20), "rwml": evaluation(22)})[0][4] == "no"
    assert main_job.games_folder(tmp_path, official=True) is None
    assert "# The main job over seeds" in main_job.report([0, 1], tmp_path, True, {})


def test_the_main_job_shows_what_rwml_learned(benchmark: Any, tmp_path: Path) -> None:
    def store(name: str, content: dict[str, Any]) -> None:
        folder = tmp_path / "seed_7" / "08_reporting" / "household" / name / "2026-01-01T00.00.00.000Z"
        folder.mkdir(parents=True)
        (folder / name).write_text(json.dumps(content))

    def kinds(exact: dict[str, int]) -> dict[str, Any]:
        scores = {
            kind: WorldModelScore(similarity=0.5, text_ratio=0.5, exact=counted(own, 20), parsed=counted(20, 20))
            for kind, own in exact.items()
        }
        report = WorldModelReport(model="x", overall=scores["open"], by_kind=scores, by_split={})
        return {"world_model": report.model_dump()}

    difficulty = DifficultyReport(
        **{name: 0 for name in DifficultyReport.model_fields if name not in {"easy_by_kind", "in_band"}},
        easy_by_kind={},
        in_band=True,
    )
    changed = {"easy_share": 0.285, "tau_d": 0.026, "kept": 800, "transitions_main": 1000}
    main_job = benchmark("main_job")
    assert main_job.learning_part([7], tmp_path) == "", "nothing is there yet"
    store("base_evaluation.json", kinds({"open": 5, "take": 20}))
    assert main_job.learning_part([7], tmp_path) == "", "RWML has not run yet"
    store("rwml_evaluation.json", kinds({"open": 15, "take": 20}))
    store("difficulty_metrics.json", difficulty.model_copy(update=changed).model_dump())
    rwml = {"tau_d": 0.02, "mixed_groups": 0.25, "reward_first": 0.4, "reward_last": 0.6}
    store("rwml_curves.json", {"summary": rwml, "rows": []})
    text = main_job.learning_part([6, 7], tmp_path)
    assert "| 7 | 28.5 % | 0.026 | 800 of 1000 | 0.02 | 25 % | 0.40 to 0.60 |" in text
    assert "| 7 | open | 25 % (5/20) | 75 % (15/20) |" in text


def test_costs_count_processes_that_nobody_waits_for(benchmark: Any) -> None:
    burn = "import time\nbegun = time.process_time()\nwhile time.process_time() < begun + 0.5: pass\n"
    parent = f"import subprocess, sys, time\nsubprocess.Popen([sys.executable, '-c', {burn + 'time.sleep(90)'!r}])\n"
    with subprocess.Popen([sys.executable, "-c", parent + "time.sleep(90)"]) as running:
        try:
            deadline = time.monotonic() + 60
            used: dict[int, float] = {}
            while sum(used.values()) < 0.5 and time.monotonic() < deadline:
                memory, used = benchmark("main_job").tree_costs(running.pid)
                time.sleep(0.1)
            assert len(used) == 2
            assert sum(used.values()) >= 0.5
            assert memory > 1e6
        finally:
            for process in [*psutil.Process(running.pid).children(), running]:
                process.kill()


def test_reports_name_machine_and_commit(
    benchmark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    common = benchmark("common")
    monkeypatch.setattr(sys, "argv", ["benchmarks/x.py", "--games", "2", "--out", "there.md", "--turns", "3"])
    out = tmp_path / "results" / "x.md"
    text = common.publish("Speed", common.setting(more=1), [("Words.", (["a"], [["1|2"]]))], out)
    assert out.read_text(encoding="utf-8") == text == capsys.readouterr().out.removesuffix("\n")
    assert "`python benchmarks/x.py --games 2 --turns 3`" in text
    for fact in ("machine", "cores", "Python", "more: 1", "commit", "load"):
        assert fact in text
    assert "| 1\\|2 |" in text


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_an_iteration_is_split_by_part(tmp_path: Path, workers: int) -> None:
    out = tmp_path / "iteration.md"
    command = [sys.executable, str(BENCHMARKS / "iteration.py"), "--small", "--turns", "4"]
    environment = {**os.environ, "PYTHONPATH": str(BENCHMARKS.parent / "src"), "OMP_NUM_THREADS": "1"}
    subprocess.run(
        [*command, f"--workers={workers}", f"--out={out}"],
        check=True,
        capture_output=True,
        env=environment,
        timeout=280,
    )
    rows = [line.split(" | ") for line in out.read_text(encoding="utf-8").splitlines() if " s wall" not in line]
    parts = {row[0].removeprefix("| "): row for row in rows if len(row) == 5}
    for part in ("world", "engine: prefill", "engine: decode", "scheduler", "forward", "backward", "optimizer"):
        assert part in parts
    assert float(parts["engine: decode"][2]) > 0.0
    shares = [float(row[4].split(" ")[0]) for name, row in parts.items() if name not in ("Part", "---")]
    assert sum(shares) == pytest.approx(100.0, abs=1.0)


def test_the_clock_counts_the_outermost_call_alone(benchmark: Any) -> None:
    ledger = benchmark("ledger")

    class Store:
        def outer(self) -> int:
            time.sleep(0.02)
            return self.inner()

        def inner(self) -> int:
            time.sleep(0.03)
            return 1

    clock = ledger.Clock()
    clock.around(Store, "outer", "outside")
    clock.around(Store, "inner", "inside")
    assert Store().outer() == 1
    assert clock.calls == {"outside": 1}
    assert clock.seconds["outside"] >= 0.05
    columns, rows = ledger.overhead(
        {
            "seconds": {"MLflow": 1.0, "states inside of nodes": 2.0, ledger.WHOLE: 100.0},
            "calls": {"MLflow": 10, "states inside of nodes": 4},
        }
    )
    assert rows == [
        ["states inside of nodes", "4", "2.00", "2.00 %"],
        ["MLflow", "10", "1.00", "1.00 %"],
        ["all of it", "", "3.00", "3.00 %"],
        ["all but the states", "", "1.00", "1.00 %"],
        [ledger.WHOLE, "", "100.0", ""],
    ]
    assert len(columns) == len(rows[0])
