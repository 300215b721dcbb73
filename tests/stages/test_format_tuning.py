"""Format tuning: what it shows, that it teaches the form, that it repeats itself, and what it refuses."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch

from worldwise.agents.agent import Agent
from worldwise.agents.config import AgentConfig
from worldwise.agents.errors import AgentError
from worldwise.config import derive_seed
from worldwise.episodes.record import Episode
from worldwise.episodes.transitions import CleaningRules, extract
from worldwise.generation.protocol import Sampling
from worldwise.generation.tiny import tiny_model, tiny_tokenizer
from worldwise.rollouts.config import RolloutConfig, plan_groups
from worldwise.stages.actor import Actor, Checkpoint, StageContext, make_actor
from worldwise.stages.base_model.encoding import PlayEncoder
from worldwise.stages.base_model.play import PlayConfig
from worldwise.stages.errors import StageError
from worldwise.stages.format_tuning import VERSION, FormatTuningConfig, objection, play, tune_format
from worldwise.stages.playing import play_plans
from worldwise.stages.predicting import predict
from worldwise.training.learner import LearnerConfig
from worldwise.worlds.contract import WorldFamily
from worldwise.worlds.household.config import SIZES, HouseholdConfig
from worldwise.worlds.household.family import HouseholdFamily

SHORT = PlayConfig(sizes=("small",), purposeful_turns=2, random_turns=2, purposeful_share=0.5)
LEARN = FormatTuningConfig(
    updates=60,
    batch=4,
    play=SHORT,
    prediction_share=0.9,
    learner=LearnerConfig(
        learning_rate=1e-2, betas=(0.9, 0.95), schedule="linear", warmup_steps=5, final_share=0.1, threads=1
    ),
)


@pytest.fixture
def untrained() -> Checkpoint:
    """A random model that says bytes."""
    model = tiny_model("llama", hidden=48, max_positions=2048, spread=0.05)
    return Checkpoint(model, tiny_tokenizer(), "pretrained")


@pytest.fixture
def household() -> StageContext:
    """Free generation in small rooms."""
    rollout = RolloutConfig(slots=16, max_tokens=64, max_episode_tokens=1500)
    return StageContext(HouseholdFamily(HouseholdConfig.model_validate(SIZES["tiny"])), AgentConfig(), rollout, seed=3)


def played(actor: Actor, context: StageContext) -> list[Episode]:
    tasks = context.family.tasks("valid_seen", 12)
    return list(play_plans(actor, plan_groups(tasks, 1, "look", 0, 5, 1.0), context, 3))


def well_formed(checkpoint: Checkpoint, context: StageContext) -> tuple[float, float]:
    """Shares of commands that have their form, and of predictions that begin with their tag, at T = 1."""
    with make_actor(checkpoint, context, 1) as actor:
        episodes = played(actor, context)
        rules = CleaningRules(drop_invalid_format=False, max_rejected_share=1.0)
        transitions, _ = extract(episodes, context.family, rules, 0)
        samples = predict(actor, transitions[:24], 1, Sampling(temperature=1.0, max_tokens=1), seed=1)
        begun = [actor.agent.decode(own[0].completion.token_ids) == "<next_state>" for own in samples]
    valid = [turn.format_valid for episode in episodes for turn in episode.turns]
    return float(np.mean(valid)), float(np.mean(begun))


def test_it_teaches_the_form_of_commands_and_predictions(untrained: Checkpoint, household: StageContext) -> None:
    commands, predictions = well_formed(untrained, household)
    assert commands < 0.2
    assert predictions < 0.2
    result = tune_format(untrained, LEARN, household)
    commands, predictions = well_formed(result.checkpoint, household)
    assert commands > 0.9
    assert predictions > 0.2
    assert result.checkpoint.version == VERSION
    assert len(result.curve) == 60
    assert result.summary["loss_last"] < 0.5 * result.summary["loss_first"]
    assert result.summary["rows"] == 240
    assert 200 < result.summary["prediction_rows"] < 232


def test_the_seed_decides(untrained: Checkpoint, household: StageContext) -> None:
    config = LEARN.model_copy(update={"updates": 3, "prediction_share": 0.5})
    losses = []
    for seed in (3, 3, 4):
        checkpoint = replace(untrained, model=copy.deepcopy(untrained.model))
        result = tune_format(checkpoint, config, replace(household, seed=seed))
        losses.append([row["loss"] for row in result.curve])
        if seed == 4:
            continue
        weights = checkpoint.model.state_dict()
        assert not torch.equal(weights["lm_head.weight"], untrained.model.state_dict()["lm_head.weight"])
    assert losses[0] == losses[1]
    assert losses[0] != losses[2]


def test_episodes_come_again_where_there_are_fewer_than_rows() -> None:
    few = FormatTuningConfig(updates=3, batch=4, play=SHORT.model_copy(update={"episodes": 5}))
    assert len(play(few, seed=1)) == 5
    enough = FormatTuningConfig(updates=3, batch=4, play=SHORT)
    assert play(enough, seed=1)[:5] == play(few, seed=1)
    assert play(enough, seed=2)[:5] != play(few, seed=1)


def test_what_is_trained_is_what_is_seen_in_play(untrained: Checkpoint, household: StageContext) -> None:
    """An instructed agent: a played turn's context begins as a row about the same observation does."""
    context = replace(household, agent=AgentConfig(style="instruct", action_format="tags"))
    agent = Agent(untrained.tokenizer, context.agent, context.family)
    transcript = play(LEARN, derive_seed(context.seed, VERSION))[0]
    row = PlayEncoder(agent, 0.0, 0.2).episode(transcript)
    world = context.family.new()
    _, info = world.reset(context.family.tasks("train", 1)[0], 0)
    opening = agent.first_context(transcript.observations[0], info).ids
    np.testing.assert_array_equal(row.token_ids[: len(opening)], opening)
    said = row.token_ids[len(opening) :][: len(agent.command_ids(transcript.actions[0]))]
    assert agent.parse(said).format_valid
    assert agent.parse(said).action == transcript.actions[0]
    assert row.weights[: len(opening)].sum() == 0.0


