"""Runs our functions on the reference cases: one place that knows both vocabularies."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from worldwise.algorithms.advantages.gae import gae, whiten
from worldwise.algorithms.advantages.gigpo import Statistics, episode_term, gigpo
from worldwise.algorithms.advantages.groups import Normalize
from worldwise.algorithms.advantages.states import similar_states
from worldwise.algorithms.losses.aggregation import aggregate, token_weights
from worldwise.algorithms.losses.choices import Aggregation
from worldwise.algorithms.losses.entropy import entropies
from worldwise.algorithms.losses.kl import kl_tokens
from worldwise.algorithms.losses.policy import PolicyLoss, clipped_surrogate
from worldwise.algorithms.losses.value import value_losses

Case = dict[str, Any]
Array = NDArray[np.float64]

AGGREGATIONS: dict[str, Aggregation] = {
    "token-mean": "token_mean",
    "seq-mean-token-mean": "seq_mean_token_mean",
    "seq-mean-token-sum": "seq_mean_token_sum",
}
EPISODE_ESTIMATORS: dict[str, Normalize] = {"grpo": "std", "dr_grpo": "none", "rloo": "leave_one_out"}


def reference_file() -> Path:
    """Where the reference values lie (WORLDWISE_REFERENCE, or beside the checkout)."""
    beside = Path(__file__).resolve().parents[3] / "shared" / "reference"
    return Path(os.environ.get("WORLDWISE_REFERENCE", beside)) / "policy_gradient.json"


def load(section: str) -> list[Case]:
    """The cases of a section; none where the file is absent."""
    path = reference_file()
    return list(json.loads(path.read_text())[section]) if path.exists() else []


def our_advantages(case: Case, statistics: Statistics, estimator: str) -> Array:
    """One value per row."""
    rows = case["rows"]
    groups = [row["group"] for row in rows]
    trajectories = [row["trajectory"] for row in rows]
    rewards = np.array([row["reward"] for row in rows])
    penalties = case["invalid_penalty"] * np.array([float(row["invalid"]) for row in rows])
    own = penalties if statistics == "row" else None
    if estimator in EPISODE_ESTIMATORS:
        sums: dict[str, float] = {}
        for key, reward in zip(trajectories, rewards, strict=True):
            sums[key] = sums.get(key, 0.0) + reward
        totals = np.array([sums[key] for key in trajectories])
        return episode_term(
            totals,
            groups,
            trajectories,
            normalize=EPISODE_ESTIMATORS[estimator],
            statistics=statistics,
            penalties=own,
            lone_raw=True,
        )
    result = gigpo(
        rewards,
        groups,
        trajectories,
        our_states(case),
        discount=case["gamma"],
        step_weight=case["omega"],
        normalize="std" if estimator.endswith("with_std") else "none",
        statistics=statistics,
        penalties=own,
        lone_raw=True,
    )
    return result.step if "step_term" in estimator else result.total


def our_states(case: Case) -> list[Any]:
    """The state of each row, clustered where the case says so."""
    texts = [row["observation"] for row in case["rows"]]
    if case["similarity_threshold"] is None:
        return texts
    return similar_states(texts, [row["group"] for row in case["rows"]], case["similarity_threshold"]).tolist()


class TokenCase:
    """A case of token losses with the padded arrays flattened to scored tokens."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.mask = torch.tensor(case["mask"], dtype=torch.float64).bool()
        self.units = self.mask.nonzero()[:, 0]

    def padded(self, name: str) -> torch.Tensor:
        return torch.tensor(self.case[name], dtype=torch.float64)

    def flat(self, name: str) -> torch.Tensor:
        return self.padded(name)[self.mask]

    def mean(self, values: torch.Tensor, rule: str = "token-mean") -> float:
        weights = token_weights(self.units.numpy(), AGGREGATIONS[rule])
        return float(aggregate(values.double(), torch.from_numpy(weights)))

    def policy(self, low: float, high: float, dual: float | None, *, sequence: bool = False) -> PolicyLoss:
        return clipped_surrogate(
            self.flat("new_logprobs"),
            self.flat("old_logprobs"),
            self.flat("advantages"),
            clip_low=low,
            clip_high=high,
            dual_clip=dual,
            units=torch.unique(self.units, return_inverse=True)[1] if sequence else None,
        )

    def ours(self, key: str) -> Any:
        """Our answer to one named expectation, in the same form."""
        name, *rest = key.split("|")
        if name == "policy_loss":
            low, high = (float(x) for x in rest[1].removeprefix("clip ").split("/"))
            loss = self.policy(low, high, float(rest[2].removeprefix("dual ")))
            return {
                "loss": self.mean(loss.losses, rest[0]),
                "clip_fraction": self.mean(loss.clipped),
                "dual_clip_fraction": self.mean(loss.dual_clipped),
                "approx_kl": self.mean(kl_tokens(self.flat("old_logprobs"), self.flat("new_logprobs"), "k1")),
            }
        if name == "gspo":
            low, high = (float(x) for x in rest[0].removeprefix("clip ").split("/"))
            loss = self.policy(low, high, None, sequence=True)
            return {"loss": self.mean(loss.losses, "seq-mean-token-mean"), "clip_fraction": self.mean(loss.clipped)}
        if name.startswith("kl_"):
            estimator: Any = name.removeprefix("kl_")
            return self.mean(kl_tokens(self.flat("new_logprobs"), self.flat("ref_logprobs"), estimator), rest[0])
        if name == "entropy":
            return self.mean(entropies(self.flat("old_logits").log_softmax(-1)), rest[0])
        if name == "gae":
            discount, trace = (float(part.split()[-1]) for part in rest[:2])
            rewards, values, mask = (self.case[own] for own in ("token_rewards", "values", "mask"))
            advantages, returns = gae(rewards, values, mask, discount=discount, trace=trace)
            return {"advantages": whiten(advantages, mask).tolist(), "returns": returns.tolist()}
        if name.startswith("value_loss"):
            return self._value_loss(float(rest[0].split()[1]))
        raise AssertionError(f"the reference has a case that no function of ours answers: {key}")

    def _value_loss(self, clip: float) -> dict[str, float]:
        expected = self.case["expected"]["gae|gamma 1.0|lambda 0.95|whitened"]["returns"]
        returns = torch.tensor(expected, dtype=torch.float64)[self.mask]
        losses, clipped = value_losses(self.flat("new_logprobs"), self.flat("values"), returns, clip)
        return {"loss": self.mean(losses), "clip_fraction": self.mean(clipped)}
