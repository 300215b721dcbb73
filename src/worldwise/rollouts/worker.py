"""The life of a worker process: what it is told, what it answers.

The pool is in `workers`.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch

from worldwise.agents.agent import Agent
from worldwise.agents.config import AgentConfig
from worldwise.episodes.record import Episode
from worldwise.generation.engines import make_engine
from worldwise.generation.shared_weights import SharedModel
from worldwise.rollouts.config import EpisodePlan, RolloutConfig, RolloutError, RolloutStats
from worldwise.rollouts.player import Player
from worldwise.rollouts.scheduler import Scheduler
from worldwise.worlds.contract import WorldFamily

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


_GRACE_S = 10.0
"""Seconds from a SIGTERM to the end."""


@dataclass(frozen=True)
class Recipe:
    """What a worker makes its player from.

    Attributes:
        model: the weights.
        tokenizer, agent, family: as for `Agent`.
        slots: capacity of each worker's engine.
        max_length: most tokens in a slot.
        dtype: of the engine, as for `make_engine`.
    """

    model: SharedModel
    tokenizer: PreTrainedTokenizerBase
    agent: AgentConfig
    family: WorldFamily
    slots: int
    max_length: int
    dtype: torch.dtype | None = None

    def player(self) -> Player:
        """The world, an engine and an agent."""
        engine = make_engine(self.model.model(), self.tokenizer, self.slots, self.max_length, self.dtype)
        return Player(self.family, engine, Agent(self.tokenizer, self.agent, self.family))


Weights = tuple[int, int]
"""State of the weights: refreshes so far, and in-place writes that torch counted. Another one: engines refresh."""


@dataclass(frozen=True, slots=True)
class Begin:
    """To a worker: a new list of plans is about to be played."""

    weights: Weights
    config: RolloutConfig
    version: str


@dataclass(frozen=True, slots=True)
class More:
    """To a worker: plans to play, with their positions in the list."""

    plans: list[tuple[int, EpisodePlan]]


@dataclass(frozen=True, slots=True)
class Call:
    """To a worker: a function to call with its player and an item."""

    weights: Weights
    position: int
    function: Callable[[Player, Any], Any]
    item: Any


@dataclass(frozen=True, slots=True)
class Played:
    """From a worker: episodes that ended, and its counters since `Begin`."""

    episodes: list[tuple[int, Episode]]
    stats: RolloutStats


@dataclass(frozen=True, slots=True)
class Returned:
    """From a worker: what the function returned."""

    position: int
    value: Any


@dataclass(frozen=True, slots=True)
class Failed:
    """From a worker: why it ends."""

    refused: bool
    message: str
    text: str


Inbox = queue.SimpleQueue[Begin | More | Call]


def serve(connection: Connection, recipe: Recipe) -> None:
    """A worker's whole life."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _end_in_a_while)
    torch.set_num_threads(1)
    inbox: Inbox = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(connection, inbox), daemon=True).start()
    try:
        _work(connection, recipe.player(), inbox)
    except (BrokenPipeError, ConnectionResetError):
        return  # The parent closed the pool while this worker was busy.
    except BaseException as error:
        failed = Failed(isinstance(error, RolloutError), str(error), traceback.format_exc())
        with contextlib.suppress(OSError):
            connection.send(failed)


def _end_in_a_while(number: int, frame: FrameType | None) -> None:
    """A stop that all processes of a run hear is the parent's to act on: it ends its workers, and so does its own end.

    A worker that is still there later was meant, as by multiprocessing in a parent that has never closed its pool.
    """
    last = threading.Timer(_GRACE_S, os._exit, (128 + number,))
    last.daemon = True
    last.start()


def _listen(connection: Connection, inbox: Inbox) -> None:
    """Takes in what the parent sends, so that it never waits for a busy worker; ends the process with it."""
    while True:
        try:
            inbox.put(connection.recv())
        except (EOFError, OSError):
            os._exit(0)


def _work(connection: Connection, player: Player, inbox: Inbox) -> None:
    known: Weights | None = None
    scheduler: Scheduler | None = None
    stats = RolloutStats()
    while True:
        while scheduler is None or not scheduler.busy or not inbox.empty():
            message = inbox.get()
            if isinstance(message, More):
                assert scheduler is not None
                scheduler.add(message.plans)
                continue
            if known not in (None, message.weights):
                player.engine.refresh()
            known = message.weights
            if isinstance(message, Call):
                connection.send(Returned(message.position, message.function(player, message.item)))
                continue
            if scheduler is not None:
                scheduler.close()
            stats = RolloutStats()
            scheduler = Scheduler(
                player.family, player.engine, player.agent, (), message.config, message.version, stats
            )
        ended = scheduler.advance()
        if ended:
            connection.send(Played(ended, stats))
