"""Episodes that world or engine broke: counted, told of, and too many of them stop a stage."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.stages.conftest import Corridor, CorridorFamily
from worldwise.episodes.record import Episode, Termination
from worldwise.stages.actor import Checkpoint, StageContext
from worldwise.stages.collect import CollectConfig, collect_episodes
from worldwise.stages.errors import StageError
from worldwise.stages.evaluate import EvaluateConfig, evaluate_acting
from worldwise.stages.playing import sound
from worldwise.stages.train_policy import PolicyConfig, train_policy
from worldwise.training.config import LearnerConfig
from worldwise.worlds.contract import Step, WorldFamily


class _Fragile(Corridor):
    """Breaks at the first step if its family says so."""

    def __init__(self, max_turns: int, breaks: bool) -> None:
        super().__init__(max_turns)
        self._breaks = breaks

    def step(self, action: str) -> Step:
        if self._breaks:
            raise RuntimeError("the engine is gone")
        return super().step(action)


class _FragileFamily(CorridorFamily):
    """Of each `every` worlds one breaks."""

    def __init__(self, every: int) -> None:
        self._every, self._made = every, 0

    def new(self) -> Corridor:
        self._made += 1
        return _Fragile(self.max_turns, self._made % self._every == 1 % self._every)


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


def _policy(algorithm: str) -> PolicyConfig:
    learner = LearnerConfig(learning_rate=1e-3, updates=1)
    return PolicyConfig(algorithm=algorithm, iterations=1, tasks_per_iteration=3, group_size=4, learner=learner)


@pytest.mark.parametrize(("algorithm", "dropped"), [("grpo", 4.0), ("reinforce_pp", 1.0)])
def test_policy_rl_drops_the_group_of_an_episode_that_broke_and_goes_on(
    start: Checkpoint, context: StageContext, algorithm: str, dropped: float
) -> None:
    family = _FragileFamily(12)
    own = replace(context, family=family)
    (row,) = train_policy(start, family.tasks("train"), [], _policy(algorithm), own, "policy").curve
    assert (row["episodes"], row["failed_episodes"], row["dropped_episodes"]) == (12.0, 1.0, dropped)


def test_policy_rl_stops_where_every_group_broke(start: Checkpoint, context: StageContext) -> None:
    family = _FragileFamily(1)
    with pytest.raises(StageError, match="policy, iteration 0: nothing to train on is left: failures of world or"):
        train_policy(start, family.tasks("train"), [], _policy("grpo"), replace(context, family=family), "policy")
