"""Worker processes that play and predict beside each other.

On a CPU, steps of generation are too small for torch to split among threads; processes with one thread and
episodes of their own split the work well. They read the parent's weights in shared memory, so a training step
costs them no copy but that of their engines' `refresh`.

Workers are forked off a server process that has the libraries imported, and nothing of the parent. They end
with the parent, whatever ends it.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import operator
import os
import shutil
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import psutil

from worldwise.agents.config import AgentConfig
from worldwise.episodes.record import Episode
from worldwise.generation.shared_weights import share_weights, weight_bytes
from worldwise.rollouts.config import EpisodePlan, RolloutConfig, RolloutError, RolloutStats
from worldwise.rollouts.player import Player
from worldwise.rollouts.scheduler import Progress
from worldwise.rollouts.worker import Begin, Call, Failed, More, Recipe, Weights, serve
from worldwise.worlds.contract import WorldFamily

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerProcess

    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

Item = TypeVar("Item")
Result = TypeVar("Result")

_SHARED_MEMORY = Path("/dev/shm")
_WORKER_BYTES = 2**30
"""Memory of a worker beside its copy of the weights, measured with 64 slots of the embedded model in long games:
cached contexts above all."""
_PLAYS = tuple(f"worldwise.{layer}." for layer in ("agents", "episodes", "generation", "rollouts", "stages", "worlds"))
"""What the names of modules begin with that workers run code of."""
_PATIENCE_S = 5.0
"""Seconds that a worker gets to end by itself before it is killed."""


class WorkerError(RuntimeError):
    """A worker process failed or died. The message says which one, and what it said."""


def worker_count(wanted: int | None, model: PreTrainedModel) -> int:
    """How many processes play a model; 1 means none beside this one.

    Args:
        wanted: at most so many; None = one per core, as far as half of the machine's memory and the shared memory
            reach; what else is in memory at the moment does not count, as a run that goes on later must come to the
            same number. Never more than there are cores.
        model: a model that is not on the CPU is played by this process alone.

    Raises:
        RolloutError: several are wanted for a model that is not on the CPU.
    """
    if model.device.type != "cpu":
        if wanted is not None and wanted > 1:
            raise RolloutError(f"workers={wanted} and the model is on {model.device}: set workers to 1 or null")
        return 1
    cores = min(len(os.sched_getaffinity(0)), psutil.cpu_count(logical=False) or 1)
    if wanted is not None:
        return min(wanted, cores)
    size = weight_bytes(model)
    if not _SHARED_MEMORY.is_dir() or shutil.disk_usage(_SHARED_MEMORY).total < 2 * size:
        return 1
    return max(1, min(cores, psutil.virtual_memory().total // (2 * (size + _WORKER_BYTES))))


class WorkerPool:
    """Processes with an engine each, started at their first use.

    Args:
        model: on the CPU; its weights move into shared memory at the start.
        tokenizer, agent, family: as for `Agent`.
        slots: episodes that live at once in each worker.
        max_length: most tokens in a slot.
        count: workers, at least 1.
        dtype: of the engines, as for `make_engine`.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        agent: AgentConfig,
        family: WorldFamily,
        slots: int,
        max_length: int,
        count: int,
        dtype: torch.dtype | None = None,
    ) -> None:
        self._model, self._tokenizer, self._agent, self._family = model, tokenizer, agent, family
        self._slots, self._max_length, self._count, self._dtype = slots, max_length, count, dtype
        self._shared: list[torch.nn.Parameter] = []
        self._refreshes = 0
        self._workers: list[tuple[ForkServerProcess, Connection]] = []

    @property
    def count(self) -> int:
        """Workers."""
        return self._count

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers that were started."""
        return [process.pid for process, _ in self._workers if process.pid is not None]

    def refresh(self) -> None:
        """The weights changed: engines take them anew before they play again."""
        self._refreshes += 1

    def play(
        self,
        plans: Sequence[EpisodePlan],
        config: RolloutConfig,
        model_version: str,
        progress: Progress | None = None,
        stats: RolloutStats | None = None,
    ) -> Iterator[Episode]:
        """As `scheduler.play`: the same episodes in the same order; the slots of `config` are each worker's.

        The weights must stay as they are until the iterator is exhausted. One that is given up before ends the
        workers; the next call starts new ones.

        Raises:
            RolloutError: as `scheduler.play`.
            WorkerError: a worker failed or died. All are ended then.
        """
        with self._ended_on_error():
            begin = Begin(self._weights(), config, model_version)
            for number in range(self._count):
                self._send(number, begin)
            for number, share in enumerate(_shares(list(enumerate(plans)), self._count)):
                if share:
                    self._send(number, More(share))
            counters = [RolloutStats() for _ in range(self._count)]
            finished: dict[int, Episode] = {}
            following = 0
            while following < len(plans):
                for number, reply in self._replies():
                    counters[number] = reply.stats
                    for position, episode in reply.episodes:
                        finished[position] = episode
                        if progress is not None:
                            progress(following + len(finished), len(plans))
                while following in finished:
                    yield finished.pop(following)
                    following += 1
            if stats is not None:
                for own in counters:
                    stats.add(own)

    def map(self, function: Callable[[Player, Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        """The function's results in the order of the items, one item at a time per worker.

        Args:
            function: of a module, so that workers find it by its name; must leave the engine's slots free.
            items: second arguments.

        Raises:
            WorkerError: the function raised, or a worker died. All are ended then.
        """
        with self._ended_on_error():
            weights = self._weights()
            calls = deque(Call(weights, position, function, item) for position, item in enumerate(items))
            idle = deque(range(self._count))
            finished: dict[int, Result] = {}
            following = 0
            while following < len(items):
                while calls and idle:
                    self._send(idle.popleft(), calls.popleft())
                for number, reply in self._replies():
                    finished[reply.position] = reply.value
                    idle.append(number)
                while following in finished:
                    yield finished.pop(following)
                    following += 1

    def close(self) -> None:
        """End the workers; returns when they are gone."""
        workers, self._workers = self._workers, []
        for _, connection in workers:
            connection.close()
        for process, _ in workers:
            process.join(_PATIENCE_S)
            if process.exitcode is None:
                process.kill()
                process.join()
            process.close()

    def _weights(self) -> Weights:
        return self._refreshes, sum(parameter._version for parameter in self._model.parameters())

    def _up_to_date(self) -> bool:
        """False where an adapter came or went: the workers' model has other layers then."""
        present = list(self._model.parameters())
        return len(present) == len(self._shared) and all(map(operator.is_, present, self._shared))

    def _start(self) -> None:
        shared = share_weights(self._model)
        self._shared = list(self._model.parameters())
        agent, family, slots = self._agent, self._family, self._slots
        recipe = Recipe(shared, self._tokenizer, agent, family, slots, self._max_length, self._dtype)
        context = multiprocessing.get_context("forkserver")
        kinds = {type(module).__module__ for module in self._model.modules()} | {type(self._tokenizer).__module__}
        # Whatever of this package is loaded here as well: workers that start later must not run what was edited since.
        kinds |= {name for name in sys.modules if name.startswith(_PLAYS)}
        context.set_forkserver_preload(["__main__", serve.__module__, *sorted(kinds)])
        # The tracker first: starting it lets signals through again, whatever was blocked before.
        resource_tracker.ensure_running()
        with _no_interrupts():
            forkserver.ensure_running()
        for number in range(1, self._count + 1):
            ours, theirs = context.Pipe()
            process = context.Process(
                target=serve, args=(theirs, recipe), name=f"worldwise worker {number}", daemon=True
            )
            try:
                process.start()
            except (EOFError, OSError) as error:
                raise WorkerError(
                    "worker processes cannot start, for the reason above; in a script of your own the work must "
                    "stand below `if __name__ == '__main__':`, or set workers to 1"
                ) from error
            theirs.close()
            self._workers.append((process, ours))

    @contextlib.contextmanager
    def _ended_on_error(self) -> Iterator[None]:
        try:
            if self._workers and not self._up_to_date():
                self.close()
            if not self._workers:
                self._start()
            yield
        except BaseException:
            self.close()
            raise

    def _send(self, number: int, message: Begin | More | Call) -> None:
        try:
            self._workers[number][1].send(message)
        except OSError:
            self._fail(number)

    def _replies(self) -> Iterator[tuple[int, Any]]:
        """What workers sent, as (worker, reply); waits for the first."""
        connections = [connection for _, connection in self._workers]
        for connection in wait(connections):
            number = connections.index(connection)  # type: ignore[arg-type]
            try:
                reply = connections[number].recv()
            except (EOFError, OSError):
                self._fail(number)
            if isinstance(reply, Failed):
                cause = WorkerError(f"in {self._workers[number][0].name}:\n{reply.text}")
                if reply.refused:
                    raise RolloutError(reply.message) from cause
                raise cause
            yield number, reply

    def _fail(self, number: int) -> NoReturn:
        """Raises an error that says how a worker ended."""
        process = self._workers[number][0]
        process.join(_PATIENCE_S)
        code = process.exitcode
        how = f"exit code {code}" if code is None or code >= 0 else signal.Signals(-code).name
        hint = ""
        if code == -signal.SIGKILL:
            hint = "; the system does so when memory runs out: lower rollout.slots or compute.workers"
        raise WorkerError(f"{process.name} (process {process.pid}) ended unexpectedly with {how}{hint}")


def _shares(plans: list[tuple[int, EpisodePlan]], count: int) -> list[list[tuple[int, EpisodePlan]]]:
    """The plans of each worker, dealt out portion by portion before the first is played.

    A worker that took more work whenever it has room would share the work slightly better, and play other batches
    each time: the last bits of log-probabilities depend on the batch, so a run would not end twice with the same
    weights. Plans of one group stay together, as they share their first prompt, yet there are at least two portions
    per worker.
    """
    most = max(1, -(-len(plans) // (2 * count)))
    shares: list[list[tuple[int, EpisodePlan]]] = [[] for _ in range(count)]
    following = 0
    for _, members in groupby(plans, key=lambda plan: plan[1].group_id):
        group = list(members)
        for start in range(0, len(group), most):
            shares[following % count] += group[start : start + most]
            following += 1
    return shares


@contextlib.contextmanager
def _no_interrupts() -> Iterator[None]:
    """Ctrl-C and a closing terminal wait meanwhile; processes that are started here never hear of them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
