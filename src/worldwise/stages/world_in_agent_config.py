"""Settings of World-In-Agent in policy RL."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from worldwise.config import FrozenConfig


class WorldInAgentConfig(FrozenConfig):
    """World-In-Agent of Role-Agent: after each action the same model predicts what comes next, and good foresight
    raises what the action earned.

    Attributes:
        horizon: observations to predict; None = 5 % of the turn limit, rounded, at least 1 (the paper).
        variant: `step` multiplies GiGPO's step returns by 1 + R_pre (the paper); `reward` the immediate rewards by
            1 + share * score of the very next observation (the released code), with any estimator; `auto` = `step` for
            `gigpo`, `reward` for all others.
        gamma: discount of later predictions, [0, 1].
        normalized: divide R_pre by the sum of its discounts.
        share: of `reward`, >= 0 (0.2 in the released code).
        max_tokens: of an answer with all its predictions.
        autojunk: difflib's heuristic for texts over 200 characters, as in the released code. It can ruin the score of
            long observations, and is for comparisons alone.
        targets: `own` observations, or `shuffled`: predictions are scored against those of other episodes, a placebo
            that costs the same.
    """

    horizon: int | None = Field(None, ge=1, le=100)
    variant: Literal["auto", "step", "reward"] = "auto"
    gamma: float = Field(0.95, ge=0.0, le=1.0)
    normalized: bool = False
    share: float = Field(0.2, ge=0.0)
    max_tokens: int = Field(64, ge=4)
    autojunk: bool = False
    targets: Literal["own", "shuffled"] = "own"
