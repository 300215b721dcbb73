"""One iteration of policy RL, split by part: where its wall and CPU seconds go.

    python benchmarks/iteration.py [--small] [--workers 1] [--iterations 2] [--out benchmarks/results/iteration.md]

Plays and learns as `train_policy` does, with the embedded model and the sizes of `conf/base` (16 tasks x 8 episodes of
at most 30 turns, two updates); options make it smaller. The first iteration warms up and is not counted. Every moment
is charged to one part, the innermost that runs. Where worker processes play, each keeps its own account: wall seconds
are then added over them, CPU seconds are those of all their threads.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from common import PROJECT, parser, publish, torch_setting
from kedro.framework.project import settings
from kedro.framework.startup import bootstrap_project

from worldwise.agents.agent import Agent
from worldwise.episodes.record import Episode
from worldwise.episodes.sequences import TrainingSequence
from worldwise.generation.models import resolve_model
from worldwise.generation.torch_engine import TorchEngine
from worldwise.hooks.environment import quiet_libraries
from worldwise.pipelines.parameters import validated
from worldwise.reports.summary import Table
from worldwise.rollouts.config import RolloutStats, plan_groups
from worldwise.rollouts.scheduler import Scheduler
from worldwise.rollouts.worker import Player
from worldwise.stages.actor import Actor, StageContext, load_checkpoint, make_actor
from worldwise.stages.estimators import turn_advantages
from worldwise.stages.playing import SHARED_FROM, play_plans
from worldwise.stages.policy_rows import policy_sequences
from worldwise.stages.train_policy import PolicyConfig, iteration_tasks
from worldwise.training import learner as learning
from worldwise.training.learner import Learner
from worldwise.worlds.contract import Task
from worldwise.worlds.registry import make_family

PLAY = (
    "world",
    "prompts and parsing",
    "engine: prefill",
    "engine: decode",
    "engine: sampling",
    "engine: the rest",
    "scheduler",
    "weights into engines",
    "between processes, and waiting",
)
LEARN = ("advantages and rows", "micro-batches", "forward", "backward", "losses and the rest", "optimizer")
OUTSIDE = "between processes, and waiting"

Seconds = tuple[float, float]
"""Wall, CPU."""


@dataclass
class Clock:
    """Charges every moment to the innermost part that runs.

    Attributes:
        now: wall and CPU seconds of this process.
        outside: the part of moments in which none runs.
        spent: part -> seconds.
    """

    now: Callable[[], Seconds] = lambda: (time.perf_counter(), time.process_time())
    outside: str = OUTSIDE
    spent: dict[str, Seconds] = field(default_factory=dict)
    _running: list[str] = field(default_factory=list)
    _since: Seconds | None = None

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Charge the block to a part, other parts inside it excepted."""
        self._charge()
        self._running.append(name)
        try:
            yield
        finally:
            self._charge()
            self._running.pop()

    def take(self) -> dict[str, Seconds]:
        """What was spent since the last call; begins anew."""
        self._charge()
        spent, self.spent = self.spent, {}
        return spent

    def wrap(self, owner: Any, name: str, part: str) -> None:
        """Charge all calls of an attribute of a class, an object or a module to a part."""
        function = getattr(owner, name)

        @functools.wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            with self.part(part):
                return function(*args, **kwargs)

        setattr(owner, name, timed)

    def _charge(self) -> None:
        wall, cpu = self.now()
        if self._since is not None:
            part = self._running[-1] if self._running else self.outside
            before = self.spent.get(part, (0.0, 0.0))
            self.spent[part] = before[0] + wall - self._since[0], before[1] + cpu - self._since[1]
        self._since = wall, cpu


CLOCK = Clock()
"""The account of this process; a worker imports this file and has its own."""


def watch_player(player: Player, worker: int) -> int:
    """Begin to account for play, in the process that calls it."""
    assert isinstance(player.engine, TorchEngine)
    for name in ("first_context", "next_context", "parse"):
        CLOCK.wrap(Agent, name, "prompts and parsing")
    world = type(player.family.new())
    for name in ("reset", "step"):
        CLOCK.wrap(world, name, "world")
    CLOCK.wrap(Scheduler, "advance", "scheduler")
    inside = {"_prefill": "prefill", "_decode": "decode", "_decode_plan": "decode", "_sample": "sampling"}
    for name, part in inside.items():
        CLOCK.wrap(TorchEngine, name, f"engine: {part}")
    CLOCK.wrap(TorchEngine, "generate", "engine: the rest")
    CLOCK.wrap(TorchEngine, "refresh", "weights into engines")
    return worker


