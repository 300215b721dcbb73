"""Modules of policy RL: each on or off over whatever estimator, see docs/modules.md."""

from __future__ import annotations

from typing import Any

from pydantic import field_validator

from worldwise.config import FrozenConfig
from worldwise.stages.agent_in_world_config import AgentInWorldConfig
from worldwise.stages.paw_config import PawConfig
from worldwise.stages.world_in_agent_config import WorldInAgentConfig


class ModulesConfig(FrozenConfig):
    """What is added to plain policy RL. `true` takes a module with its defaults, `false` or null leaves it out.

    Attributes:
        paw: a world model learned in the policy's own updates.
        world_in_agent: predictions after every action, whose scores raise what the action earned.
        agent_in_world: failures are judged and remembered, and tasks like them are played more often.
    """

    paw: PawConfig | None = None
    world_in_agent: WorldInAgentConfig | None = None
    agent_in_world: AgentInWorldConfig | None = None

    @field_validator("*", mode="before")
    @classmethod
    def _switches(cls, value: Any) -> Any:
        if isinstance(value, bool):
            return {} if value else None
        return value
