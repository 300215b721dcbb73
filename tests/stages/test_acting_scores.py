"""Scores of acting, counted by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from worldwise.episodes.record import Episode, Termination, Turn
from worldwise.stages.acting_scores import repeated_turns, report_acting, score_acting
from worldwise.stages.playing import curve_numbers


def test_scores_are_counts(make_episode: Callable[..., Episode], make_turn: Callable[..., Turn]) -> None:
    wasteful = make_episode(
        "b",
        task_type="look",
        turns=[
            make_turn(0, action="go to desk 1", answer="You arrive.", progress=0.5),
            make_turn(1, action="fly", answer="Nothing happens.", accepted=False, valid=False, progress=0.5),
            make_turn(2, action="go to desk 1", answer="You arrive.", progress=0.5),
            make_turn(3, action="look", answer="You see.", progress=0.5),
        ],
    )
    found = score_acting([make_episode("a", success=True), wasteful])
    assert (found.success.successes, found.success.count) == (1, 2)
    assert {name: value.share for name, value in found.success_by_type.items()} == {"look": 0.0, "pick": 1.0}
    assert found.mean_turns == 3.0
    assert found.mean_turns_solved == 2.0
    assert found.mean_progress == 0.75
    assert found.invalid_rate == pytest.approx(1 / 6)
    assert found.nothing_rate == pytest.approx(1 / 6)
    assert found.repeated_rate == pytest.approx(1 / 6)
    assert found.wasted_rate == pytest.approx(2 / 6)
    assert found.terminations == {"solved": 1, "turn_limit": 1}
    assert found.sampled_tokens == 6.0


def test_infrastructure_failures_are_no_failures_of_the_policy(make_episode: Callable[..., Episode]) -> None:
    broken = make_episode("b", termination=Termination.WORLD_ERROR)
    found = score_acting([make_episode("a", success=True), broken])
    assert (found.success.successes, found.success.count) == (1, 1)
    assert found.invalid_episodes == 1
    assert found.terminations == {"solved": 1, "world_error": 1}
    assert curve_numbers([broken])["success"] == 0.0
    assert curve_numbers([broken])["failed_episodes"] == 1.0


def test_a_repeated_action_counts_only_if_nothing_came_of_it(
    make_episode: Callable[..., Episode], make_turn: Callable[..., Turn]
) -> None:
    same = {"action": "go to desk 1", "answer": "You arrive."}
    episode = make_episode(
        turns=[
            make_turn(0, **same),
            make_turn(1, **same),
            make_turn(2, **same, progress=0.5),
            make_turn(3, action="go to desk 1", answer="You arrive. A mug is gone.", progress=0.5),
            make_turn(4, **same, progress=0.5, accepted=False),
        ]
    )
    assert repeated_turns(episode) == [False, True, False, False, False]


def test_report_has_a_cell_per_split_and_temperature(make_episode: Callable[..., Episode]) -> None:
    episodes = [
        make_episode("a", success=True, temperature=0.0),
        make_episode("b", temperature=0.4),
        make_episode("c", success=True, temperature=0.4, split="valid_unseen"),
    ]
    found = report_acting("policy", episodes)
    shares = {
        (split, temperature): score.success.share
        for split, row in found.scores.items()
        for temperature, score in row.items()
    }
    assert shares == {("valid_seen", "0"): 1.0, ("valid_seen", "0.4"): 0.0, ("valid_unseen", "0.4"): 1.0}
    assert found.restricted is False
    assert type(found).model_validate_json(found.model_dump_json()) == found


def test_curve_numbers_are_means(make_episode: Callable[..., Episode]) -> None:
    found = curve_numbers([make_episode("a", success=True), make_episode("b")])
    assert (found["success"], found["reward"], found["turns"]) == (0.5, 0.5, 2.0)
    assert found["entropy"] == pytest.approx(0.5)
    assert found["sampled_tokens"] == 8.0
