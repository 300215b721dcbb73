"""Settings of the critic of PPO; importing it needs no torch."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from worldwise.config import FrozenConfig


class CriticConfig(FrozenConfig):
    """A value head that predicts, before every response token, the return from there on.

    Attributes:
        trunk: `own` = a copy of the model's body at the start of training, which learns beside the policy (twice the
            memory and time); `shared` = the policy's body, which then learns from both losses.
        learning_rate: of the head and of its own trunk (1e-5 for 1.5B in the paper's runs of PPO; a model of 4M
            wants about ten times that of the policy for the head).
        clip: largest change of a value that pays, in units of the return; None for no limit (0.5 in the papers' runs).
        coefficient: weight of the value loss beside the policy loss; counts with a shared trunk only.
        gradient_clip: largest gradient norm of what the critic's own optimizer moves; None for no clipping.
    """

    trunk: Literal["own", "shared"] = "own"
    learning_rate: float = Field(1e-5, gt=0.0, le=1.0)
    clip: float | None = Field(0.5, gt=0.0)
    coefficient: float | None = Field(None, gt=0.0)
    gradient_clip: float | None = Field(1.0, gt=0.0)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.trunk == "own" and self.coefficient is not None:
            raise ValueError(
                f"coefficient is {self.coefficient:g} and trunk is 'own': a trunk of its own learns from the value "
                "loss alone, so leave coefficient out, or set trunk to 'shared'"
            )
        return self

    @property
    def share(self) -> float:
        """`coefficient` with its default: 0.1 beside a policy loss."""
        return 0.1 if self.coefficient is None else self.coefficient
