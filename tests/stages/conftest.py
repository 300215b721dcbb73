"""Hand-made episodes for the tests of scores and rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from worldwise.episodes.record import Episode, Termination, Turn

MakeEpisode = Callable[..., Episode]


def turn(
    index: int,
    *,
    observation: str = "",
    action: str = "look",
    answer: str = "You see nothing.",
    reward: float = 0.0,
    progress: float = 0.0,
    valid: bool = True,
    accepted: bool = True,
    terminated: bool = False,
) -> Turn:
    """A turn whose context and response have three and two tokens."""
    return Turn(
        index=index,
        observation=observation or f"state {index}",
        context_ids=np.asarray([1, 2, 3], dtype=np.int32),
        restart=index == 0,
        observation_span=(1, 2),
        response_ids=np.asarray([4, 5], dtype=np.int32),
        logprobs=np.asarray([-0.5, -1.0], dtype=np.float32),
        entropies=np.asarray([0.25, 0.75], dtype=np.float32),
        response_text=action,
        action=action,
        action_span=(0, 1),
        format_valid=valid,
        finished=True,
        accepted=accepted,
        reward=reward,
        progress=progress,
        next_observation=answer,
        terminated=terminated,
        truncated=False,
    )


@pytest.fixture
def make_turn() -> Callable[..., Turn]:
    """Builds a turn."""
    return turn


@pytest.fixture
def make_episode() -> MakeEpisode:
    """Builds an episode out of turns; by default two turns, the last of which solves the task if `success`."""

    def build(
        name: str = "a",
        *,
        group: str = "g",
        success: bool = False,
        turns: Sequence[Turn] | None = None,
        termination: Termination | None = None,
        task_type: str = "pick",
        split: str = "valid_seen",
        temperature: float = 1.0,
    ) -> Episode:
        end = Termination.SOLVED if success else Termination.TURN_LIMIT
        won = float(success)
        played = [turn(0), turn(1, reward=won, progress=won, terminated=success)] if turns is None else turns
        ended = end if termination is None else termination
        failed = ended in (Termination.WORLD_ERROR, Termination.TIMEOUT, Termination.ENGINE_ERROR)
        return Episode(
            episode_id=f"{group}/{name}",
            group_id=group,
            world="household",
            task_id=group,
            task_type=task_type,
            split=split,
            sample=0,
            iteration=0,
            seed=0,
            model_version="test",
            turns=tuple(played),
            termination=ended,
            success=success,
            progress=played[-1].progress if played else 0.0,
            reward_valid=not failed,
            temperature=temperature,
            restricted=False,
            context="conversation",
        )

    return build
