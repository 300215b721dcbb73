"""Every stage from end to end, on a random model of a few thousand parameters and a world of a corridor."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from worldwise.episodes.record import Episode
from worldwise.episodes.transitions import Transition, extract
from worldwise.episodes.validate import check_episode
from worldwise.generation.protocol import Sampling
from worldwise.rollouts.config import RolloutConfig
from worldwise.stages.acting_scores import report_acting
from worldwise.stages.actor import Checkpoint, StageContext, make_actor
from worldwise.stages.collect import CollectConfig, collect_episodes
from worldwise.stages.encoder import Encoder
from worldwise.stages.errors import StageError
from worldwise.stages.evaluate import (
    EvaluateConfig,
    evaluate_acting,
    held_out_transitions,
    score_world_model,
    weights_changed,
    with_predictions,
)
from worldwise.stages.midtrain import RwmlConfig, midtrain_world_model
from worldwise.stages.predicting import predict, prediction_row
from worldwise.stages.reporter import CurveRecorder, Silent
from worldwise.stages.subsample import (
    SubsampleConfig,
    finetune_auxiliary,
    score_transitions,
    split_transitions,
    subsample_transitions,
)
from worldwise.stages.supervised import SupervisedConfig, train_supervised
from worldwise.stages.train_policy import PolicyConfig, iteration_tasks, train_policy
from worldwise.stages.wm_sft import finetune_world_model
from worldwise.stages.yardsticks import score_yardsticks
from worldwise.training.learner import Learner, LearnerConfig
from worldwise.worlds.contract import WorldFamily

FAST = LearnerConfig(learning_rate=1e-2, betas=(0.9, 0.95), clip_high=0.28, updates=2)
LEARN = SupervisedConfig(epochs=25, batch=8, learner=LearnerConfig(learning_rate=1e-2, betas=(0.9, 0.95)))
WARM = LEARN.model_copy(update={"epochs": 10})


def twin(checkpoint: Checkpoint) -> Checkpoint:
    return replace(checkpoint, model=copy.deepcopy(checkpoint.model))


@pytest.fixture
def episodes(start: Checkpoint, family: WorldFamily, context: StageContext) -> list[Episode]:
    config = CollectConfig(tasks=5, episodes_per_task=2, max_turns=2)
    return list(collect_episodes(start, family.tasks("train"), config, context))


@pytest.fixture
def transitions(episodes: list[Episode], family: WorldFamily) -> list[Transition]:
    return extract(episodes, family, CollectConfig().cleaning, 0)[0]


def test_collection_plays_every_task_and_logs_it(start: Checkpoint, family: WorldFamily, context: StageContext) -> None:
    recorder = CurveRecorder(Silent())
    config = CollectConfig(tasks=5, episodes_per_task=3, max_turns=3)
    found = list(collect_episodes(start, family.tasks("train"), config, replace(context, reporter=recorder)))
    assert [episode.task_id for episode in found] == [f"train/{task}" for task in range(5) for _ in range(3)]
    assert {episode.iteration for episode in found} == {0}
    assert max(len(episode.turns) for episode in found) == 3
    for episode in found:
        check_episode(episode)
    assert recorder.rows[0]["success"] == pytest.approx(np.mean([episode.success for episode in found]))
    assert recorder.rows[0]["prefix_ratio"] <= 1.05
    again = list(collect_episodes(start, family.tasks("train"), config, context))
    assert [turn.action for e in again for turn in e.turns] == [turn.action for e in found for turn in e.turns]


def test_predictions_depend_neither_on_batch_nor_on_order(
    start: Checkpoint, transitions: list[Transition], context: StageContext
) -> None:
    actor = make_actor(start, context, 12)
    sampling = Sampling(temperature=1.0, max_tokens=12)
    some = transitions[:7]
    together = predict(actor, some, 3, sampling, seed=5)
    apart = [predict(actor, [item], 3, sampling, seed=5)[0] for item in reversed(some)]
    for own, alone in zip(together, reversed(apart), strict=True):
        for sample, other in zip(own, alone, strict=True):
            assert sample.completion.token_ids.tolist() == other.completion.token_ids.tolist()
            assert sample.completion.logprobs == pytest.approx(other.completion.logprobs, abs=1e-4)
    draws = {tuple(sample.completion.token_ids.tolist()) for own in together for sample in own}
    assert len(draws) > 15
    # All slots are free again.
    slots = [actor.engine.open() for _ in range(actor.engine.capacity)]
    assert len(slots) == 64


def test_sampled_predictions_have_the_learners_own_log_probabilities(
    start: Checkpoint, transitions: list[Transition], context: StageContext
) -> None:
    actor = make_actor(start, context, 12)
    samples = predict(actor, transitions[:5], 4, Sampling(temperature=0.7, max_tokens=12), seed=5)
    rows = [
        prediction_row(item, actor.agent, own, [1.0, -1.0, 0.5, -0.5], 0.7)
        for item, own in zip(transitions, samples, strict=False)
    ]
    assert Learner(start.model, FAST, 1).check_sampler_gap(rows).largest < 1e-5
    assert [sorted(set(row.branches.tolist())) for row in rows if row.branches is not None] == [[0, 1, 2, 3, 4]] * 5


def test_too_many_tries_name_the_slots(start: Checkpoint, transitions: list[Transition], context: StageContext) -> None:
    with pytest.raises(StageError, match=r"rollout\.slots is 64"):
        predict(make_actor(start, context, 8), transitions, 65, Sampling(max_tokens=8), seed=0)


def test_prompts_without_room_for_an_answer_are_named_before_anything_is_sampled(
    start: Checkpoint, transitions: list[Transition], context: StageContext
) -> None:
    longest = max(transitions, key=lambda item: len(item.prompt_ids))
    short = replace(context, rollout=context.rollout.model_copy(update={"max_episode_tokens": 30}))
    with pytest.raises(StageError, match=f"after {longest.transition_id} has .*lower rollout.max_episode_tokens"):
        predict(make_actor(start, short, 4), transitions, 1, Sampling(max_tokens=4), seed=0)


def test_episodes_leave_room_for_a_prediction(start: Checkpoint, context: StageContext) -> None:
    free = replace(context, rollout=RolloutConfig(slots=2, max_tokens=8))
    acting, predicting = make_actor(start, free), make_actor(start, free, 100)
    assert acting.engine.max_length == 512 - 128
    assert predicting.engine.max_length == acting.engine.max_length + len(acting.agent.predict_suffix()) + 100


def test_subsampling_from_split_to_report(
    start: Checkpoint, transitions: list[Transition], context: StageContext, encoder: Encoder
) -> None:
    config = SubsampleConfig(aux_share=0.5, tries=3, max_tokens=16, max_transitions=12, sft=LEARN, keep_probability=0.0)
    main, auxiliary = split_transitions(transitions, config, context.seed)
    assert not {item.task_id for item in main} & {item.task_id for item in auxiliary}
    assert len(main) <= 12
    trained, curve = finetune_auxiliary(twin(start), auxiliary, config, context)
    assert curve[-1]["loss"] < 0.5 * curve[0]["loss"]
    scores = score_transitions(trained, main, config, context, encoder)
    kept, report = subsample_transitions(main, auxiliary, scores, config, context.seed)
    assert report.parse_rate > 0.5
    assert report.kept == len(kept) == round((1 - report.easy_share) * len(main))
    assert all(item.pass_rate == 0.0 for item in kept)
    assert sum(count for _, count in report.easy_by_kind.values()) == len(main)
    fixed = config.model_copy(update={"tau_d": 2.0})
    everything = subsample_transitions(main, auxiliary, scores, fixed, context.seed)[1]
    assert everything.easy_share == np.mean([np.isfinite(score.distances).any() for score in scores])
    with pytest.raises(StageError, match="score the same transitions again"):
        subsample_transitions(main[1:], auxiliary, scores, config, context.seed)


def test_rwml_learns_to_predict(
    start: Checkpoint,
    family: WorldFamily,
    transitions: list[Transition],
    context: StageContext,
    encoder: Encoder,
) -> None:
    warm, _ = train_supervised(start, transitions, WARM, context, "warm")
    config = RwmlConfig(
        epochs=12,
        prompts=12,
        group_size=8,
        tau_d=0.005,
        max_tokens=16,
        guard_every=10,
        guard_margin=1.0,
        learner=LearnerConfig(learning_rate=4e-3, kl_coefficient=0.01),
    )
    before = twin(warm)
    result = midtrain_world_model(warm, transitions, 0.1, family.tasks("valid_seen"), config, context, encoder)
    rewards = [row["reward"] for row in result.curve]
    assert result.checkpoint.version == "rwml"
    assert np.mean(rewards[-3:]) > np.mean(rewards[:3]) + 0.05
    assert result.summary["updates"] == len(result.curve) == 12 * -(-len(transitions) // 12)
    assert result.summary["sampler_gap_largest"] < 1e-5
    assert "guard_base" in result.curve[0]
    assert "guard_success" in result.curve[9]
    assert result.curve[-1]["learner_kl_reference"] > 0.0
    assert weights_changed(before, result.checkpoint) > 0.5


def test_rwml_stops_on_collapse_and_puts_the_best_weights_back(
    start: Checkpoint,
    family: WorldFamily,
    transitions: list[Transition],
    context: StageContext,
    encoder: Encoder,
) -> None:
    able = PolicyConfig(algorithm="grpo", iterations=10, tasks_per_iteration=4, group_size=8, learner=FAST)
    policy = train_policy(start, family.tasks("train"), [], able, context, "able").checkpoint
    warm, _ = train_supervised(policy, transitions, WARM, context, "warm")
    before = twin(warm)
    destructive = RwmlConfig(
        epochs=20,
        prompts=6,
        group_size=4,
        tau_d="mixed",
        max_tokens=16,
        guard_every=1,
        guard_margin=0.05,
        learner=LearnerConfig(learning_rate=0.5),
    )
    tasks = family.tasks("valid_seen")
    result = midtrain_world_model(warm, transitions, 0.1, tasks, destructive, context, encoder)
    summary = result.summary
    assert summary["stopped_early"] == 1.0
    assert summary["guard_last"] < summary["guard_first"] - 0.05
    assert (summary["restored"], summary["restored_step"]) == (1.0, 0.0)
    assert 2 <= summary["updates"] < 10
    assert weights_changed(before, result.checkpoint) == 0.0


def test_supervised_control_lowers_the_loss(
    start: Checkpoint, transitions: list[Transition], context: StageContext
) -> None:
    trained, curve = finetune_world_model(start, transitions, LEARN, context)
    assert trained.version == "wm_sft"
    assert curve[-1]["loss"] < 0.5 * curve[0]["loss"]
    with pytest.raises(StageError, match="no transitions"):
        finetune_world_model(start, [], LEARN, context)


@pytest.mark.parametrize("algorithm", ["grpo", "gigpo"])
def test_policy_rl_learns_to_reach_the_goal(
    start: Checkpoint, family: WorldFamily, context: StageContext, algorithm: str
) -> None:
    config = PolicyConfig(
        algorithm=algorithm,
        iterations=12,
        tasks_per_iteration=4,
        group_size=8,
        learner=FAST,
        probe_every=12,
        store_every=5,
    )
    stored: dict[int, Sequence[Episode]] = {}
    result = train_policy(
        start, family.tasks("train"), family.tasks("valid_seen"), config, context, "policy", stored.__setitem__
    )
    curve = result.curve
    first, last = np.mean([row["success"] for row in curve[:2]]), np.mean([row["success"] for row in curve[-2:]])
    assert last > first + 0.3
    assert curve[-1]["probe_success"] > 0.7
    assert result.summary["sampler_gap_largest"] < 1e-5
    assert list(stored) == [0, 5, 10, 11]
    assert all(len(played) == 32 for played in stored.values())
    shown = {"mixed_groups", "zero_variance", "entropy", "seconds_rollout", "learner_grad_norm", "warnings"}
    assert shown | {"truncated_episodes", "truncated_responses"} <= set(curve[0])
    assert ("state_group_size" in curve[0]) == (algorithm == "gigpo")


def test_policy_rl_can_put_the_best_weights_back(start: Checkpoint, family: WorldFamily, context: StageContext) -> None:
    config = PolicyConfig(
        algorithm="grpo",
        iterations=3,
        tasks_per_iteration=2,
        group_size=4,
        keep_best=True,
        keep_window=1,
        learner=LearnerConfig(learning_rate=1.0),
    )
    before = twin(start)
    result = train_policy(start, family.tasks("train"), [], config, context, "policy")
    running = [row["running_success"] for row in result.curve]
    assert result.summary["best_running_success"] == max(running)
    assert result.summary["best_step"] == running.index(max(running))
    assert (weights_changed(before, result.checkpoint) == 0.0) == (running.index(max(running)) == 0)


@pytest.mark.parametrize(("keep", "told"), [(True, "come back at the end"), (False, "are not kept (policy.keep_best)")])
def test_a_collapse_of_the_success_is_told_once(
    start: Checkpoint,
    family: WorldFamily,
    context: StageContext,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    keep: bool,
    told: str,
) -> None:
    scores = iter([0.5, 0.6, 0.2, 0.1, 0.4, 0.2])
    monkeypatch.setattr(
        "worldwise.stages.train_policy.curve_numbers", lambda episodes: {"success": next(scores), "reward": 0.0}
    )
    config = PolicyConfig(
        iterations=6, tasks_per_iteration=2, group_size=2, keep_best=keep, keep_window=1, learner=LearnerConfig()
    )
    train_policy(start, family.tasks("train"), [], config, context, "policy")
    warnings = [record.getMessage() for record in caplog.records if "running success fell" in record.getMessage()]
    assert len(warnings) == 2, "in iterations 2 and 5, not again in 3"
    assert "20.0 % from 60.0 % in iteration 1" in warnings[0]
    assert told in warnings[0]
    assert "policy.learner.learning_rate (now 1e-06)" in warnings[0]


def test_policy_rl_needs_enough_tasks(start: Checkpoint, family: WorldFamily, context: StageContext) -> None:
    with pytest.raises(StageError, match="tasks_per_iteration is 16 and there are 12"):
        train_policy(start, family.tasks("train"), [], PolicyConfig(), context, "policy")
    config = PolicyConfig(tasks_per_iteration=2, probe_every=1)
    with pytest.raises(StageError, match="no probe tasks"):
        train_policy(start, family.tasks("train"), [], config, context, "policy")


def test_iterations_take_fresh_tasks_until_all_were_played(family: WorldFamily) -> None:
    tasks = family.tasks("train")
    taken = [iteration_tasks(tasks, 4, iteration, seed=3) for iteration in range(6)]
    for epoch in (taken[:3], taken[3:]):
        assert sorted(task.task_id for part in epoch for task in part) == sorted(task.task_id for task in tasks)
    assert taken[:3] != taken[3:]
    assert iteration_tasks(tasks, 4, 4, seed=3) == taken[4]


def test_evaluation_of_acting_and_world_model(
    start: Checkpoint, family: WorldFamily, context: StageContext, encoder: Encoder
) -> None:
    config = EvaluateConfig(games=5, temperatures=(0.0, 0.5), episodes_per_game=2, world_model_transitions=6)
    tasks = {split: family.tasks(split) for split in config.splits}
    episodes = list(evaluate_acting(start, tasks, config, context))
    report = report_acting("base", episodes)
    counts = {
        (split, temperature): score.success.count
        for split, row in report.scores.items()
        for temperature, score in row.items()
    }
    assert counts == {(split, t): n for split in config.splits for t, n in (("0", 5), ("0.5", 10))}
    assert report.restricted is True
    held_out = held_out_transitions(episodes, config, context)
    assert 1 <= len(held_out) <= 6
    scores, pairs = score_world_model(start, held_out, config, context, encoder)
    assert scores.overall.exact.count == len(pairs) == len(held_out)
    assert sum(score.exact.count for score in scores.by_kind.values()) == len(held_out)
    shown = with_predictions(start, episodes[:2], config, context, encoder)
    assert all(len(turn.predictions) == 1 for episode in shown for turn in episode.turns)
    assert [turn.action for turn in shown[0].turns] == [turn.action for turn in episodes[0].turns]
    with pytest.raises(StageError, match="prepare its tasks"):
        list(evaluate_acting(start, {"valid_seen": tasks["valid_seen"]}, config, context))


def test_a_trained_world_model_scores_higher(
    start: Checkpoint, transitions: list[Transition], context: StageContext, encoder: Encoder
) -> None:
    config = EvaluateConfig(world_model_tokens=16)
    before, _ = score_world_model(start, transitions, config, context, encoder)
    trained, _ = finetune_world_model(start, transitions, LEARN, context)
    after, _ = score_world_model(trained, transitions, config, context, encoder)
    assert after.overall.similarity > before.overall.similarity
    assert after.overall.exact.share > before.overall.exact.share


def test_yardsticks(family: WorldFamily, context: StageContext) -> None:
    found = score_yardsticks({split: family.tasks(split) for split in family.splits}, EvaluateConfig(games=6), context)
    oracle, random = found["oracle"].scores["valid_seen"]["0"], found["random"].scores["valid_seen"]["0"]
    assert (oracle.success.share, oracle.mean_turns) == (1.0, 1.5)
    assert random.success.share < 1.0
    assert found["oracle"].restricted is None


def test_weights_changed_counts_relative_changes(start: Checkpoint) -> None:
    after = twin(start)
    assert weights_changed(start, after) == 0.0
    parameters = dict(after.model.named_parameters())
    first = next(iter(parameters.values()))
    first.data.mul_(1.01)
    total = sum(value.numel() for value in start.model.state_dict().values())
    changed = sum(value.numel() for value in after.model.state_dict().values() if value.data_ptr() == first.data_ptr())
    assert weights_changed(start, after) == pytest.approx(changed / total)


def test_short_contexts_are_refused(start: Checkpoint, context: StageContext) -> None:
    with pytest.raises(StageError, match=r"lower rollout\.max_tokens"):
        make_actor(start, replace(context, rollout=RolloutConfig(max_tokens=600)))


def test_a_model_stops_at_every_token_that_its_generation_config_names(
    start: Checkpoint, context: StageContext
) -> None:
    start.model.generation_config.eos_token_id = [7, 9, 10**9]
    with make_actor(start, context) as actor:
        assert {7, 9} <= set(actor.agent.stop_ids)
        assert 10**9 not in actor.agent.stop_ids
    start.model.generation_config.eos_token_id = 7
    with make_actor(start, context) as actor:
        assert 7 in actor.agent.stop_ids
