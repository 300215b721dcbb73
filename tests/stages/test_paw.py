"""PaW in policy RL: what is marked, that nothing marked is nothing changed, and that it goes with every estimator."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from worldwise.agents.agent import Agent
from worldwise.algorithms.paw import most_uncertain
from worldwise.episodes.record import Episode
from worldwise.episodes.sequences import Role, TrainingSequence, sequences_from_episode
from worldwise.stages.actor import Checkpoint, StageContext
from worldwise.stages.collect import CollectConfig, collect_episodes
from worldwise.stages.modules import ModulesConfig
from worldwise.stages.paw import held_out_sequences, mark, transitions
from worldwise.stages.paw_config import PawConfig
from worldwise.stages.train_policy import PolicyConfig, train_policy
from worldwise.training.config import LearnerConfig
from worldwise.training.critic_config import CriticConfig
from worldwise.worlds.contract import WorldFamily

FAST = LearnerConfig(learning_rate=1e-3, betas=(0.9, 0.95))


@pytest.fixture(params=["conversation", "window"])
def played(request: pytest.FixtureRequest, start: Checkpoint, context: StageContext) -> tuple[Agent, list[Episode]]:
    """Two groups of four episodes in either context."""
    own = replace(context, agent=context.agent.model_copy(update={"context": request.param}))
    agent = Agent(start.tokenizer, own.agent, own.family)
    config = CollectConfig(tasks=2, episodes_per_task=4)
    return agent, list(collect_episodes(start, own.family.tasks("train"), config, own))


def rows(agent: Agent, episodes: list[Episode]) -> list[TrainingSequence]:
    return [
        sequence
        for episode in episodes
        for sequence in sequences_from_episode(
            episode, [0.0] * len(episode.turns), agent.allowed_sequences, agent.following_context
        )
    ]


def test_every_outcome_that_did_not_end_an_episode_can_be_learned(played: tuple[Agent, list[Episode]]) -> None:
    agent, episodes = played
    sequences = rows(agent, episodes)
    found = transitions(sequences, episodes, PawConfig())
    texts = [agent.decode(sequences[own.sequence].token_ids[own.places]) for own in found]
    turns = [turn for episode in episodes for turn in episode.turns if not (turn.terminated or turn.truncated)]
    assert texts == [turn.next_observation for turn in turns]
    assert all((sequences[own.sequence].roles[own.places] == Role.OBSERVATION).all() for own in found)
    short = transitions(sequences, episodes, PawConfig(max_tokens=3))
    assert [len(own.places) for own in short] == [min(3, len(own.places)) for own in found]


def test_marks(played: tuple[Agent, list[Episode]]) -> None:
    agent, episodes = played
    sequences = rows(agent, episodes)
    found = transitions(sequences, episodes, PawConfig())
    made = mark(sequences, episodes, PawConfig(alpha=0.5), 1.0, seed=1)
    count = -(-len(found) // 2)
    assert made.numbers["paw_transitions"] == len(found)
    assert made.numbers["paw_chosen"] == pytest.approx(count / len(found))
    assert made.numbers["paw_uncertainty_chosen"] > made.numbers["paw_uncertainty"]
    rng = np.random.default_rng(1)
    chosen = most_uncertain([own.uncertainty for own in found], 0.5, rng)
    taken = [own for own, picked in zip(found, chosen, strict=True) if picked]
    assert sum(own.world_tokens for own in made.sequences) == sum(len(own.places) for own in taken)
    for group in {episode.group_id for episode in episodes}:
        members = [episode for episode in episodes if episode.group_id == group]
        weight = 1.0 - sum(episode.total_reward for episode in members) / len(members)
        for own in taken:
            if own.group_id == group:
                weights = made.sequences[own.sequence].world_weights
                assert weights is not None
                assert weights[own.places].tolist() == pytest.approx([weight] * len(own.places))
    for before, after in zip(sequences, made.sequences, strict=True):
        assert (before.token_ids == after.token_ids).all()


def test_controls(played: tuple[Agent, list[Episode]]) -> None:
    agent, episodes = played
    sequences = rows(agent, episodes)

    def marked(**settings: Any) -> list[TrainingSequence]:
        return mark(sequences, episodes, PawConfig(**settings), 1.0, seed=1).sequences

    everything = marked(select="all", weight="constant")
    assert sum(own.world_tokens for own in everything) == sum(
        len(own.places) for own in transitions(sequences, episodes, PawConfig())
    )
    assert {value for own in everything if own.world_weights is not None for value in own.world_weights} == {0.0, 1.0}
    chance = marked(select="random", alpha=0.5)
    certain = marked(alpha=0.5)
    assert [own.world_tokens for own in chance] != [own.world_tokens for own in certain]
    shuffled = marked(targets="shuffled")
    plain = marked()
    assert [own.world_tokens for own in shuffled] == [own.world_tokens for own in plain]
    assert all(own.world_targets is None for own in plain)
    changed = 0
    for own in shuffled:
        if own.world_targets is not None and own.world_weights is not None:
            differs = own.world_targets != own.token_ids
            assert not differs[own.world_weights == 0.0].any()
            changed += int(differs.sum())
    assert changed > 0
    nothing = mark(sequences, episodes, PawConfig(alpha=0.0), 1.0, seed=1).sequences
    assert all(own.world_weights is None for own in nothing)


def test_a_moving_average_of_returns(played: tuple[Agent, list[Episode]]) -> None:
    agent, episodes = played
    mean = float(np.mean([episode.total_reward for episode in episodes]))
    first = mark(rows(agent, episodes), episodes, PawConfig(weight="average", decay=0.9), 1.0, seed=1)
    assert first.mean_return == pytest.approx(mean)
    assert first.numbers["paw_lambda"] == pytest.approx(1.0 - mean)
    again = mark(rows(agent, episodes), episodes, PawConfig(weight="average", decay=0.9), 1.0, 1, mean_return=0.0)
    assert again.mean_return == pytest.approx(0.1 * mean)


def policy(modules: dict[str, Any], **changes: Any) -> PolicyConfig:
    settings = {"algorithm": "gigpo", "iterations": 2, "tasks_per_iteration": 2, "group_size": 4, "learner": FAST}
    return PolicyConfig(modules=ModulesConfig.model_validate(modules), **{**settings, **changes})


@pytest.mark.parametrize("algorithm", ["grpo", "gigpo"])
@pytest.mark.parametrize("off", [{"alpha": 0.0}, {"coefficient": 0.0}, {"rho": 1e-12}])
def test_paw_that_learns_nothing_is_the_plain_estimator_bit_for_bit(
    start: Checkpoint, family: WorldFamily, context: StageContext, algorithm: str, off: dict[str, float]
) -> None:
    tasks = family.tasks("train"), family.tasks("valid_seen")
    other = replace(start, model=copy.deepcopy(start.model))
    plain = train_policy(start, *tasks, policy({}, algorithm=algorithm), context, "policy")
    paw = train_policy(other, *tasks, policy({"paw": off}, algorithm=algorithm), context, "policy")
    weights, same = (own.checkpoint.model.state_dict() for own in (plain, paw))
    if "rho" in off:
        # The tokens go through the model and get no gradient: the same up to rounding.
        assert all(np.allclose(weights[name], same[name], atol=1e-5) for name in weights)
        return
    assert all(weights[name].equal(same[name]) for name in weights)
    for row, twin_row in zip(plain.curve, paw.curve, strict=True):
        for name, value in row.items():
            if not name.startswith("seconds"):
                assert twin_row[name] == value, name


ESTIMATORS: list[dict[str, Any]] = [
    {"algorithm": "grpo"},
    {"algorithm": "gigpo"},
    {"algorithm": "rloo"},
    {"algorithm": "reinforce_pp"},
    {"algorithm": "dr_grpo", "learner": FAST.model_copy(update={"aggregation": "constant", "aggregation_length": 64})},
    {"algorithm": "ppo", "learner": FAST.model_copy(update={"critic": CriticConfig(trunk="shared")})},
    {"algorithm": "grpo", "learner": FAST.model_copy(update={"kl_coefficient": 0.1, "kl_in": "reward"})},
    {"algorithm": "gigpo", "learner": FAST.model_copy(update={"kl_coefficient": 0.1, "old_logprobs": "learner"})},
]


@pytest.mark.parametrize("kind", ["conversation", "window"])
@pytest.mark.parametrize("changes", ESTIMATORS, ids=lambda own: str(own["algorithm"]))
def test_it_goes_with_every_estimator(
    start: Checkpoint, family: WorldFamily, context: StageContext, changes: dict[str, Any], kind: str
) -> None:
    own = replace(context, agent=context.agent.model_copy(update={"context": kind}))
    modules = {"paw": {"weight": "constant", "held_out_every": 1}}
    result = train_policy(
        start, family.tasks("train"), family.tasks("valid_seen"), policy(modules, **changes), own, "policy"
    )
    first, last = result.curve
    assert first["learner_world_tokens"] > 0
    assert last["learner_world_probability"] > first["learner_world_probability"]
    assert 0.0 < first["learner_world_open_share"] <= 1.0
    assert {"paw_lambda", "paw_chosen", "learner_world_nats", "learner_world_loss"} <= set(first)
    assert ("held_out_world_nats" in first) == (kind == "conversation")
    if kind == "conversation":
        assert last["held_out_world_nats"] < first["held_out_world_nats"]


def test_held_out_play_is_the_same_wherever_a_training_goes_on(
    start: Checkpoint, family: WorldFamily, context: StageContext
) -> None:
    agent = Agent(start.tokenizer, context.agent, family)
    made = [held_out_sequences(agent, family, family.tasks("valid_seen", 4), seed=3) for _ in range(2)]
    assert [own.token_ids.tolist() for own in made[0]] == [own.token_ids.tolist() for own in made[1]]
    assert made[0]
    for own in made[0]:
        assert own.world_weights is not None
        assert 0 < own.world_weights.sum() < (own.roles == Role.OBSERVATION).sum(), "what it begins with is no outcome"


def test_switches() -> None:
    assert ModulesConfig.model_validate({"paw": True}).paw == PawConfig()
    assert ModulesConfig.model_validate({"paw": False}).paw is None
    assert PolicyConfig().modules == ModulesConfig()
    for wrong in ({"alpha": 1.5}, {"rho": 0.0}, {"decay": 1.0}, {"select": "best"}, {"unknown": 1}):
        with pytest.raises(ValidationError):
            PawConfig.model_validate(wrong)