def account(player: Player, worker: int) -> dict[str, Seconds]:
    """What the process that calls it has spent since it was asked last."""
    return CLOCK.take()


def watch_learner() -> None:
    """Begin to account for updates in this process."""
    CLOCK.wrap(learning, "policy_batch", "advantages and rows")
    CLOCK.wrap(learning, "micro_batches", "micro-batches")
    CLOCK.wrap(learning, "score_tokens", "forward")
    CLOCK.wrap(torch.Tensor, "backward", "backward")
    CLOCK.wrap(Learner, "_step", "optimizer")
    CLOCK.wrap(Learner, "update", "losses and the rest")


@dataclass
class Measured:
    """One iteration, or several added up.

    Attributes:
        play, learn: wall seconds.
        parts: part -> wall and CPU seconds.
        stats: of play.
        input_tokens, response_tokens: of the updates.
    """

    play: float = 0.0
    learn: float = 0.0
    parts: dict[str, Seconds] = field(default_factory=dict)
    stats: RolloutStats = field(default_factory=RolloutStats)
    input_tokens: float = 0.0
    response_tokens: float = 0.0

    def charge(self, spent: dict[str, Seconds]) -> None:
        """Add an account."""
        for part, (wall, cpu) in spent.items():
            before = self.parts.get(part, (0.0, 0.0))
            self.parts[part] = before[0] + wall, before[1] + cpu


class Loop:
    """Iterations as `stages.train_policy` runs them."""

    def __init__(self, blocks: dict[str, Any], iterations: int) -> None:
        self.policy: PolicyConfig = blocks["policy"]
        world = blocks["world"]
        family = make_family(world.name, world)
        # So few episodes are played by this process whatever the number of workers.
        few = self.policy.tasks_per_iteration * self.policy.group_size < SHARED_FROM
        workers = 1 if few else blocks["compute"].workers
        self.context = StageContext(family, blocks["agent"], blocks["rollout"], blocks["seed"], workers=workers)
        self.tasks: Sequence[Task] = family.tasks("train", self.policy.tasks_per_iteration * (iterations + 1))
        checkpoint = load_checkpoint(resolve_model(blocks["model"]), "base", blocks["model"])
        self.learner = Learner(checkpoint.model, self.policy.learner, 10_000)
        self.actor: Actor = make_actor(checkpoint, self.context)

    @property
    def players(self) -> int:
        """Processes that play."""
        return 1 if self.actor.pool is None else self.actor.pool.count

    def watch(self) -> None:
        """Begin to account."""
        watch_learner()
        if self.actor.pool is None:
            watch_player(Player(self.context.family, self.actor.engine, self.actor.agent), 0)
        else:
            assert sorted(self.actor.pool.map(watch_player, range(self.players))) == list(range(self.players))
            CLOCK.wrap(TorchEngine, "refresh", "weights into engines")

    def run(self, iteration: int, into: Measured) -> None:
        """One iteration."""
        policy, context = self.policy, self.context
        self._accounts()
        begun = time.perf_counter()
        tasks = iteration_tasks(self.tasks, policy.tasks_per_iteration, iteration, context.seed)
        plans = plan_groups(tasks, policy.group_size, "policy", iteration, context.seed, policy.temperature)
        episodes = list(play_plans(self.actor, plans, context, policy.max_turns, stats=into.stats))
        played = time.perf_counter()
        for number, spent in enumerate(self._accounts()):
            # This process only waits where others play: what it computes meanwhile is the traffic between them.
            waits = number == 0 and self.players > 1
            into.charge({part: (0.0 if waits else wall, cpu) for part, (wall, cpu) in spent.items()})
        resumed = time.perf_counter()
        self._learn(episodes, into)
        into.play += played - begun
        into.learn += time.perf_counter() - resumed
        into.charge(CLOCK.take())

    def _learn(self, episodes: Sequence[Episode], into: Measured) -> None:
        with CLOCK.part("advantages and rows"):
            rows: list[TrainingSequence] = policy_sequences(
                episodes,
                turn_advantages(episodes, self.policy, self.context.family.canonical_state),
                self.actor.agent,
            )
        learned = self.learner.update(rows)
        self.actor.refresh()
        into.input_tokens += learned["input_tokens"]
        into.response_tokens += learned["response_tokens"]

    def _accounts(self) -> list[dict[str, Seconds]]:
        """What was spent since the last call: this process first, then its workers."""
        pool = self.actor.pool
        others = [] if pool is None else list(pool.map(account, range(self.players)))
        return [CLOCK.take(), *others]


