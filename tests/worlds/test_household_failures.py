"""Why episodes failed, told by rules, on hand-made play."""

from __future__ import annotations

import pytest

from worldwise.worlds.contract import COMMON_FAILURES, Past, common_failure
from worldwise.worlds.household.config import HouseholdConfig
from worldwise.worlds.household.failures import FAILURE_MODES, failure_mode
from worldwise.worlds.household.family import HouseholdFamily

ROOM = "Looking quickly around you, you see a desk 1, a drawer 1, a fridge 1, a shelf 1, and a sinkbasin 1."
CLEAN, PUT, TWO = (
    f"{ROOM}\n\nYour task is to: {goal}."
    for goal in ("clean some mug and put it in shelf", "put a mug in shelf", "put two mug in shelf")
)


def episode(goal: str, *actions: str, accepted: bool = True, valid: bool = True) -> list[Past]:
    """Play in which every command does what it says."""
    texts = [goal, *(f"After {number} {action}." for number, action in enumerate(actions))]
    return [
        Past(before, action, after, accepted, valid)
        for before, action, after in zip(texts[:-1], actions, texts[1:], strict=True)
    ]


SEARCH = ("go to desk 1", "go to drawer 1", "go to fridge 1", "go to sinkbasin 1")
TAKE = ("go to desk 1", "take mug 1 from desk 1")


@pytest.mark.parametrize(
    ("goal", "actions", "expected"),
    [
        (PUT, SEARCH, "exhaustive_exploration_failure"),
        (PUT, ("go to desk 1",) * 7 + ("go to drawer 1",), "repetitive_exploration"),
        (PUT, ("go to desk 1", "go to drawer 1", "look"), "wrong_target_location"),
        (PUT, ("go to desk 1", "take cup 1 from desk 1"), "entity_confusion"),
        (PUT, (*TAKE, "go to drawer 1", "move mug 1 to drawer 1"), "wrong_receptacle"),
        (PUT, (*TAKE, "go to drawer 1"), "wrong_target_location"),
        (PUT, (*TAKE, "go to shelf 1"), "premature_give_up"),
        (TWO, (*TAKE, "go to shelf 1", "move mug 1 to shelf 1"), "premature_give_up"),
        (CLEAN, (*TAKE, "go to shelf 1", "move mug 1 to shelf 1"), "missing_precondition"),
        (CLEAN, (*TAKE, "go to drawer 1"), "missing_precondition"),
        (CLEAN, (*TAKE, "go to sinkbasin 1", "clean cup 1 with sinkbasin 1"), "wrong_object_interaction"),
        (CLEAN, (*TAKE, "clean mug 1 with sinkbasin 1", "move mug 1 to drawer 1"), "wrong_receptacle"),
        ("No goal here.", ("look",), "premature_give_up"),
    ],
)
def test_modes(goal: str, actions: tuple[str, ...], expected: str) -> None:
    assert failure_mode(episode(goal, *actions)) == expected


def test_common_failures_come_first() -> None:
    assert failure_mode(episode(PUT, *SEARCH, valid=False)) == "action_format_error"
    assert failure_mode(episode(PUT, "open safe 1", "open safe 1", "open safe 1", accepted=False)) == (
        "repeated_failed_action"
    )
    round_and_round = [Past("a room", action, "a room", True, True) for _ in range(10) for action in ("go a", "go b")]
    assert failure_mode([*episode(PUT, "look"), *round_and_round]) == "navigation_loop"
    assert common_failure([]) is None
    assert common_failure(episode(PUT, *SEARCH)) is None


def test_the_family_names_what_the_rules_say() -> None:
    family = HouseholdFamily(HouseholdConfig(train_games=4, valid_seen_games=2, valid_unseen_games=2))
    assert family.failure_modes == FAILURE_MODES
    assert len(set(FAILURE_MODES)) == 11
    assert set(COMMON_FAILURES) - {"other"} <= set(FAILURE_MODES)
    assert family.failure_mode(episode(PUT, *SEARCH)) == "exhaustive_exploration_failure"
