"""A sound record passes; every contradiction is named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from worldwise.episodes.record import Episode, Prediction, Termination, Turn
from worldwise.episodes.validate import EpisodeError, check_episode, episode_problems


def test_sound_records(episode_of: Callable[..., Episode], rich_episode: Episode) -> None:
    assert episode_problems(episode_of()) == []
    assert episode_problems(rich_episode) == []
    check_episode(episode_of())
    broken = replace(episode_of(), turns=(), termination=Termination.WORLD_ERROR, success=False, reward_valid=False)
    assert episode_problems(broken) == []


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"reward_valid": False}, "reward_valid=False"),
        ({"termination": Termination.TIMEOUT, "success": False}, "reward_valid=True"),
        ({"success": False}, "success=False does not go with"),
        ({"turns": ()}, "no turns"),
        ({"progress": 1.5}, "progress=1.5"),
        ({"context": "tree"}, "context='tree'"),
        ({"temperature": float("nan")}, "temperature=nan"),
        ({"termination": Termination.TURN_LIMIT, "success": False}, "turn_limit does not go with terminated=True"),
        ({"termination": Termination.TOKEN_LIMIT, "success": False}, "token_limit does not go with"),
        ({"restricted": True}, "admissible commands are missing"),
        ({"context": "window"}, "turn 1: its context must restart"),
    ],
)
def test_contradictions_of_an_episode(
    episode_of: Callable[..., Episode], changes: dict[str, object], problem: str
) -> None:
    with pytest.raises(EpisodeError, match=f"collect/0/task-a/0.*{problem}"):
        check_episode(replace(episode_of(), **changes))  # type: ignore[arg-type]


FLOATS = np.zeros(2, dtype=np.float32)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"index": 5}, "index=5 instead of 1"),
        ({"context_ids": np.zeros(0, np.int32), "observation_span": (0, 0)}, "no context"),
        ({"terminated": True}, "there are more turns"),
        ({"next_observation": "elsewhere"}, "not the next turn's observation"),
        ({"response_ids": np.zeros(0, np.int32)}, "no response tokens"),
        ({"logprobs": FLOATS[:1]}, "logprobs has 1 values for 2 tokens"),
        ({"entropies": FLOATS[:1]}, "entropies has 1 values for 2 tokens"),
        ({"logprobs": FLOATS + 0.1}, "a log-probability is above 0"),
        ({"entropies": FLOATS - 0.1}, "an entropy is below 0"),
        ({"logprobs": FLOATS - np.inf}, "logprobs holds a value that is not finite"),
        ({"logprobs": np.zeros(2)}, "logprobs is float64"),
        ({"response_ids": np.zeros(2, np.int64)}, "response_ids is int64"),
        ({"observation_span": (2, 4)}, "observation_span="),
        ({"action_span": (2, 1)}, "action_span="),
        ({"reward": float("nan")}, "reward=nan"),
        ({"progress": -0.1}, "progress=-0.1"),
        ({"predictions": (Prediction(0, "", FLOATS[:0].astype(np.int32), FLOATS[:0]),)}, "horizon 0"),
        ({"predictions": (Prediction(1, "", FLOATS.astype(np.int32), FLOATS[:0]),)}, "another number of log-prob"),
    ],
)
def test_contradictions_of_a_turn(
    episode_of: Callable[..., Episode], turn_of: Callable[..., Turn], changes: dict[str, object], problem: str
) -> None:
    episode = episode_of()
    first, _, last = episode.turns
    (found,) = [
        text
        for text in episode_problems(replace(episode, turns=(first, replace(turn_of(1), **changes), last)))
        if problem in text
    ]
    assert found.startswith("turn 1: ")