def tables(measured: Measured, iterations: int, players: int) -> list[tuple[str, Table]]:
    """The report's sections: means over the iterations."""
    wall, cpu = measured.play + measured.learn, sum(cpu for _, cpu in measured.parts.values())
    stats = measured.stats
    ratio, turns = stats.metrics()["prefix_ratio"], stats.turns / max(1, stats.episodes)

    def mean(total: float, seconds: float | None = None) -> str:
        return f"{total / iterations:.0f}" + ("" if seconds is None else f", {total / seconds:.0f} a second")

    rates = [
        ("iteration", f"{wall / iterations:.2f} s wall, {cpu / iterations:.2f} s CPU"),
        ("play, then update", f"{measured.play / iterations:.2f} s, {measured.learn / iterations:.2f} s wall"),
        ("episodes, turns in each", f"{mean(stats.episodes)}, {turns:.1f}"),
        ("tokens sampled in play", mean(stats.sampled_tokens, measured.play)),
        ("context tokens run in play", f"{mean(stats.prefix_tokens, measured.play)}, prefix ratio {ratio:.3f}"),
        ("tokens through the update", mean(measured.input_tokens, measured.learn)),
        ("response tokens trained on", mean(measured.response_tokens)),
    ]
    unknown = sorted(set(measured.parts) - set(PLAY) - set(LEARN))
    rows = []
    for part in (*PLAY, *LEARN, *unknown):
        own_wall, own_cpu = measured.parts.get(part, (0.0, 0.0))
        where = f"play, {players} processes" if part in PLAY and players > 1 else "play" if part in PLAY else "update"
        rows.append(
            [part, where, f"{own_wall / iterations:.2f}", f"{own_cpu / iterations:.2f}", f"{100 * own_cpu / cpu:.1f} %"]
        )
    added = " Wall seconds of play are added over the processes that play." if players > 1 else ""
    return [
        (f"Means over {iterations} iteration(s) after the first.", (["What", "Value"], [list(row) for row in rates])),
        (
            f"Every moment is charged to the innermost part.{added}",
            (["Part", "Phase", "Wall s", "CPU s", "Share of CPU"], rows),
        ),
    ]


def parameters(chosen: Any) -> dict[str, Any]:
    """The validated parameter blocks of the project with the options' changes."""
    bootstrap_project(PROJECT)
    small = {"tasks_per_iteration": 4, "group_size": 4, "max_turns": 8} if chosen.small else {}
    policy = {"tasks_per_iteration": chosen.tasks, "group_size": chosen.group_size, "max_turns": chosen.turns}
    compute = {"workers": chosen.workers, "threads": chosen.threads}
    changes = {"policy": small | _given(policy), "compute": _given(compute)}
    loader = settings.CONFIG_LOADER_CLASS(
        conf_source=str(PROJECT / settings.CONF_SOURCE), env=None, runtime_params=changes, **settings.CONFIG_LOADER_ARGS
    )
    return validated(loader["parameters"])


def _given(values: dict[str, int | None]) -> dict[str, int]:
    return {name: value for name, value in values.items() if value is not None}


def main() -> None:
    """Measure and print Markdown."""
    options = parser(__doc__)
    options.add_argument("--iterations", type=int, default=1, help="measured after the first one (default 1)")
    options.add_argument("--tasks", type=int, default=None, help="task groups (default: policy.tasks_per_iteration)")
    options.add_argument("--group-size", type=int, default=None, help="episodes of a task (default: policy.group_size)")
    options.add_argument("--turns", type=int, default=None, help="turn limit (default: policy.max_turns)")
    options.add_argument("--small", action="store_true", help="4 tasks x 4 episodes, 8 turns")
    options.add_argument("--workers", type=int, default=None, help="processes that play (default: compute.workers)")
    options.add_argument("--threads", type=int, default=None, help="torch threads (default: compute.threads)")
    chosen = options.parse_args()
    quiet_libraries()
    blocks = parameters(chosen)
    facts = torch_setting(blocks["compute"].threads)
    loop = Loop(blocks, chosen.iterations)
    measured = Measured()
    with loop.actor:
        loop.watch()
        loop.run(0, Measured())
        for iteration in range(1, chosen.iterations + 1):
            loop.run(iteration, measured)
    policy = loop.policy
    facts["sizes"] = (
        f"{policy.tasks_per_iteration} tasks x {policy.group_size} episodes, at most {policy.max_turns} turns, "
        f"{policy.learner.updates} update(s) in {policy.learner.precision}, {loop.players} process(es) that play"
    )
    publish("One iteration of policy RL by part", facts, tables(measured, chosen.iterations, loop.players), chosen.out)


if __name__ == "__main__":
    main()
