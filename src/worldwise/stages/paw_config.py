"""Settings of PaW in policy RL."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from worldwise.algorithms.paw import Measure
from worldwise.config import COSMETIC
from worldwise.training.world_config import WorldModelConfig


class PawConfig(WorldModelConfig):
    """PaW (arXiv:2606.02388): a world model learned from the policy's own transitions, in the policy's own updates.

    The loss of a token (`loss`, `rho`, `coefficient`) is inherited. Controls: `loss: cross_entropy` (ECHO), `select:
    all`, `select: random`, `weight: constant`, `targets: shuffled`.

    Attributes:
        alpha: share of an iteration's transitions that is learned from, [0, 1] (0.75 in the paper).
        select: which ones: the most `uncertain` actions (the paper), `random` ones, or `all` (whatever alpha is).
        measure: of the uncertainty: `entropy` of the policy when it acted, or `surprise`, -log p of what it did.
        span: tokens that it is a mean of: the `action`'s own, or the whole `response`.
        weight: lambda: of the `group` (1 - mean return / largest return), of a moving `average` over iterations, or
            `constant` 1.
        decay: of that average, [0, 1).
        targets: `own` observations, or `shuffled`: those of other transitions, a placebo that costs the same.
        max_tokens: of an observation, from its beginning (256 for ALFWorld, 512 for WebShop and search).
        held_out_every: measure the world model on scripted play of held-out tasks every so many iterations; 0 = never.
        held_out_tasks: tasks of that play, one episode each.
    """

    alpha: float = Field(0.75, ge=0.0, le=1.0)
    select: Literal["uncertain", "random", "all"] = "uncertain"
    measure: Measure = "entropy"
    span: Literal["action", "response"] = "action"
    weight: Literal["group", "average", "constant"] = "group"
    decay: float = Field(0.9, ge=0.0, lt=1.0)
    targets: Literal["own", "shuffled"] = "own"
    max_tokens: int = Field(256, ge=1)
    held_out_every: Annotated[int, COSMETIC] = Field(5, ge=0)
    held_out_tasks: Annotated[int, COSMETIC] = Field(8, ge=1)
