"""The main job over several seeds, beside policy RL alone, with what it took: one Markdown report.

    python benchmarks/main_job.py --seeds 0 1 2 --root runs --out benchmarks/results/main_job.md

For every seed, in a data root of its own (`<root>/seed_<n>`):

1. `kedro run --pipeline=rwml_then_rl`: the main job from nothing;
2. `kedro run --pipeline=rl_only --only-missing-outputs`: the same policy RL from the base model, on the same tasks;
3. with `--official`, `kedro run --env=official --pipelines=evaluation`: the stored models on ALFWorld's own games.

The first step of all seeds comes first, then the second of all. A step that has ended is not run again, so the
benchmark can be stopped and started, and the report is written after every step with what there is by then. Wall
seconds, CPU seconds of all processes and the largest proportional memory (PSS) of the process tree are kept in
`<root>/costs.json`, with the commit that the step ran at.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
from common import commit

from worldwise.reports.results import ordered
from worldwise.reports.summary import markdown_table
from worldwise.stages.acting_scores import ActingReport, ActingScore
from worldwise.stages.difficulty import DifficultyReport
from worldwise.stages.intervals import Proportion, difference_interval, pooled
from worldwise.stages.world_model_scores import WorldModelReport

PROJECT = Path(__file__).resolve().parents[1]
SPLITS = ("valid_seen", "valid_unseen")
Evaluations = dict[str, dict[str, Any]]


def steps(official: bool) -> dict[str, list[str]]:
    """Step -> arguments of `kedro run`."""
    known = {
        "rwml_then_rl": ["--pipeline=rwml_then_rl"],
        "rl_only": ["--pipeline=rl_only", "--only-missing-outputs"],
    }
    if official:
        known["official"] = ["--env=official", "--pipelines=evaluation"]
    return known


def run_step(arguments: list[str], seed: int, root: Path, env: str | None) -> dict[str, Any]:
    """Run one step and return what it cost, and at which commit it ran.

    Raises:
        SystemExit: the run failed; its last lines are in the message.
    """
    command = [str(Path(sys.executable).with_name("kedro")), "run", *arguments]
    command.append(f"--params=seed={seed},data_root={root}")
    if env and not any(argument.startswith("--env") for argument in arguments):
        command.append(f"--env={env}")
    log = root / "run.log"
    at = commit()
    begun = time.monotonic()
    with log.open("a") as out:
        running = subprocess.Popen(command, cwd=PROJECT, stdout=out, stderr=subprocess.STDOUT)
        largest = 0
        cpu: dict[int, float] = {}
        while running.poll() is None:
            memory, used = tree_costs(running.pid)
            largest = max(largest, memory)
            cpu |= used
            time.sleep(1.0)
    seconds = time.monotonic() - begun
    if running.returncode:
        tail = "\n".join(log.read_text().splitlines()[-20:])
        raise SystemExit(f"{' '.join(command)} ended with {running.returncode}:\n{tail}")
    used = {"wall": round(seconds), "cpu": round(sum(cpu.values())), "gigabytes": round(largest / 1e9, 2)}
    return {**used, "commit": at}


def tree_costs(pid: int) -> tuple[int, dict[int, float]]:
    """What a process and its descendants use now: bytes, memory that they share counted once, and CPU seconds of each.

    Worker processes are no children that the run waits for, so the system adds their seconds to nobody's: they are
    read from each while it lives. What one uses after its last reading is missed, a second at most.
    """
    total, used = 0, {}
    with contextlib.suppress(psutil.NoSuchProcess):
        root = psutil.Process(pid)
        for process in [root, *root.children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                times = process.cpu_times()
                used[process.pid] = times.user + times.system
                total += process.memory_full_info().pss
    return total, used


def evaluations(root: Path, games: str) -> Evaluations:
    """Model name -> the latest stored evaluation on these games."""
    folders = sorted((root / "08_reporting" / games).glob("*_evaluation.json"))
    found = {folder.name.removesuffix("_evaluation.json"): newest(folder) for folder in folders}
    return {name: found[name] for name in ordered(found)}


def score(evaluation: dict[str, Any], split: str, temperature: str) -> ActingScore:
    """One cell of an evaluation."""
    return ActingReport.model_validate(evaluation["acting"]).scores[split][temperature]


def share(found: Proportion) -> str:
    """`70.7 % [66.6, 74.5]`."""
    return f"{100 * found.share:.1f} % [{100 * found.low:.1f}, {100 * found.high:.1f}]"


def success_rows(seed: int, found: Evaluations) -> list[list[str]]:
    """One row per model and temperature."""
    rows = []
    for name, evaluation in found.items():
        for temperature in sorted(evaluation["acting"]["scores"][SPLITS[0]]):
            cells = [score(evaluation, split, temperature).success for split in SPLITS]
            rows.append([str(seed), name, temperature, *map(share, [pooled(cells), *cells])])
    return rows


def difference_rows(seed: int, found: Evaluations) -> list[list[str]]:
    """Every trained model against the base, all games of a temperature taken together."""
    rows = []
    for name in found:
        if name == "base":
            continue
        for temperature in sorted(found[name]["acting"]["scores"][SPLITS[0]]):
            base, own = (
                pooled(score(found[model], split, temperature).success for split in SPLITS) for model in ("base", name)
            )
            low, high = difference_interval(base, own)
            outside = "yes" if own.low > base.high or own.high < base.low else "no"
            gap = f"{100 * (own.share - base.share):+.1f} [{100 * low:+.1f}, {100 * high:+.1f}]"
            rows.append([str(seed), name, temperature, gap, outside])
    return rows


def world_model_rows(seed: int, found: Evaluations) -> list[list[str]]:
    """One row per model."""
    rows = []
    for name, evaluation in found.items():
        overall = WorldModelReport.model_validate(evaluation["world_model"]).overall
        rows.append([str(seed), name, f"{overall.similarity:.3f}", share(overall.exact), share(overall.parsed)])
    return rows


def kind_rows(seeds: Sequence[int], found: Sequence[Evaluations]) -> list[list[str]]:
    """One row per seed and kind of transition: exact predictions of every model, counts behind them."""
    rows = []
    for seed, models in zip(seeds, found, strict=True):
        reports = {name: WorldModelReport.model_validate(own["world_model"]).by_kind for name, own in models.items()}
        for kind in sorted({kind for own in reports.values() for kind in own}):
            cells = [own[kind].exact if kind in own else None for own in reports.values()]
            shown = [f"{100 * cell.share:.0f} % ({cell.successes}/{cell.count})" if cell else "" for cell in cells]
            rows.append([str(seed), kind, *shown])
    return rows


def subsampling_row(seed: int, folder: Path) -> list[str]:
    """What difficulty subsampling and RWML say of a seed: easy share, threshold, kept; mixed groups, reward."""
    difficulty = DifficultyReport.model_validate(newest(folder / "difficulty_metrics.json"))
    summary = newest(folder / "rwml_curves.json")["summary"]
    return [
        str(seed),
        f"{100 * difficulty.easy_share:.1f} %",
        f"{difficulty.tau_d:g}",
        f"{difficulty.kept} of {difficulty.transitions_main}",
        f"{summary['tau_d']:g}",
        f"{100 * summary['mixed_groups']:.0f} %",
        f"{summary['reward_first']:.2f} to {summary['reward_last']:.2f}",
    ]


def newest(dataset: Path) -> dict[str, Any]:
    """The latest version of a stored JSON dataset."""
    found: dict[str, Any] = json.loads((max(dataset.iterdir()) / dataset.name).read_text())
    return found


def learning_part(seeds: Sequence[int], root: Path) -> str:
    """What was easy, what was mixed, and the world model by kind of transition, for the seeds that are there."""
    folders = {seed: games_folder(root / f"seed_{seed}", official=False) for seed in seeds}
    there = {
        seed: root / f"seed_{seed}" / "08_reporting" / name
        for seed, name in folders.items()
        if name and (root / f"seed_{seed}" / "08_reporting" / name / "rwml_curves.json").exists()
    }
    if not there:
        return ""
    columns = ["Seed", "Easy", "at tau_d", "Kept", "RWML's tau_d", "Mixed groups", "Reward, first to last tenth"]
    text = markdown_table((columns, [subsampling_row(seed, folder) for seed, folder in there.items()]))
    found = [evaluations(folder.parents[1], folder.name) for folder in there.values()]
    shared = [name for name in found[0] if all(name in models for models in found)]
    found = [{name: models[name] for name in shared} for models in found]
    kinds = markdown_table((["Seed", "Kind of transition", *shared], kind_rows(list(there), found)))
    return (
        f"## Subsampling and RWML\n\n{text}\n\nExact predictions by kind of transition, all models on the same "
        f"transitions of the base model's play.\n\n{kinds}\n"
    )


def games_folder(root: Path, official: bool) -> str | None:
    """Name of the folder under 08_reporting that holds results on generated or on official games; None without any."""
    names = sorted(path.parent.name for path in (root / "08_reporting").glob("*/base_evaluation.json"))
    wanted = [name for name in names if ("official" in name) == official]
    if len(wanted) > 1:
        raise SystemExit(f"{root}/08_reporting holds evaluations in {names}: expected one with official={official}")
    return wanted[0] if wanted else None


def report(seeds: Sequence[int], root: Path, official: bool, costs: dict[str, dict[str, Any]]) -> str:
    """The Markdown report."""
    command = f"python benchmarks/main_job.py --seeds {' '.join(map(str, seeds))}{' --official' if official else ''}"
    parts = [
        "# The main job over seeds\n",
        f"`{command}`; {cpu_name()}, {os.cpu_count()} cores, Python {platform.python_version()}.\n",
    ]
    header = ["Seed", "Model", "T", "All games", *SPLITS]
    for title, own in (("Generated games", False), *((("Official games", True),) if official else ())):
        rows, gaps, known = [], [], []
        for seed in seeds:
            place = root / f"seed_{seed}"
            games = games_folder(place, own)
            found = evaluations(place, games) if games else {}
            rows += success_rows(seed, found)
            gaps += difference_rows(seed, found)
            known += world_model_rows(seed, found)
        parts.append(f"## {title}\n\nSuccess, with Wilson's 95 % interval.\n\n{markdown_table((header, rows))}\n")
        columns = ["Seed", "Model", "T", "Points against the base", "Intervals apart"]
        parts.append(f"Difference, with Newcombe's 95 % interval.\n\n{markdown_table((columns, gaps))}\n")
        columns = ["Seed", "Model", "Similarity", "Exact", "With tags"]
        parts.append(f"World model, on held-out transitions.\n\n{markdown_table((columns, known))}\n")
    parts.append(learning_part(seeds, root))
    rows = [
        [key, f"{v['wall'] / 60:.1f}", f"{v['cpu'] / 60:.1f}", f"{v['gigabytes']:.1f}", v.get("commit", "unknown")]
        for key, v in costs.items()
    ]
    columns = ["Seed/step", "Wall minutes", "CPU minutes", "GB at most", "at commit"]
    parts.append(f"## What it took\n\n{markdown_table((columns, rows))}\n")
    return "\n".join(parts)


def cpu_name() -> str:
    """What /proc/cpuinfo calls the processor."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def main() -> None:
    """Run what is missing and write the report."""
    parser = argparse.ArgumentParser(description="The main job over several seeds, beside policy RL alone.")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--root", type=Path, default=PROJECT / "data" / "main_job", help="where runs are stored")
    parser.add_argument("--out", type=Path, default=None, help="write the report there as well")
    parser.add_argument("--official", action="store_true", help="evaluate on ALFWorld's own games, too")
    parser.add_argument("--env", default=None, help="Kedro environment of the generated games, for example test")
    arguments = parser.parse_args()
    root = arguments.root.resolve()
    root.mkdir(parents=True, exist_ok=True)
    kept = root / "costs.json"
    costs: dict[str, dict[str, Any]] = json.loads(kept.read_text()) if kept.exists() else {}
    text = report(arguments.seeds, root, arguments.official, costs)
    for name, options in steps(arguments.official).items():
        for seed in arguments.seeds:
            place = root / f"seed_{seed}"
            place.mkdir(exist_ok=True)
            if f"{seed}/{name}" not in costs:
                costs[f"{seed}/{name}"] = run_step(options, seed, place, arguments.env)
                kept.write_text(json.dumps(costs, indent=1))
            text = report(arguments.seeds, root, arguments.official, costs)
            if arguments.out:
                arguments.out.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
