"""Modules of policy RL: each on or off over whatever estimator, see docs/modules.md."""

from __future__ import annotations

from typing import Any

from pydantic import Field, field_validator

from worldwise.config import FrozenConfig
from worldwise.stages.paw_config import PawConfig


class ModulesConfig(FrozenConfig):
    """What is added to plain policy RL. `true` takes a module with its defaults, `false` or null leaves it out.

    Attributes:
        paw: a world model learned in the policy's own updates.
    """

    paw: PawConfig | None = Field(None)

    @field_validator("*", mode="before")
    @classmethod
    def _switches(cls, value: Any) -> Any:
        if isinstance(value, bool):
            return {} if value else None
        return value
