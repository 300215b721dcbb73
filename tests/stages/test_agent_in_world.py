"""Agent-In-World in policy RL: who judges, what gains weight, that the weights choose what is played, and resuming."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from tests.stages.conftest import LetterEncoder
from worldwise.agents.agent import Agent
from worldwise.agents.config import AgentConfig
from worldwise.episodes.record import Episode, Turn
from worldwise.generation.protocol import Completion, Request
from worldwise.stages.actor import Actor, Checkpoint, StageContext
from worldwise.stages.agent_in_world import AgentInWorld
from worldwise.stages.agent_in_world_config import AgentInWorldConfig
from worldwise.stages.errors import StageError
from worldwise.stages.modules import ModulesConfig
from worldwise.stages.train_policy import PolicyConfig, train_policy
from worldwise.training.learner import LearnerConfig
from worldwise.worlds.contract import WorldFamily

FAST = LearnerConfig(learning_rate=1e-3, betas=(0.9, 0.95))
RULES = AgentInWorldConfig(judge="rules", retrieval="mode")


@dataclass
class Speaker:
    """An engine that answers with given texts, in turn, and remembers what it was asked."""

    agent: Agent
    texts: Iterator[str]
    max_length: int = 4000
    capacity: int = 2

    def __post_init__(self) -> None:
        self.asked: list[str] = []
        self._open = 0

    def open(self) -> int:
        self._open += 1
        assert self._open <= self.capacity
        return self._open

    def close(self, slot: int) -> None:
        self._open -= 1

    def generate(self, requests: Sequence[Request], sampling: object, stop_ids: object) -> list[Completion]:
        answers = []
        for request in requests:
            self.asked.append(self.agent.decode(list(request.new_ids)))
            ids = np.asarray([*self.agent.encode(next(self.texts)), self.agent.end_id], dtype=np.int32)
            nothing = np.zeros(len(ids), dtype=np.float32)
            answers.append(Completion(ids, nothing, nothing, "stop"))
        return answers


@pytest.fixture
def speak(start: Checkpoint, family: WorldFamily) -> Callable[..., tuple[Actor, Speaker]]:
    def make(*texts: str, style: str = "instruct", **engine: Any) -> tuple[Actor, Speaker]:
        config = AgentConfig.model_validate({"style": style, "action_format": "plain" if style == "plain" else "tags"})
        agent = Agent(start.tokenizer, config, family)
        speaker = Speaker(agent, iter(texts), **engine)
        return cast(Actor, SimpleNamespace(agent=agent, engine=speaker)), speaker

    return make


@pytest.fixture
def failed(make_episode: Callable[..., Episode]) -> Callable[..., list[Episode]]:
    """Groups of two episodes that failed, by task id."""

    def make(*tasks: str, success: bool = False) -> list[Episode]:
        return [
            replace(make_episode(name, group=task, success=success), task_id=task) for task in tasks for name in "ab"
        ]

    return make


def curriculum(family: WorldFamily, config: AgentInWorldConfig, encoder: Any = None) -> AgentInWorld:
    return AgentInWorld(config, family, family.tasks("train"), 7, encoder)


def said(mode: str, query: str = "corridors") -> str:
    return f"<reflection>\nmode: {mode}\ndetail: It stood still.\nturn: 2\nlesson: walk\nquery: {query}\n</reflection>"


def test_rules_judge_and_the_same_kind_gains_weight(
    family: WorldFamily, failed: Callable[..., list[Episode]], speak: Callable[..., tuple[Actor, Speaker]]
) -> None:
    own = curriculum(family, RULES)
    actor, speaker = speak(style="plain")
    first = own.learn(failed("train/0", "train/1"), actor, 0)
    assert (first["failures_judged"], first["failures_other"], first["failures_by_model"]) == (2.0, 2.0, 0.0)
    # Each finds the other.
    assert own.weights.weights == {"train/0": 1.5, "train/1": 1.5}
    second = own.learn(failed("train/2"), actor, 1)
    assert second["tasks_raised"] == 2.0
    assert own.weights.weights == {"train/0": 0.9 * 1.5 + 1, "train/1": 0.9 * 1.5 + 1, "train/2": 0.5}
    own.learn(failed("train/0", success=True), actor, 2)
    assert own.weights.weights["train/0"] == pytest.approx((0.9 * 1.5 + 1) * 0.9 / 2)
    assert own.memory.counts() == {"other": 2}, "what succeeds is forgotten"
    assert not speaker.asked


def test_the_model_judges_and_finds(
    family: WorldFamily, failed: Callable[..., list[Episode]], speak: Callable[..., tuple[Actor, Speaker]]
) -> None:
    own = curriculum(family, AgentInWorldConfig())
    actor, speaker = speak(
        said("navigation_loop"),
        said("Repeated failed action"),
        "<selected_tasks>\n1: alike\n</selected_tasks>",
        "I cannot say.",
    )
    numbers = own.learn(failed("train/0", "train/1"), actor, 0)
    assert (numbers["failures_navigation_loop"], numbers["failures_repeated_failed_action"]) == (1.0, 1.0)
    assert (numbers["failures_by_model"], numbers["reflections_unread"], numbers["selections_unread"]) == (
        1.0,
        0.0,
        0.5,
    )
    assert own.weights.weights == {"train/0": 0.5, "train/1": 1.5}, "one found the other, one could not be read"
    assert "Say why it failed" in speaker.asked[0]
    assert "state 0" in speaker.asked[0]
    assert "navigation_loop" in speaker.asked[0]
    assert "It stood still." in speaker.asked[2]
    (entry,) = own.content()["memory"]["navigation_loop"]
    assert (entry["detail"], entry["turn"], entry["by"], entry["iteration"]) == ("It stood still.", 2, "model", 0)


def test_what_cannot_be_read_the_rules_judge(
    family: WorldFamily, failed: Callable[..., list[Episode]], speak: Callable[..., tuple[Actor, Speaker]]
) -> None:
    own = curriculum(family, AgentInWorldConfig(retrieval="mode"))
    actor, _ = speak("mode: navigation_loop", said("boredom"))
    numbers = own.learn(failed("train/0", "train/1"), actor, 0)
    assert (numbers["reflections_unread"], numbers["failures_by_model"], numbers["failures_other"]) == (1.0, 0.0, 2.0)
    assert own.weights.weights == {"train/0": 1.5, "train/1": 1.5}


def test_a_long_episode_loses_its_first_turns(
    family: WorldFamily,
    make_episode: Callable[..., Episode],
    make_turn: Callable[..., Turn],
    speak: Callable[..., tuple[Actor, Speaker]],
) -> None:
    turns = [make_turn(number, observation=f"<room {number}> " + "x" * 200) for number in range(10)]
    episode = replace(make_episode("a", turns=turns), task_id="train/0")
    actor, speaker = speak(said("other"), max_length=1900)
    curriculum(family, AgentInWorldConfig(retrieval="mode")).learn([episode], actor, 0)
    assert "turns are left out" in speaker.asked[0]
    assert "You saw: <room 9>" in speaker.asked[0]
    assert "You saw: <room 0>" not in speaker.asked[0]
    actor, speaker = speak(max_length=300)
    numbers = curriculum(family, AgentInWorldConfig(retrieval="mode")).learn([episode], actor, 0)
    assert (numbers["failures_judged"], numbers["failures_by_model"]) == (1.0, 0.0)
    assert not speaker.asked, "nothing fits"


def test_embeddings_find_the_nearest(
    family: WorldFamily, failed: Callable[..., list[Episode]], speak: Callable[..., tuple[Actor, Speaker]]
) -> None:
    config = AgentInWorldConfig(retrieval="embedding", retrieved=1, own_amount=0.0)
    own = curriculum(family, config, LetterEncoder())
    actor, _ = speak(*(said("navigation_loop", query) for query in ("zzz", "qqq", "mmm")))
    episodes = [
        replace(episode, turns=(replace(episode.turns[0], observation=text), *episode.turns[1:]))
        for task, text in (("train/0", "zz"), ("train/1", "qq"), ("train/2", "zq"))
        for episode in failed(task)
    ]
    own.learn(episodes, actor, 0)
    # train/0 asks for z: of the others zq is nearest. train/1 asks for q: zq too. What is like mmm does not matter.
    assert own.weights.weights["train/2"] == 2.0


def test_the_weights_choose_what_is_played(family: WorldFamily) -> None:
    own = curriculum(family, RULES.model_copy(update={"eta": 1.0}))
    own.weights.weights = {"train/3": 1.0, "train/5": 1.0}
    for iteration in range(5):
        tasks, numbers = own.choose(2, iteration)
        assert {task.task_id for task in tasks} == {"train/3", "train/5"}
    assert numbers["task_entropy"] == pytest.approx(np.log(2))
    assert numbers["task_weights"] == 2.0
    even = curriculum(family, RULES.model_copy(update={"eta": 0.0}))
    even.weights.weights = {"train/3": 5.0}
    counts = Counter(task.task_id for iteration in range(600) for task in even.choose(2, iteration)[0])
    assert len(counts) == 12
    assert max(counts.values()) < 1.5 * min(counts.values())
    assert even.choose(2, 0)[1]["task_entropy_share"] == pytest.approx(1.0)
    placebo = curriculum(family, RULES.model_copy(update={"eta": 1.0, "weights": "shuffled"}))
    placebo.weights.weights = {"train/3": 1.0, "train/5": 1.0}
    drawn = {task.task_id for iteration in range(20) for task in placebo.choose(2, iteration)[0]}
    assert len(drawn) > 8


def policy(modules: dict[str, Any], **changes: Any) -> PolicyConfig:
    settings = {"algorithm": "gigpo", "iterations": 3, "tasks_per_iteration": 2, "group_size": 4, "learner": FAST}
    return PolicyConfig(modules=ModulesConfig.model_validate(modules), **{**settings, **changes})


@pytest.mark.parametrize("algorithm", ["grpo", "gigpo"])
@pytest.mark.parametrize("style", ["plain", "instruct"])
def test_all_modules_together(
    start: Checkpoint, family: WorldFamily, context: StageContext, algorithm: str, style: str
) -> None:
    """A model of a few thousand parameters says nothing that can be read: the rules stand in, and it is counted."""
    agent = {"style": style, "restrict_to_admissible": True, "action_format": "plain" if style == "plain" else "tags"}
    rollout = context.rollout.model_copy(update={"max_episode_tokens": None, "max_tokens": 24})
    own = replace(context, agent=AgentConfig.model_validate(agent), rollout=rollout)
    start = replace(start, model=_longer(start))
    modules = {"paw": True, "world_in_agent": {"max_tokens": 8}, "agent_in_world": {"max_tokens": 16}}
    result = train_policy(
        start, family.tasks("train"), family.tasks("valid_seen"), policy(modules, algorithm=algorithm), own, "policy"
    )
    assert result.curve[-1]["failures_judged"] > 0.0
    assert result.curve[-1]["task_weights"] > 0.0
    assert (result.curve[0]["reflections_unread"] == 1.0) == (style == "instruct")
    assert result.notes["agent_in_world"]["weights"]
    assert {"paw_lambda", "foresight_score", "task_entropy"} <= set(result.curve[0])


def _longer(start: Checkpoint) -> Any:
    from worldwise.generation.tiny import tiny_model

    return tiny_model("qwen3", layers=2, hidden=32, max_positions=4096, spread=0.08, seed=1)


def test_a_model_that_has_no_words_is_not_asked(start: Checkpoint, family: WorldFamily, context: StageContext) -> None:
    config = policy({"agent_in_world": {"judge": "model"}})
    with pytest.raises(StageError, match=r"judge=model, retrieval=auto.*agent\.style=plain has no words for it"):
        train_policy(start, family.tasks("train"), [], config, context, "policy")
