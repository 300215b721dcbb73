"""World-In-Agent in policy RL: scores, what they do to the rewards, and that it goes with every estimator."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from worldwise.episodes.record import Episode, Prediction, Turn
from worldwise.episodes.store import read_episodes, write_episodes
from worldwise.stages.actor import Checkpoint, StageContext
from worldwise.stages.foresight import (
    asking,
    factors_of_steps,
    foresight_numbers,
    scored,
    with_paid_foresight,
)
from worldwise.stages.modules import ModulesConfig
from worldwise.stages.train_policy import PolicyConfig, train_policy
from worldwise.stages.world_in_agent_config import WorldInAgentConfig
from worldwise.training.critic_config import CriticConfig
from worldwise.training.learner import LearnerConfig
from worldwise.worlds.contract import WorldFamily

FAST = LearnerConfig(learning_rate=1e-3, betas=(0.9, 0.95))


def foresees(turn: Turn, *texts: str) -> Turn:
    nothing = np.zeros(0, np.int32), np.zeros(0, np.float32)
    return replace(turn, predictions=tuple(Prediction(h, text, *nothing) for h, text in enumerate(texts, start=1)))


@pytest.fixture
def episodes(make_episode: Callable[..., Episode], make_turn: Callable[..., Turn]) -> list[Episode]:
    """One succeeds and foresees well, one fails and does not; both make two turns."""
    good = [
        foresees(make_turn(0, answer="abcd"), "abcd", "wxyz"),
        foresees(make_turn(1, answer="efgh", reward=1.0, terminated=True), "efxx", "beyond the end"),
    ]
    bad = [foresees(make_turn(0, answer="abcd"), "", ""), foresees(make_turn(1, answer="efgh"), "", "")]
    return [make_episode("a", success=True, turns=good), make_episode("b", turns=bad)]


def test_scores_are_of_what_came(episodes: list[Episode]) -> None:
    good, bad = scored(episodes, WorldInAgentConfig(), 0)
    # efxx against efgh: 2 x 2 / 8. What would have come after the end has no score.
    assert [[own.score for own in turn.predictions] for turn in good.turns] == [[1.0, 0.0], [0.5, None]]
    assert [[own.score for own in turn.predictions] for turn in bad.turns] == [[0.0, 0.0], [0.0, None]]


def test_what_scores_earn(episodes: list[Episode]) -> None:
    found = scored(episodes, WorldInAgentConfig(), 0)
    config = WorldInAgentConfig(gamma=0.5, share=0.2)
    assert factors_of_steps(found, config) == [[2.0, 1.5], [1.0, 1.0]]
    paid = with_paid_foresight(found, config)
    assert [[turn.reward for turn in episode.turns] for episode in paid] == [[0.0, pytest.approx(1.1)], [0.0, 0.0]]
    assert [episode.total_reward for episode in found] == [1.0, 0.0]
    numbers = foresight_numbers(found, config)
    assert numbers["foresight_score"] == pytest.approx((1.0 + 0.5) / 4)
    assert numbers["foresight_missing"] == 0.5
    assert numbers["foresight_return"] == pytest.approx((1.0 + 0.5) / 4)
    assert "foresight_correlation" not in numbers, "two episodes say nothing"
    more = foresight_numbers([*found, *found], config)
    assert more["foresight_correlation"] == pytest.approx(1.0)


def test_shuffled_targets_are_other_episodes(episodes: list[Episode]) -> None:
    third = replace(
        episodes[1], episode_id="g/c", turns=tuple(replace(t, next_observation="1234") for t in episodes[1].turns)
    )
    config = WorldInAgentConfig(targets="shuffled")
    good = scored([episodes[0], third], config, 0)[0]
    assert [turn.predictions[0].score for turn in good.turns] == [0.0, 0.0]
    assert scored([episodes[0], third], config, 0) == scored([episodes[0], third], config, 0)


def test_how_much_is_asked_for(context: StageContext) -> None:
    assert context.rollout.predictions == 0
    assert asking(context.rollout, WorldInAgentConfig(), 50).predictions == 2
    chosen = asking(context.rollout, WorldInAgentConfig(horizon=3, max_tokens=99), 50)
    assert (chosen.predictions, chosen.prediction_tokens) == (3, 99)


def policy(modules: dict[str, Any], **changes: Any) -> PolicyConfig:
    settings = {"algorithm": "gigpo", "iterations": 2, "tasks_per_iteration": 2, "group_size": 4, "learner": FAST}
    return PolicyConfig(modules=ModulesConfig.model_validate(modules), **{**settings, **changes})


ESTIMATORS: list[dict[str, Any]] = [
    {"algorithm": "grpo"},
    {"algorithm": "gigpo"},
    {"algorithm": "reinforce_pp"},
    {"algorithm": "ppo", "learner": FAST.model_copy(update={"critic": CriticConfig(trunk="own")})},
    {"algorithm": "gigpo", "learner": FAST.model_copy(update={"kl_coefficient": 0.1, "kl_in": "reward"})},
]


@pytest.mark.parametrize("modules", [{"world_in_agent": True}, {"world_in_agent": {"horizon": 2}, "paw": True}])
@pytest.mark.parametrize("changes", ESTIMATORS, ids=lambda own: str(own["algorithm"]))
def test_it_goes_with_every_estimator(
    start: Checkpoint, family: WorldFamily, context: StageContext, changes: dict[str, Any], modules: dict[str, Any]
) -> None:
    stored: list[list[Episode]] = []
    config = policy(modules, **changes)
    curve = train_policy(
        start, family.tasks("train"), family.tasks("valid_seen"), config, context, "policy",
        lambda iteration, episodes: stored.append(list(episodes)),
    ).curve  # fmt: skip
    assert {"foresight_score", "foresight_missing", "foresight_return"} <= set(curve[0])
    (last,) = stored
    assert all(turn.predictions for episode in last for turn in episode.turns)
    assert any(own.score is not None for episode in last for turn in episode.turns for own in turn.predictions)
    assert ("paw_lambda" in curve[0]) == ("paw" in modules)


def test_foresight_without_a_share_is_the_plain_estimator(
    start: Checkpoint, family: WorldFamily, context: StageContext
) -> None:
    """Predictions take nothing from the random streams of play, and get no gradient."""
    other = replace(start, model=copy.deepcopy(start.model))
    plain = train_policy(start, family.tasks("train"), [], policy({}, algorithm="grpo"), context, "policy")
    idle = policy({"world_in_agent": {"share": 0.0}}, algorithm="grpo")
    foreseeing = train_policy(other, family.tasks("train"), [], idle, context, "policy")
    weights, same = (own.checkpoint.model.state_dict() for own in (plain, foreseeing))
    assert all(np.allclose(weights[name], same[name], atol=1e-6) for name in weights)
    assert [row["success"] for row in plain.curve] == [row["success"] for row in foreseeing.curve]


def test_scored_episodes_are_stored(episodes: list[Episode], tmp_path: Any) -> None:
    found = scored(episodes, WorldInAgentConfig(), 0)
    folder = tmp_path / "episodes"
    folder.mkdir()
    write_episodes(folder, found)
    again = list(read_episodes(folder))
    assert [[p.score for t in e.turns for p in t.predictions] for e in again] == [
        [p.score for t in e.turns for p in t.predictions] for e in found
    ]


def test_the_papers_variant_needs_step_returns() -> None:
    with pytest.raises(ValidationError, match="variant is step and algorithm is grpo"):
        policy({"world_in_agent": {"variant": "step"}}, algorithm="grpo")
    assert policy({"world_in_agent": {"variant": "step"}}).modules.world_in_agent is not None
