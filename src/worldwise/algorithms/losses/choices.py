"""What losses let their users choose, by name; importing it needs no torch."""

from __future__ import annotations

from typing import Literal

Aggregation = Literal["token_mean", "seq_mean_token_mean", "seq_mean_token_sum", "constant"]
"""How token losses become one number, see `aggregation`."""

KlEstimator = Literal["k1", "k2", "k3", "k3_plus", "k3_ratio", "abs"]
"""Estimators of the divergence from the reference, see `kl`."""

RatioLevel = Literal["token", "turn", "sequence"]
"""What an importance ratio belongs to, see `policy`."""

Mismatch = Literal["none", "truncated", "masked"]
"""Correction of the mismatch between sampler and learner, see `mismatch`."""

MismatchLevel = Literal["token", "sequence"]
"""What a weight of that correction belongs to."""

WorldLoss = Literal["clipped_mae", "cross_entropy"]
"""Losses of observation tokens, see `world_model`."""