@pytest.mark.parametrize(
    ("agent", "world", "says"),
    [
        (AgentConfig(context="window"), "household", "agent.context is 'window': set it to conversation"),
        (AgentConfig(list_admissible=True), "household", "agent.list_admissible is true: set it to false"),
        (AgentConfig(), "webshop", "world.name is 'webshop': take that world"),
    ],
)
def test_agents_that_it_cannot_serve_are_refused(agent: AgentConfig, world: str, says: str) -> None:
    reason = objection(agent, world)
    assert reason is not None
    assert says in reason
    assert reason.endswith("format_tuning.updates to 0")
    assert objection(AgentConfig(style="instruct", action_format="tags", examples=True), "household") is None


def test_nothing_is_trained_before_the_settings_are_known_to_work(
    untrained: Checkpoint, household: StageContext, family: WorldFamily
) -> None:
    before = copy.deepcopy(untrained.model.state_dict())
    with pytest.raises(StageError, match="updates is 0"):
        tune_format(untrained, FormatTuningConfig(), household)
    with pytest.raises(StageError, match=r"world\.name is 'corridor'"):
        tune_format(untrained, LEARN, replace(household, family=family))
    long = LEARN.model_copy(update={"play": PlayConfig(sizes=("full",)), "updates": 20})
    with pytest.raises(StageError, match=r"the model holds 2048: lower format_tuning\.play\.purposeful_turns"):
        tune_format(untrained, long, household)
    forgetful = tiny_tokenizer()
    forgetful.chat_template = (
        "{% for message in messages %}{% if loop.index0 >= loop.length - 2 %}"
        "{{ '<|' + message.role + '|>' + message.content + '<|end|>' }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
    )
    with pytest.raises(AgentError, match=r"grow by appending"):
        tune_format(replace(untrained, tokenizer=forgetful), LEARN, household)
    for name, value in untrained.model.state_dict().items():
        assert torch.equal(value, before[name])
