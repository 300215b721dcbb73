"""What the ledger and the tracker cost: their share of a run, the time of `plan`, and how long commands take to start.

    python benchmarks/ledger.py --root runs/ledger --out benchmarks/results/ledger.md

1. `kedro run --pipeline=rwml_then_rl` from nothing, with clocks around everything that ledger and tracker do in the
   process that trains (a call inside of another one counts once). Left out where `--root` has it already.
2. `kedro worldwise plan`, the same run with `--only-missing-outputs` (all cached then) and `kedro --help`, each several
   times: wall and CPU seconds, the middle of them.
"""

from __future__ import annotations

import functools
import json
import resource
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from common import PROJECT, parser, publish, setting

WHOLE = "the whole run"


class Clock:
    """Seconds by name, of the outermost call alone."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.calls: dict[str, int] = defaultdict(int)
        self._inside = False

    def around(self, owner: Any, name: str, label: str) -> None:
        """Puts the clock around an attribute that is called."""
        inner: Callable[..., Any] = vars(owner)[name]

        @functools.wraps(inner)
        def timed(*args: Any, **kwargs: Any) -> Any:
            if self._inside:
                return inner(*args, **kwargs)
            self._inside = True
            begun = time.perf_counter()
            try:
                return inner(*args, **kwargs)
            finally:
                self._inside = False
                self.seconds[label] += time.perf_counter() - begun
                self.calls[label] += 1

        setattr(owner, name, timed)


def timed_run(out: Path, arguments: Sequence[str]) -> None:
    """`kedro` with these arguments in this process; writes seconds and calls by name."""
    from worldwise.datasets import complete
    from worldwise.ledger.run import LedgerRun
    from worldwise.ledger.runs import LiveRuns
    from worldwise.ledger.workspace import Workspace
    from worldwise.tracking.outbox import Outbox

    clock = Clock()
    for owner, name, label in (
        (LedgerRun, "begin", "versions chosen at the start"),
        (LedgerRun, "check", "digests of what is loaded"),
        (LedgerRun, "sign", "keys of nodes"),
        (complete, "write_manifest", "manifests of what is stored"),
        (LiveRuns, "enter", "locks of runs and nodes"),
        (LiveRuns, "claim", "locks of runs and nodes"),
        (LiveRuns, "release", "locks of runs and nodes"),
        (LiveRuns, "leave", "locks of runs and nodes"),
        (Workspace, "latest", "states inside of nodes"),
        (Workspace, "save", "states inside of nodes"),
        (Outbox, "put", "MLflow"),
        (Outbox, "wait", "MLflow"),
        (Outbox, "finish", "MLflow"),
    ):
        clock.around(owner, name, label)
    sys.argv = ["kedro", *arguments]
    begun = time.perf_counter()
    try:
        from kedro.framework.cli.cli import main

        main()
    except SystemExit as ended:
        if ended.code:
            raise
    clock.seconds[WHOLE] = time.perf_counter() - begun
    out.write_text(json.dumps({"seconds": clock.seconds, "calls": clock.calls}), encoding="utf-8")


def overhead(found: dict[str, dict[str, float]]) -> tuple[list[str], list[list[str]]]:
    """Seconds by part, and each part's share of the run."""
    seconds = dict(found["seconds"])
    whole = seconds.pop(WHOLE)
    rows = [
        [name, f"{found['calls'][name]:.0f}", f"{own:.2f}", f"{100 * own / whole:.2f} %"]
        for name, own in sorted(seconds.items(), key=lambda item: -item[1])
    ]
    total = sum(seconds.values())
    states = seconds.get("states inside of nodes", 0.0)
    rows.append(["all of it", "", f"{total:.2f}", f"{100 * total / whole:.2f} %"])
    rows.append(["all but the states", "", f"{total - states:.2f}", f"{100 * (total - states) / whole:.2f} %"])
    rows.append([WHOLE, "", f"{whole:.1f}", ""])
    return ["part", "calls", "seconds", "share"], rows


def command_row(command: Sequence[str], shown: str, times: int) -> list[str]:
    """Wall and CPU seconds of a command, the middle of several."""
    wall, cpu = [], []
    for _ in range(times):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        begun = time.perf_counter()
        subprocess.run(command, cwd=PROJECT, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wall.append(time.perf_counter() - begun)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    middle = statistics.median(wall)
    return [f"`{shown}`", f"{middle:.1f}", f"{min(wall):.1f} to {max(wall):.1f}", f"{statistics.median(cpu):.1f}"]


def main() -> None:
    if sys.argv[1:2] == ["--timed"]:
        timed_run(Path(sys.argv[2]), sys.argv[3:])
        return
    options = parser(__doc__)
    options.add_argument("--root", type=Path, default=Path("runs/ledger"), help="data root, relative to the project")
    options.add_argument("--env", default=None, help="Kedro environment; none = the default job")
    options.add_argument("--times", type=int, default=5, help="repetitions of every command")
    given = options.parse_args()
    root = (PROJECT / given.root).resolve()
    root.mkdir(parents=True, exist_ok=True)
    where = [f"--params=data_root={root}", *([f"--env={given.env}"] if given.env else [])]
    run = ["run", "--pipeline=rwml_then_rl"]
    seconds = root / "ledger_seconds.json"
    if not seconds.exists():
        timed = [sys.executable, __file__, "--timed", str(seconds), *run, *where]
        subprocess.run(timed, cwd=PROJECT, check=True)
    kedro = str(Path(sys.executable).with_name("kedro"))
    commands = (
        ["worldwise", "plan", "--pipeline=rwml_then_rl"],
        [*run, "--only-missing-outputs"],
    )
    rows = [command_row([kedro, *own, *where], f"kedro {' '.join(own)}", given.times) for own in commands]
    rows.append(command_row([kedro, "--help"], "kedro --help", given.times))
    columns = ["command", "wall seconds, middle", "range", "CPU seconds, middle"]
    publish(
        "What ledger and tracker cost",
        setting(environment=given.env or "the default job"),
        [
            ("Of one run from nothing:", overhead(json.loads(seconds.read_text(encoding="utf-8")))),
            ("With everything cached:", (columns, rows)),
        ],
        given.out,
    )


if __name__ == "__main__":
    main()
