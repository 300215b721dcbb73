"""Every column of the learning curves is explained in the tables of the documentation."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from worldwise.stages.actor import Checkpoint, StageContext
from worldwise.stages.modules import ModulesConfig
from worldwise.stages.train_policy import PolicyConfig, train_policy
from worldwise.training.critic_config import CriticConfig
from worldwise.training.learner import LearnerConfig
from worldwise.worlds.contract import WorldFamily

DOCS = Path(__file__).parents[2] / "docs"
BASE = {"learning_rate": 1e-3, "kl_coefficient": 0.01, "entropy_coefficient": 0.01, "old_logprobs": "learner"}
ALL = {"paw": True, "world_in_agent": True, "agent_in_world": True}


def explained(column: str, names: set[str]) -> bool:
    """Whether a name, its short form behind another one of its kind, or its kind stands in a table."""
    short = {f"_{column.split('_', 1)[1]}"} if column.startswith(("learner_", "seconds_")) else set()
    kinds = [name[:-1] for name in names if name.endswith("*")]
    ranges = {"state_groups_2_3", "state_groups_4_7"}
    return bool(({column} | short) & names) or column in ranges or any(column.startswith(kind) for kind in kinds)


@pytest.mark.parametrize("changes", [
    {"algorithm": "gigpo", "learner": {**BASE, "mismatch": "truncated"}},
    {"algorithm": "ppo", "learner": {**BASE, "critic": CriticConfig()}},
])  # fmt: skip
def test_every_column_is_explained(
    start: Checkpoint, family: WorldFamily, context: StageContext, changes: dict[str, Any]
) -> None:
    config = PolicyConfig(
        iterations=2,
        tasks_per_iteration=2,
        group_size=4,
        probe_every=1,
        modules=ModulesConfig.model_validate(ALL),
        **{**changes, "learner": LearnerConfig.model_validate(changes["learner"])},
    )
    curve = train_policy(start, family.tasks("train"), family.tasks("valid_seen"), config, context, "policy").curve
    text = (DOCS / "algorithms.md").read_text() + (DOCS / "modules.md").read_text()
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    names = {name for row in rows for name in re.findall(r"`([^`]+)`", row)}
    columns = {column for row in curve for column in row} - {"step"}
    assert [column for column in sorted(columns) if not explained(column, names)] == []
