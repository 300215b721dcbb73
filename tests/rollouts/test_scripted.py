"""Play without a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from worldwise.agents.agent import Agent
from worldwise.episodes.record import Termination
from worldwise.rollouts.config import RolloutError
from worldwise.rollouts.scripted import play_scripted, summarise, yardstick
from worldwise.worlds.contract import Info, World

if TYPE_CHECKING:
    from tests.rollouts.conftest import CorridorFamily


class Says:
    """Always one command."""

    def __init__(self, command: str) -> None:
        self._command = command

    def act(self, world: World, observation: str, info: Info) -> str:
        return self._command


def test_the_oracle_walks_through(family: CorridorFamily, agent: Agent) -> None:
    episode = play_scripted(family, "oracle", family.task("a", length=2), seed=0)
    assert episode.actions == ("go right", "go right")
    assert episode.observations == ("Room 0. Reach room 2.", "Room 1.", "Room 2.")
    assert episode.rewards == (0.0, 1.0)
    assert (episode.success, episode.progress, episode.termination) == (True, 1.0, Termination.SOLVED)
    assert episode.messages() == [
        {"role": "user", "content": "Room 0. Reach room 2."},
        {"role": "assistant", "content": "go right"},
        {"role": "user", "content": "Room 1."},
        {"role": "assistant", "content": "go right"},
        {"role": "user", "content": "Room 2."},
    ]
    chat = agent.transcript(episode.observations, episode.actions, episode.infos)
    assert agent.decode(chat.token_ids).endswith("go right<|end|><|user|>Room 2.<|end|><|assistant|>")


def test_endings(family: CorridorFamily) -> None:
    task = family.task("a", length=3)
    assert play_scripted(family, Says("wait"), task, 0).termination is Termination.TURN_LIMIT
    short = play_scripted(family, "oracle", task, 0, max_turns=2)
    assert (short.termination, len(short.actions)) == (Termination.TURN_LIMIT, 2)
    lost = play_scripted(family, Says("wait"), family.task("a", lose_at=2), 0)
    assert (lost.termination, lost.success) == (Termination.FAILED, False)


def test_random_play_follows_its_seed(family: CorridorFamily) -> None:
    tasks = [family.task(f"t{i}", length=5) for i in range(8)]
    first = [play_scripted(family, "random", task, 1).actions for task in tasks]
    assert first == [play_scripted(family, "random", task, 1).actions for task in tasks]
    assert first != [play_scripted(family, "random", task, 2).actions for task in tasks]
    assert len(set(first)) > 1


def test_yardstick(family: CorridorFamily) -> None:
    tasks = [family.task("a", length=1), family.task("b", length=2), family.task("c", length=3)]
    result = yardstick(family, "oracle", tasks, seed=0, max_turns=2)
    assert (result.episodes, result.successes) == (3, 2)
    assert result.by_type == {"short": (2, 2), "long": (1, 0)}
    assert result.success_rate == pytest.approx(2 / 3)
    assert result.mean_turns == pytest.approx(5 / 3)
    assert result.mean_turns_solved == pytest.approx(1.5)
    assert result.mean_return == pytest.approx(2 / 3)
    assert result.mean_progress == pytest.approx((1 + 1 + 2 / 3) / 3)
    assert result.rejected_share == 0.0
    foolish = summarise([play_scripted(family, Says("sing"), tasks[0], 0)])
    assert (foolish.rejected_share, foolish.mean_turns_solved) == (1.0, 0.0)


def test_what_cannot_be_played(family: CorridorFamily) -> None:
    task = family.task("a")
    with pytest.raises(RolloutError, match="policy='best'"):
        play_scripted(family, "best", task, 0)  # type: ignore[arg-type]
    with pytest.raises(RolloutError, match="max_turns=0"):
        play_scripted(family, "oracle", task, 0, max_turns=0)
    with pytest.raises(RolloutError, match="at least one task"):
        yardstick(family, "oracle", [], 0)
