"""Learning rate as a function of the optimizer step."""

from __future__ import annotations

import math
from typing import Literal

Schedule = Literal["constant", "linear", "cosine"]


def learning_rate_factor(
    step: int, total_steps: int, *, schedule: Schedule = "constant", warmup_steps: int = 0, final_share: float = 0.0
) -> float:
    """The share of the peak learning rate that optimizer step `step` uses.

    Warm-up rises linearly over `warmup_steps` steps (the first step already moves: step 0 uses 1 /
    warmup_steps); afterwards the rate stays (`constant`) or falls to `final_share`, reached at `total_steps`.

    Args:
        step: 0-based; steps past the end keep the final value.
        total_steps: planned optimizer steps, >= 1.
        schedule: form of the decay.
        warmup_steps: >= 0.
        final_share: 0..1.

    Returns:
        A number in 0..1.
    """
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    if schedule == "constant":
        return 1.0
    passed = min(1.0, (step - warmup_steps) / max(1, total_steps - warmup_steps))
    fall = passed if schedule == "linear" else 0.5 * (1.0 - math.cos(math.pi * passed))
    return 1.0 - (1.0 - final_share) * fall
