"""A learning test that cannot pass by luck: from under 20 % to over 80 %, and nowhere with the advantages shuffled."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest

from worldwise.agents.config import AgentConfig
from worldwise.generation.tiny import tiny_model, tiny_tokenizer
from worldwise.rollouts.config import RolloutConfig
from worldwise.stages import policy_rows
from worldwise.stages import train_policy as stage
from worldwise.stages.actor import Checkpoint, StageContext
from worldwise.training.learner import LearnerConfig

from .signposts import SignpostFamily

ITERATIONS = 20
LEARNER = LearnerConfig(learning_rate=2e-3, betas=(0.9, 0.95), clip_high=0.28, updates=2)


def success(algorithm: str, seed: int) -> tuple[float, float]:
    """Share of solved episodes before the first update (144 of them) and in the last three iterations."""
    family = SignpostFamily()
    model = tiny_model("qwen3", layers=2, hidden=32, max_positions=256, spread=0.08, seed=seed)
    context = StageContext(
        family=family,
        agent=AgentConfig(restrict_to_admissible=True),
        rollout=RolloutConfig(slots=144, max_tokens=8, max_episode_tokens=120),
        seed=seed,
    )
    config = stage.PolicyConfig(
        algorithm=algorithm, iterations=ITERATIONS, tasks_per_iteration=18, group_size=8, learner=LEARNER
    )
    start = Checkpoint(model, tiny_tokenizer(), "base")
    curve = stage.train_policy(start, family.tasks("train", 18), [], config, context, "policy").curve
    solved = [row["success"] for row in curve]
    return solved[0], float(np.mean(solved[-3:]))


def shuffled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Deals the advantages of an iteration out anew: the same numbers, on other turns."""
    known, rng = policy_rows.turn_advantages, random.Random(0)

    def deal(*arguments: object, **settings: object) -> list[list[float]]:
        found: Sequence[Sequence[float]] = known(*arguments, **settings)
        flat = [value for episode in found for value in episode]
        rng.shuffle(flat)
        values = iter(flat)
        return [[next(values) for _ in episode] for episode in found]

    monkeypatch.setattr(policy_rows, "turn_advantages", deal)


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("algorithm", ["grpo", "gigpo"])
def test_a_policy_learns(algorithm: str, seed: int) -> None:
    first, last = success(algorithm, seed)
    assert first < 0.2
    assert last > 0.8


@pytest.mark.parametrize(("algorithm", "seed"), [("grpo", 0), ("grpo", 1), ("grpo", 2), ("gigpo", 0)])
def test_shuffled_advantages_teach_nothing(algorithm: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    shuffled(monkeypatch)
    first, last = success(algorithm, seed)
    assert first < 0.2
    assert last < 0.3
