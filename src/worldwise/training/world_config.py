"""Settings of a world model that is learned beside the policy; importing it needs no torch."""

from __future__ import annotations

from pydantic import Field

from worldwise.algorithms.losses.choices import WorldLoss
from worldwise.config import FrozenConfig


class WorldModelConfig(FrozenConfig):
    """The loss of the marked tokens, see `losses.world_model`.

    Attributes:
        loss: `clipped_mae` (PaW) or `cross_entropy` (ECHO).
        rho: probability above which `clipped_mae` leaves a token alone, (0, 1] (0.2 in PaW).
        coefficient: factor of the loss, beside each token's own weight.
    """

    loss: WorldLoss = "clipped_mae"
    rho: float = Field(0.2, gt=0.0, le=1.0)
    coefficient: float = Field(1.0, ge=0.0)
