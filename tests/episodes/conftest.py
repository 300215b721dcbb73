"""Records made by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from worldwise.episodes.record import Episode, Prediction, Termination, Turn


def make_turn(index: int, **changes: object) -> Turn:
    """A sound turn: context [10, 20 + index, 11], response [30 + index, 1]."""
    turn = Turn(
        index=index,
        observation=f"room {index}",
        context_ids=np.asarray([10, 20 + index, 11], dtype=np.int32),
        restart=index == 0,
        observation_span=(1, 2),
        response_ids=np.asarray([30 + index, 1], dtype=np.int32),
        logprobs=np.asarray([-0.1, -1e-3], dtype=np.float32),
        entropies=np.asarray([0.3, 1 / 3], dtype=np.float32),
        response_text="go on",
        action="go on",
        action_span=(0, 1),
        format_valid=True,
        finished=True,
        accepted=True,
        reward=0.0,
        progress=0.25,
        next_observation=f"room {index + 1}",
        terminated=False,
        truncated=False,
    )
    return replace(turn, **changes)  # type: ignore[arg-type]


def make_episode(name: str = "collect/0/task-a/0", turns: int = 3, **changes: object) -> Episode:
    """A sound episode that was solved."""
    played = [make_turn(index) for index in range(turns)]
    played[-1] = replace(played[-1], terminated=True, reward=1.0, progress=1.0)
    episode = Episode(
        episode_id=name,
        group_id=name.rsplit("/", 1)[0],
        world="rooms",
        task_id=name.split("/")[2],
        task_type="walk",
        split="train",
        sample=int(name.rsplit("/", 1)[1]),
        iteration=0,
        seed=(1 << 63) - 1,
        model_version="base",
        turns=tuple(played),
        termination=Termination.SOLVED,
        success=True,
        progress=1.0,
        reward_valid=True,
        temperature=1.0,
        restricted=False,
        context="conversation",
    )
    return replace(episode, **changes)  # type: ignore[arg-type]


@pytest.fixture
def turn_of() -> Callable[..., Turn]:
    return make_turn


@pytest.fixture
def episode_of() -> Callable[..., Episode]:
    return make_episode


@pytest.fixture
def rich_episode() -> Episode:
    """An episode with everything that may be absent."""
    prediction = Prediction(
        2, 'room 7\n"é"', np.asarray([5, 6], np.int32), np.asarray([-0.7, -1e-7], np.float32), score=1 / 3
    )
    unscored = Prediction(1, "", np.zeros(0, np.int32), np.zeros(0, np.float32))
    first = make_turn(0, admissible=("go on", "look"), predictions=(prediction, unscored))
    second = make_turn(1, admissible=(), terminated=True, reward=0.1, progress=1.0)
    return replace(
        make_episode("train/12/task-b/3"),
        turns=(first, second),
        restricted=True,
        extras={"a": 0.1, "b": -2.0},
        world_seed=77,
    )
