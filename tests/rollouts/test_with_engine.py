"""Play with a real model in the real household world: tokens, log-probabilities and batches agree."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from worldwise.agents.agent import Agent
from worldwise.agents.config import AgentConfig
from worldwise.episodes.record import Episode
from worldwise.episodes.sequences import Role, sequences_from_episode
from worldwise.episodes.validate import check_episode
from worldwise.generation.tiny import tiny_model, tiny_tokenizer
from worldwise.generation.torch_engine import TorchEngine
from worldwise.rollouts.config import RolloutConfig, RolloutStats, plan_groups
from worldwise.rollouts.scheduler import play
from worldwise.worlds.household.config import HouseholdConfig
from worldwise.worlds.household.family import HouseholdFamily

CONFIG = RolloutConfig(slots=6, max_tokens=12, max_turns=3)


@pytest.fixture(scope="module")
def model() -> PreTrainedModel:
    torch.set_num_threads(1)
    return tiny_model("qwen3", layers=1, max_positions=2048)


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerBase:
    return tiny_tokenizer()


@pytest.fixture(scope="module")
def household() -> HouseholdFamily:
    config = HouseholdConfig(
        rooms=("bathroom",), task_types=("pick_and_place_simple",), receptacles_min=4, receptacles_max=6,
        train_games=4, valid_seen_games=2, valid_unseen_games=2, layouts=4, unseen_layouts=2, max_turns=10,
    )  # fmt: skip
    return HouseholdFamily(config)


def played(
    model: PreTrainedModel,
    agent: Agent,
    household: HouseholdFamily,
    config: RolloutConfig = CONFIG,
    stats: RolloutStats | None = None,
) -> list[Episode]:
    engine = TorchEngine(model, capacity=config.slots, max_length=2048)
    plans = plan_groups(household.tasks("train", 3), 2, "collect", 0, seed=1)
    episodes = list(play(household, engine, agent, plans, config, "tiny", stats=stats))
    for episode in episodes:
        check_episode(episode)
    return episodes


@pytest.mark.parametrize("restricted", [False, True])
@pytest.mark.parametrize("context", ["conversation", "window"])
def test_log_probabilities_are_the_models_own(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    household: HouseholdFamily,
    context: str,
    restricted: bool,
) -> None:
    settings = {"context": context, "restrict_to_admissible": restricted}
    agent = Agent(tokenizer, AgentConfig.model_validate(settings), household)
    stats = RolloutStats()
    config = CONFIG.model_copy(update={"max_tokens": 40})
    episodes = played(model, agent, household, config, stats)
    metrics = stats.metrics()
    if context == "conversation":
        assert metrics["prefix_ratio"] <= 1.05
        assert metrics["restart_share"] == 0.0
    if restricted:
        assert metrics["invalid_share"] == metrics["rejected_share"] == 0.0
    gap, tokens = 0.0, 0
    for episode in episodes:
        advantages = [1.0] * len(episode.turns)
        for row in sequences_from_episode(episode, advantages, agent.allowed_sequences):
            ids = torch.as_tensor(row.token_ids, dtype=torch.long)[None]
            with torch.no_grad():
                logits = model(input_ids=ids).logits[0, :-1].float()
            for position in np.flatnonzero(row.roles == Role.RESPONSE).tolist():
                scores = logits[position - 1]
                if row.allowed is not None:
                    choices = row.allowed[position]
                    assert choices is not None
                    kept = torch.full_like(scores, -torch.inf)
                    kept[choices.tolist()] = scores[choices.tolist()]
                    scores = kept
                value = float(torch.log_softmax(scores, -1)[row.token_ids[position]])
                gap = max(gap, abs(value - float(row.logprobs[position])))
                tokens += 1
    assert tokens > 50
    assert gap < 1e-4


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_batch_mates_do_not_matter(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, household: HouseholdFamily, temperature: float
) -> None:
    agent = Agent(tokenizer, AgentConfig(restrict_to_admissible=True), household)
    said = []
    for slots in (1, 4):
        config = CONFIG.model_copy(update={"slots": slots, "max_tokens": 40, "temperature": temperature})
        episodes = played(model, agent, household, config)
        said.append([(episode.episode_id, [turn.action for turn in episode.turns]) for episode in episodes])
    assert said[0] == said[1]
    groups = [actions for _, actions in said[0]]
    if temperature:
        assert groups[0] != groups[1]
    else:
        # Greedy play of one game goes one way.
        assert groups[0] == groups[1]


def test_a_model_that_babbles_is_recorded_as_it_is(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, household: HouseholdFamily
) -> None:
    agent = Agent(tokenizer, AgentConfig(), household)
    stats = RolloutStats()
    episodes = played(model, agent, household, stats=stats)
    assert stats.metrics()["invalid_share"] > 0.5
    assert not any(episode.success for episode in episodes)
    assert all(episode.reward_valid for episode in episodes)


@pytest.mark.parametrize("context", ["conversation", "window"])
@pytest.mark.parametrize("restricted", [False, True])
def test_predictions_change_nothing_in_play(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    household: HouseholdFamily,
    context: str,
    restricted: bool,
) -> None:
    settings = {"context": context, "restrict_to_admissible": restricted}
    agent = Agent(tokenizer, AgentConfig.model_validate(settings), household)
    plain_stats, stats = RolloutStats(), RolloutStats()
    plain = played(model, agent, household, CONFIG, plain_stats)
    asking = CONFIG.model_copy(update={"predictions": 2, "prediction_tokens": 9})
    foreseeing = played(model, agent, household, asking, stats)
    turns = 0
    for one, other in zip(plain, foreseeing, strict=True):
        assert one.termination == other.termination
        for turn, twin in zip(one.turns, other.turns, strict=True):
            turns += 1
            assert turn.response_ids.tolist() == twin.response_ids.tolist()
            assert turn.logprobs == pytest.approx(twin.logprobs, abs=1e-5)
            assert turn.predictions == ()
            assert [own.horizon for own in twin.predictions] == [1, 2]
            assert 0 < len(twin.predictions[0].token_ids) <= 9
            assert len(twin.predictions[0].token_ids) == len(twin.predictions[0].logprobs)
    assert (plain_stats.predictions, stats.predictions) == (0, turns)
    assert stats.predicted_tokens == sum(len(t.predictions[0].token_ids) for e in foreseeing for t in e.turns)
    # What is read for predictions is no prefix of the episodes.
    assert stats.prefix_tokens == plain_stats.prefix_tokens
    assert stats.prediction_seconds > 0.0


def test_a_prediction_is_the_models_own_of_the_conversation_so_far(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, household: HouseholdFamily
) -> None:
    """The same question asked from scratch, behind all tokens so far, has the same log-probabilities."""
    agent = Agent(tokenizer, AgentConfig(), household)
    episodes = played(model, agent, household, CONFIG.model_copy(update={"predictions": 1, "prediction_tokens": 9}))
    for episode in episodes[:2]:
        seen: list[int] = []
        for turn in episode.turns:
            seen += [*turn.context_ids.tolist(), *turn.response_ids.tolist()]
            (prediction,) = turn.predictions
            asked = [*seen, *agent.predict_suffix(turn.finished).tolist()]
            ids = torch.tensor([[*asked, *prediction.token_ids.tolist()]])
            with torch.no_grad():
                table = model(input_ids=ids).logits[0].log_softmax(-1)
            own = table[range(len(asked) - 1, ids.shape[1] - 1), prediction.token_ids.astype(np.int64)]
            assert prediction.logprobs == pytest.approx(own.numpy(), abs=1e-4)
