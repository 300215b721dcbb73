"""Episodes that world or engine broke: counted, told of, and too many of them stop a stage."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

import pytest

from worldwise.episodes.record import Episode, Termination
from worldwise.stages.actor import Checkpoint, StageContext
from worldwise.stages.collect import CollectConfig, collect_episodes
from worldwise.stages.errors import StageError
from worldwise.stages.evaluate import EvaluateConfig, evaluate_acting
from worldwise.stages.playing import sound
from worldwise.worlds.contract import WorldFamily


@pytest.fixture
def episode(start: Checkpoint, family: WorldFamily, context: StageContext) -> Episode:
    return next(iter(collect_episodes(start, family.tasks("train"), CollectConfig(tasks=1, max_turns=2), context)))


def broken(episode: Episode) -> Episode:
    return replace(episode, reward_valid=False, success=False, termination=Termination.WORLD_ERROR)


def test_a_failure_within_the_limit_is_told_once(episode: Episode, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        found = list(sound(iter([episode, broken(episode), episode, episode]), 4, "collect", 0.25))
    assert len(found) == 4
    assert caplog.messages == [
        "collect: 1 of 4 episodes ended in failures of world or engine (1 world_error); these episodes count nowhere"
    ]


def test_one_too_many_stops_at_once(episode: Episode) -> None:
    stream = iter([broken(episode), episode, broken(episode), episode])
    seen = []
    with pytest.raises(StageError, match=r"collect: 2 of 4 .* \(2 world_error\), more than rollout.failures_max=0.25"):
        seen.extend(sound(stream, 4, "collect", 0.25))
    assert len(list(stream)) == 1


def test_no_failure_is_no_news(episode: Episode, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        assert len(list(sound(iter([episode, episode]), 2, "collect", 0.0))) == 2
    assert not caplog.messages


def _collect(start: Checkpoint, family: WorldFamily, context: StageContext) -> list[Episode]:
    return list(collect_episodes(start, family.tasks("train"), CollectConfig(tasks=4), context))


def _evaluate(start: Checkpoint, family: WorldFamily, context: StageContext) -> list[Episode]:
    tasks = {split: family.tasks(split) for split in ("valid_seen", "valid_unseen")}
    return list(evaluate_acting(start, tasks, EvaluateConfig(games=3), context))


@pytest.mark.parametrize("stage", [_collect, _evaluate])
def test_a_world_that_never_answers_in_time_is_no_result(
    start: Checkpoint,
    family: WorldFamily,
    context: StageContext,
    stage: Callable[[Checkpoint, WorldFamily, StageContext], list[Episode]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    hurried = replace(context, rollout=context.rollout.model_copy(update={"step_timeout_s": 1e-9}))
    with caplog.at_level(logging.WARNING), pytest.raises(StageError, match=r"timeout\).*rollout.failures_max=0.1"):
        stage(start, family, hurried)
    assert sum(record.exc_info is not None for record in caplog.records) == 1, "one stack is enough"
    assert stage(start, family, replace(hurried, rollout=hurried.rollout.model_copy(update={"failures_max": 1.0})))
