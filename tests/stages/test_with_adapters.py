"""Stages that train an adapter, or play in bfloat16: they learn, leave plain folders, and workers play the same."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from worldwise.episodes.record import Episode
from worldwise.episodes.sequences import TrainingSequence
from worldwise.episodes.transitions import extract
from worldwise.generation.effective import adapted_layers
from worldwise.generation.models import Dtype, ModelConfig
from worldwise.rollouts import workers as pools
from worldwise.rollouts.config import plan_groups
from worldwise.stages.actor import Actor, Checkpoint, StageContext, load_checkpoint, make_actor
from worldwise.stages.collect import CollectConfig, collect_episodes
from worldwise.stages.encoder import Encoder
from worldwise.stages.estimators import turn_advantages
from worldwise.stages.evaluate import weights_changed
from worldwise.stages.midtrain import RwmlConfig, midtrain_world_model
from worldwise.stages.playing import play_plans
from worldwise.stages.policy_rows import policy_sequences
from worldwise.stages.supervised import SupervisedConfig
from worldwise.stages.train_policy import PolicyConfig, train_policy
from worldwise.stages.wm_sft import finetune_world_model
from worldwise.training.adapter_config import AdapterConfig
from worldwise.training.learner import Learner, LearnerConfig
from worldwise.worlds.contract import WorldFamily

pytest.importorskip("peft")

ADAPTER = AdapterConfig(rank=4, alpha=8)
FAST = LearnerConfig(learning_rate=3e-2, betas=(0.9, 0.95), clip_high=0.28, updates=2, adapter=ADAPTER)
POLICY = PolicyConfig(algorithm="grpo", iterations=12, tasks_per_iteration=4, group_size=8, learner=FAST)


def twin(checkpoint: Checkpoint, **changes: Any) -> Checkpoint:
    return replace(checkpoint, model=copy.deepcopy(checkpoint.model), **changes)


def played(actor: Actor, context: StageContext, iteration: int = 0) -> list[Episode]:
    plans = plan_groups(context.family.tasks("train", 4), 8, "test", iteration, context.seed)
    return list(play_plans(actor, plans, context))


def rows(episodes: Sequence[Episode], actor: Actor, context: StageContext) -> list[TrainingSequence]:
    advantages = turn_advantages(episodes, POLICY, context.family.canonical_state)
    return policy_sequences(episodes, advantages, actor.agent)


def test_policy_rl_learns_and_the_next_stage_starts_from_its_folder(
    start: Checkpoint, family: WorldFamily, context: StageContext, tmp_path: Path
) -> None:
    before = twin(start)
    result = train_policy(start, family.tasks("train"), [], POLICY, context, "policy")
    success = [row["success"] for row in result.curve]
    assert np.mean(success[-3:]) > np.mean(success[:3]) + 0.2, success
    assert result.summary["sampler_gap_largest"] < 1e-5
    assert not adapted_layers(result.checkpoint.model)
    folder = result.checkpoint.save(tmp_path / "policy")
    assert sorted(path.name for path in folder.glob("*.safetensors")) == ["model.safetensors"]
    # Only the matrices moved, and the next stage begins exactly there.
    following = load_checkpoint(folder, "next", ModelConfig(name=str(folder)))
    for (name, old), new in zip(before.model.named_parameters(), following.model.parameters(), strict=True):
        assert torch.equal(old, new) == (not name.endswith("_proj.weight")), name
    for name, value in result.checkpoint.model.state_dict().items():
        assert torch.equal(value, following.model.state_dict()[name]), name
    config = POLICY.model_copy(update={"iterations": 1})
    again = train_policy(following, family.tasks("train"), [], config, context, "again")
    assert again.curve[0]["success"] > 0.8


def test_both_ways_to_a_world_model_train_an_adapter(
    start: Checkpoint, family: WorldFamily, context: StageContext, encoder: Encoder
) -> None:
    episodes = list(collect_episodes(start, family.tasks("train"), CollectConfig(tasks=5), context))
    transitions, _ = extract(episodes, family, CollectConfig().cleaning, 0)
    config = SupervisedConfig(epochs=12, batch=8, learner=FAST)
    adapted, curve = finetune_world_model(twin(start), transitions, config, context)
    assert curve[-1]["loss"] < curve[0]["loss"] - 0.3  # The head is the embedding and stays as it is.
    assert not adapted_layers(adapted.model)
    everything = config.model_copy(update={"learner": LearnerConfig(learning_rate=1e-2, betas=(0.9, 0.95))})
    warm, _ = finetune_world_model(start, transitions, everything, context)
    before = twin(warm)
    rwml = RwmlConfig(
        epochs=1,
        prompts=8,
        group_size=4,
        tau_d=0.05,
        max_tokens=16,
        guard_every=2,
        guard_margin=1.0,
        learner=FAST.model_copy(update={"kl_coefficient": 0.01, "updates": 1}),
    )
    result = midtrain_world_model(warm, transitions, 0.1, family.tasks("valid_seen"), rwml, context, encoder)
    divergence = [row["learner_kl_reference"] for row in result.curve]
    assert divergence[0] == pytest.approx(0.0, abs=1e-6)
    assert max(divergence) > 1e-3
    assert not adapted_layers(result.checkpoint.model)
    assert weights_changed(before, result.checkpoint) > 0.1


def test_the_best_weights_come_back_before_the_adapter_is_merged(
    start: Checkpoint, family: WorldFamily, context: StageContext
) -> None:
    before = twin(start)
    learner = FAST.model_copy(update={"learning_rate": 1.0})
    config = POLICY.model_copy(update={"iterations": 3, "keep_best": True, "keep_window": 1, "learner": learner})
    result = train_policy(start, family.tasks("train"), [], config, context, "policy")
    assert result.summary["restored_best"] == 1.0
    if result.summary["best_step"] == 0.0:
        assert weights_changed(before, result.checkpoint) == 0.0
    assert max(row["success"] for row in result.curve) == result.summary["best_running_success"]
    assert not adapted_layers(result.checkpoint.model)


@pytest.mark.parametrize("dtype", [None, "bfloat16"])
def test_workers_play_what_one_process_plays(
    start: Checkpoint, context: StageContext, dtype: Dtype | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "worker_count", lambda wanted, model: wanted)
    torch.set_num_threads(1)
    subject = replace(start, sampler_dtype=dtype)
    learner = Learner(subject.model, FAST, 10)
    with make_actor(subject, replace(context, workers=2)) as split, make_actor(subject, context) as alone:
        for iteration in range(2):
            ours, theirs = (played(actor, context, iteration) for actor in (split, alone))
            assert [_said(episode) for episode in ours] == [_said(episode) for episode in theirs]
            learner.update(rows(theirs, alone, context))
            split.refresh()
            alone.refresh()
        pids = split.pool.pids if split.pool is not None else []
        learner.finish()
        split.refresh()
        alone.refresh()
        ours, theirs = (played(actor, context, 2) for actor in (split, alone))
        assert [_said(episode) for episode in ours] == [_said(episode) for episode in theirs]
        assert split.pool is not None
        assert set(split.pool.pids).isdisjoint(pids)


def _said(episode: Episode) -> list[list[int]]:
    return [turn.response_ids.tolist() for turn in episode.turns]


@pytest.mark.parametrize("adapter", [None, ADAPTER])
def test_a_bfloat16_sampler_is_a_little_off_and_the_learner_knows(
    start: Checkpoint, context: StageContext, adapter: AdapterConfig | None
) -> None:
    config = FAST.model_copy(update={"adapter": adapter, "old_logprobs": "learner", "updates": 1})
    subject = replace(start, sampler_dtype="bfloat16")
    learner = Learner(subject.model, config, 10)
    with make_actor(subject, context) as actor, make_actor(twin(start), context) as exact:
        episodes = played(actor, context)
        sequences = rows(episodes, actor, context)
        gap = learner.check_sampler_gap(sequences, limit=np.inf).largest
        assert 1e-4 < gap < 0.2
        assert learner.check_sampler_gap(rows(played(exact, context), exact, context)).largest < 1e-5
        assert {p.dtype for p in subject.model.parameters()} == {torch.float32}
        metrics = learner.update(sequences)
        assert (metrics["ratio_mean"], metrics["ratio_max"]) == (1.0, 1.0)
        assert metrics["clip_fraction"] == 0.0
        actor.refresh()
        # Restriction holds in any precision: only commands that the world allows are said.
        commands = {turn.action for episode in played(actor, context, 1) for turn in episode.turns}
        assert commands <= {"up", "down", "wait"}


def test_policy_rl_learns_from_a_bfloat16_sampler(
    start: Checkpoint, family: WorldFamily, context: StageContext, tmp_path: Path
) -> None:
    folder = start.save(tmp_path / "start")
    loaded = load_checkpoint(folder, "start", ModelConfig(name=str(folder), sampler_dtype="bfloat16"))
    assert loaded.sampler_dtype == "bfloat16"
    learner = LearnerConfig(
        learning_rate=1e-2, betas=(0.9, 0.95), clip_high=0.28, updates=2, old_logprobs="learner", precision="bf16"
    )
    config = POLICY.model_copy(update={"learner": learner, "sampler_gap": None})
    result = train_policy(loaded, family.tasks("train"), [], config, context, "policy")
    success = [row["success"] for row in result.curve]
    assert np.mean(success[-3:]) > np.mean(success[:3]) + 0.2, success
    assert 1e-5 < result.summary["sampler_gap_largest"] < 0.2
    assert result.checkpoint.sampler_dtype == "bfloat16"
