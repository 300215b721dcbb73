"""What the modules of policy RL cost: wall and CPU seconds of an iteration with each of them, beside one without.

    python benchmarks/modules.py [--iterations 2] [--rounds 2] [--tasks 8] [--out benchmarks/results/modules.md]

Trains as `train_policy` does, with the embedded model and the settings of `conf/base`, at a rate that moves nothing, so
that arms play the same episodes (but Agent-In-World, which chooses other tasks). Arms take turns round after round; the
first iteration of each warms up and is not counted. CPU seconds are those of this process and its workers.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping
from statistics import mean
from typing import Any

import psutil
from common import PROJECT, parser, publish, torch_setting
from kedro.framework.project import settings
from kedro.framework.startup import bootstrap_project

from worldwise.generation.models import resolve_model
from worldwise.hooks.environment import quiet_libraries
from worldwise.pipelines.parameters import validated
from worldwise.stages.actor import StageContext, load_checkpoint
from worldwise.stages.modules import ModulesConfig
from worldwise.stages.reporter import Silent
from worldwise.stages.train_policy import PolicyConfig, train_policy
from worldwise.worlds.registry import make_family

ARMS: dict[str, dict[str, Any]] = {
    "none": {},
    "paw": {"paw": {"held_out_every": 0}},
    "world_in_agent": {"world_in_agent": True},
    "agent_in_world": {"agent_in_world": True},
    "all": {"paw": {"held_out_every": 0}, "world_in_agent": True, "agent_in_world": True},
}
PARTS = ("seconds_rollout", "seconds_update", "seconds_rest")


class Clock(Silent):
    """Notes CPU seconds of this process and its children whenever an iteration is logged."""

    def __init__(self) -> None:
        self.cpu: list[float] = []
        self._seen: dict[int, float] = {}

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """One iteration is over."""
        own = psutil.Process()
        for process in (own, *own.children(recursive=True)):
            used = process.cpu_times()
            self._seen[process.pid] = used.user + used.system
        self.cpu.append(sum(self._seen.values()))


def measure(arm: str, blocks: dict[str, Any], iterations: int, tasks: int) -> list[dict[str, float]]:
    """Rows of the iterations after the first, with `cpu`."""
    learner = blocks["policy"].learner.model_copy(update={"learning_rate": 1e-12})
    changes = {
        "iterations": iterations + 1,
        "tasks_per_iteration": tasks,
        "learner": learner,
        "modules": ModulesConfig.model_validate(ARMS[arm]),
        "keep_best": False,
    }
    policy: PolicyConfig = blocks["policy"].model_copy(update=changes)
    family = make_family(blocks["world"].name, blocks["world"])
    clock = Clock()
    context = StageContext(
        family, blocks["agent"], blocks["rollout"], blocks["seed"], reporter=clock, workers=blocks["compute"].workers
    )
    checkpoint = load_checkpoint(resolve_model(blocks["model"]), "base", blocks["model"])
    rows = train_policy(checkpoint, family.tasks("train", 200), [], policy, context, "policy").curve
    return [{**row, "cpu": clock.cpu[place] - clock.cpu[place - 1]} for place, row in enumerate(rows) if place]


def main() -> None:
    """Measure and print Markdown."""
    options = parser(__doc__)
    options.add_argument("--iterations", type=int, default=2, help="measured in a round, after the first (default 2)")
    options.add_argument("--rounds", type=int, default=2, help="turns of each arm (default 2)")
    options.add_argument("--tasks", type=int, default=8, help="task groups an iteration (default 8)")
    chosen = options.parse_args()
    quiet_libraries()
    bootstrap_project(PROJECT)
    loader = settings.CONFIG_LOADER_CLASS(
        conf_source=str(PROJECT / settings.CONF_SOURCE), env=None, runtime_params={}, **settings.CONFIG_LOADER_ARGS
    )
    blocks = validated(loader["parameters"])
    facts = torch_setting(blocks["compute"].threads)
    found: dict[str, list[dict[str, float]]] = defaultdict(list)
    begun = time.perf_counter()
    for _ in range(chosen.rounds):
        for arm in ARMS:
            found[arm] += measure(arm, blocks, chosen.iterations, chosen.tasks)
    facts["sizes"] = (
        f"{chosen.tasks} tasks x {blocks['policy'].group_size} episodes, {chosen.rounds} rounds of {chosen.iterations} "
        f"iterations, {time.perf_counter() - begun:.0f} s in all"
    )
    wall = {arm: mean(sum(row[part] for part in PARTS) for row in rows) for arm, rows in found.items()}
    cpu = {arm: mean(row["cpu"] for row in rows) for arm, rows in found.items()}
    rows = [
        [
            arm,
            f"{wall[arm]:.2f}",
            f"{100 * (wall[arm] / wall['none'] - 1):+.1f} %",
            f"{cpu[arm]:.2f}",
            f"{100 * (cpu[arm] / cpu['none'] - 1):+.1f} %",
            *(f"{mean(row[part] for row in found[arm]):.2f}" for part in PARTS),
        ]
        for arm in ARMS
    ]
    columns = ["Modules", "Wall s", "more", "CPU s", "more", "play", "update", "rest"]
    publish("What the modules of policy RL cost", facts, [("Means over iterations.", (columns, rows))], chosen.out)


if __name__ == "__main__":
    main()
