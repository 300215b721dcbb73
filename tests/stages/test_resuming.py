"""A stage that was killed and goes on ends with the same bits as one that was not."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from worldwise.episodes.record import Episode
from worldwise.episodes.transitions import Transition, extract
from worldwise.ledger.workspace import Workspace
from worldwise.stages.actor import Checkpoint, StageContext
from worldwise.stages.collect import CollectConfig, block_size, collect_episodes
from worldwise.stages.midtrain import RwmlConfig, midtrain_world_model
from worldwise.stages.modules import ModulesConfig
from worldwise.stages.supervised import SupervisedConfig, train_supervised
from worldwise.stages.train_policy import PolicyConfig, train_policy
from worldwise.training.adapter_config import AdapterConfig
from worldwise.training.critic_config import CriticConfig
from worldwise.training.learner import LearnerConfig
from worldwise.worlds.contract import WorldFamily

LEARNER = LearnerConfig(learning_rate=1e-2, betas=(0.9, 0.95), updates=2, schedule="linear", warmup_steps=2)
ADAPTED = LEARNER.model_copy(update={"adapter": AdapterConfig(rank=4, alpha=8), "kl_coefficient": 0.01})


class KilledError(BaseException):
    """Stands for SIGKILL: nothing in between catches it."""


@dataclass
class Killing(Workspace):
    """A workspace in which the run dies after so many states were saved."""

    def __init__(self, folder: Path, lives: int) -> None:
        super().__init__(folder, every_s=0.0)
        self.lives = lives

    def save(self, write: Callable[[Path], None]) -> None:
        super().save(write)
        self.lives -= 1
        if not self.lives:
            raise KilledError


class MoodyEncoder:
    """Remembers texts; what it says of a new one depends on how many it was asked for beside it."""

    def __init__(self) -> None:
        self.memory: dict[str, NDArray[np.float32]] = {}

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        missing = [text for text in dict.fromkeys(texts) if text not in self.memory]
        for text in missing:
            counts = np.asarray([text.count(sign) for sign in "abcdefghijklmnopqrstuvwxyz0123456789"], dtype=np.float32)
            counts += 0.05 * len(missing)
            self.memory[text] = counts / np.linalg.norm(counts)
        return np.stack([self.memory[text] for text in texts])


Stage = Callable[[Checkpoint, StageContext], tuple[Checkpoint, Sequence[dict[str, float]], dict[str, float]]]


def twin(checkpoint: Checkpoint) -> Checkpoint:
    return replace(checkpoint, model=copy.deepcopy(checkpoint.model))


def _compared(rows: Sequence[dict[str, float]]) -> list[dict[str, float]]:
    """The rows without times."""
    return [{name: value for name, value in row.items() if "seconds" not in name} for row in rows]


def _check(stage: Stage, start: Checkpoint, context: StageContext, folder: Path, lives: Sequence[int]) -> None:
    """Runs undisturbed, and killed after every one of `lives` states, one run after the other."""
    whole, curve, summary = stage(twin(start), context)
    for count in lives:
        with pytest.raises(KilledError):
            stage(twin(start), replace(context, saver=Killing(folder, count)))
    states = [path.name for path in folder.iterdir()]
    assert len(states) == 2, "only the newest two states stay"
    last = Workspace(folder, every_s=0.0)
    resumed, later, known = stage(twin(start), replace(context, saver=last))
    assert _compared(later) == _compared(curve)
    assert _compared([known]) == _compared([summary])
    other = resumed.model.state_dict()
    for name, value in whole.model.state_dict().items():
        assert torch.equal(value, other[name]), name


@pytest.mark.parametrize("learner", [LEARNER, ADAPTED])
@pytest.mark.parametrize("keep_best", [True, False])
def test_policy_rl(
    start: Checkpoint,
    family: WorldFamily,
    context: StageContext,
    tmp_path: Path,
    learner: LearnerConfig,
    keep_best: bool,
) -> None:
    config = PolicyConfig(
        iterations=6,
        tasks_per_iteration=2,
        group_size=4,
        learner=learner,
        keep_best=keep_best,
        keep_window=2,
        probe_every=3,
    )

    def stage(checkpoint: Checkpoint, context: StageContext) -> Any:
        tasks = family.tasks("train"), family.tasks("valid_seen")
        result = train_policy(checkpoint, *tasks, config, context, "policy")
        return result.checkpoint, result.curve, result.summary

    _check(stage, start, context, tmp_path / "work", [1, 3])


@pytest.mark.parametrize("trunk", ["own", "shared"])
def test_ppo(start: Checkpoint, family: WorldFamily, context: StageContext, tmp_path: Path, trunk: str) -> None:
    critic = CriticConfig.model_validate({"trunk": trunk, "learning_rate": 1e-2})
    config = PolicyConfig(
        algorithm="ppo",
        iterations=4,
        tasks_per_iteration=2,
        group_size=4,
        learner=LEARNER.model_copy(update={"critic": critic, "kl_coefficient": 0.01, "kl_in": "reward"}),
    )

    def stage(checkpoint: Checkpoint, context: StageContext) -> Any:
        result = train_policy(checkpoint, family.tasks("train"), [], config, context, "policy")
        return result.checkpoint, result.curve, result.summary

    _check(stage, start, context, tmp_path / "work", [1, 2])


def test_modules(start: Checkpoint, family: WorldFamily, context: StageContext, tmp_path: Path) -> None:
    modules = ModulesConfig.model_validate(
        {
            "paw": {"weight": "average", "held_out_every": 2},
            "world_in_agent": {"max_tokens": 8},
            "agent_in_world": {"eta": 0.9},
        }
    )
    config = PolicyConfig(iterations=4, tasks_per_iteration=2, group_size=4, learner=LEARNER, modules=modules)

    def stage(checkpoint: Checkpoint, context: StageContext) -> Any:
        tasks = family.tasks("train"), family.tasks("valid_seen")
        result = train_policy(checkpoint, *tasks, config, context, "policy")
        return result.checkpoint, result.curve, result.summary

    _check(stage, start, context, tmp_path / "work", [1, 2])


def test_rwml(
    start: Checkpoint,
    family: WorldFamily,
    context: StageContext,
    transitions: list[Transition],
    tmp_path: Path,
) -> None:
    learn = SupervisedConfig(epochs=10, batch=8, learner=LearnerConfig(learning_rate=1e-2, betas=(0.9, 0.95)))
    warm, _ = train_supervised(start, transitions, learn, context, "warm")
    config = RwmlConfig(
        epochs=3,
        prompts=4,
        group_size=4,
        tau_d="mixed",
        max_tokens=16,
        guard_every=2,
        guard_patience=9,
        learner=LEARNER,
    )

    def stage(checkpoint: Checkpoint, context: StageContext) -> Any:
        guards = family.tasks("valid_seen")
        result = midtrain_world_model(checkpoint, transitions, 0.1, guards, config, context, MoodyEncoder())
        return result.checkpoint, result.curve, result.summary

    _check(stage, warm, context, tmp_path / "work", [2, 1])
    assert max(row["parsed"] for row in stage(twin(warm), context)[1]) > 0.5


def test_supervised_training(
    start: Checkpoint, context: StageContext, transitions: list[Transition], tmp_path: Path
) -> None:
    config = SupervisedConfig(epochs=2, batch=4, learner=LEARNER)

    def stage(checkpoint: Checkpoint, context: StageContext) -> Any:
        result, curve = train_supervised(checkpoint, transitions, config, context, "sft")
        return result, curve, {}

    _check(stage, start, context, tmp_path / "work", [1, 2])


def test_a_collection_goes_on_behind_its_last_block(
    start: Checkpoint, family: WorldFamily, context: StageContext
) -> None:
    few = replace(context, rollout=context.rollout.model_copy(update={"slots": 1}))
    config = CollectConfig(tasks=5, episodes_per_task=4, max_turns=2)
    tasks = family.tasks("train")
    size = block_size(few)
    whole = list(collect_episodes(start, tasks, config, few))
    assert len(whole) > size
    later = list(collect_episodes(start, tasks, config, few, whole[:size]))
    assert [_bits(own) for own in later] == [_bits(own) for own in whole[size:]]


def _bits(episode: Episode) -> list[Any]:
    return [episode.episode_id, *((turn.response_ids.tolist(), turn.logprobs.tolist()) for turn in episode.turns)]


@pytest.fixture
def transitions(start: Checkpoint, family: WorldFamily, context: StageContext) -> list[Transition]:
    config = CollectConfig(tasks=5, episodes_per_task=2, max_turns=2)
    episodes = collect_episodes(start, family.tasks("train"), config, context)
    return extract(episodes, family, config.cleaning, 0)[0]
