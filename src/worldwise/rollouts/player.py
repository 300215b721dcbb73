"""What plays."""

from __future__ import annotations

from dataclasses import dataclass

from worldwise.agents.agent import Agent
from worldwise.generation.protocol import Engine
from worldwise.worlds.contract import WorldFamily


@dataclass(frozen=True, slots=True)
class Player:
    """What a process plays and predicts with.

    Attributes:
        family: the world.
        engine: generates.
        agent: prompts and parsing.
    """

    family: WorldFamily
    engine: Engine
    agent: Agent
