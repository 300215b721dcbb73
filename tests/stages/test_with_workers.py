"""Stages whose play and predictions are split among worker processes give what they give in one process."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import psutil
import pytest
import torch

from worldwise.agents.config import AgentConfig
from worldwise.episodes.transitions import CleaningRules, extract
from worldwise.generation.protocol import Sampling
from worldwise.generation.tiny import tiny_model, tiny_tokenizer
from worldwise.rollouts import workers as pools
from worldwise.rollouts.config import RolloutConfig
from worldwise.rollouts.workers import WorkerPool
from worldwise.stages.actor import Checkpoint, StageContext, make_actor
from worldwise.stages.collect import CollectConfig, collect_episodes
from worldwise.stages.predicting import predict
from worldwise.stages.train_policy import PolicyConfig, train_policy
from worldwise.training.learner import LearnerConfig
from worldwise.worlds.household.config import HouseholdConfig
from worldwise.worlds.household.family import HouseholdFamily


@pytest.fixture
def context(monkeypatch: pytest.MonkeyPatch) -> Iterator[StageContext]:
    """Two workers, on machines with one core too; none may be left at the end."""
    monkeypatch.setattr(pools, "worker_count", lambda wanted, model: wanted)
    torch.set_num_threads(1)
    household = HouseholdConfig(
        rooms=("bathroom",), task_types=("pick_and_place_simple",), receptacles_min=4, receptacles_max=6,
        train_games=4, valid_seen_games=2, valid_unseen_games=2, layouts=4, unseen_layouts=2, max_turns=3,
    )  # fmt: skip
    rollout = RolloutConfig(slots=8, max_tokens=40, max_episode_tokens=1000)
    agent = AgentConfig(restrict_to_admissible=True)
    yield StageContext(HouseholdFamily(household), agent, rollout, seed=7, workers=2)
    names = [child.cmdline() for child in psutil.Process().children(recursive=True)]
    assert len(names) <= 2, f"beside the servers of multiprocessing there are {names}"


def start() -> Checkpoint:
    model = tiny_model("qwen3", layers=1, hidden=32, max_positions=2048, spread=0.08, seed=1)
    return Checkpoint(model, tiny_tokenizer(), "base")


def test_no_process_is_made_for_one_worker(context: StageContext) -> None:
    assert make_actor(start(), replace(context, workers=1)).pool is None
    pool = make_actor(start(), context).pool
    assert isinstance(pool, WorkerPool)
    assert pool.pids == []


def test_policy_training_is_the_same(context: StageContext) -> None:
    # A random model earns nothing, so the entropy alone moves the weights.
    learner = LearnerConfig(learning_rate=1e-2, entropy_coefficient=0.1)
    config = PolicyConfig(iterations=2, tasks_per_iteration=4, group_size=4, probe_every=1, learner=learner)
    tasks = context.family.tasks("train", 4)
    results = []
    for workers in (1, 2):
        begin = start()
        used = replace(context, workers=workers)
        results.append((train_policy(begin, tasks, tasks[:1], config, used, "policy"), begin))
    (one, first), (two, second) = results
    for row, twin in zip(one.curve, two.curve, strict=True):
        for name in ("turns", "sampled_tokens", "reward", "probe_success"):
            assert row[name] == twin[name], name
        assert row["entropy"] == pytest.approx(twin["entropy"], abs=1e-5)
    untrained = start().model.state_dict()
    for name, value in first.model.state_dict().items():
        assert not torch.equal(value, untrained[name])
        torch.testing.assert_close(value, second.model.state_dict()[name], atol=1e-4, rtol=0)


def test_predictions_are_the_same(context: StageContext) -> None:
    config = CollectConfig(tasks=4, episodes_per_task=4, max_turns=3)
    checkpoint = start()
    episodes = list(collect_episodes(checkpoint, context.family.tasks("train", 4), config, context))
    assert len(episodes) == 16
    rules = CleaningRules(drop_invalid_format=False, max_rejected_share=1.0)
    transitions, _ = extract(episodes, context.family, rules, 0)
    sampling, told = Sampling(temperature=1.0, max_tokens=6), []
    found = []
    for workers in (1, 2):
        with make_actor(checkpoint, replace(context, workers=workers), 6) as actor:
            found.append(predict(actor, transitions[:7], 2, sampling, 3, lambda done, total: told.append(done)))
    assert told == [4, 7, 4, 7]
    for own, others in zip(*found, strict=True):
        for sample, other in zip(own, others, strict=True):
            assert sample.completion.token_ids.tolist() == other.completion.token_ids.tolist()
            assert sample.text == other.text
            np.testing.assert_allclose(sample.completion.logprobs, other.completion.logprobs, atol=1e-5)
