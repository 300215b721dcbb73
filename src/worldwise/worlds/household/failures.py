"""Why a household episode failed, told by rules, in the vocabulary that Role-Agent has for ALFWorld."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from worldwise.worlds.contract import Past, WorldError, common_failure
from worldwise.worlds.household.policies import ReadGoal, kind_of, read_goal

FAILURE_MODES = (
    "repetitive_exploration",
    "wrong_target_location",
    "wrong_receptacle",
    "premature_give_up",
    "missing_precondition",
    "repeated_failed_action",
    "navigation_loop",
    "entity_confusion",
    "wrong_object_interaction",
    "exhaustive_exploration_failure",
    "action_format_error",
)
"""As the paper names them."""

_GO = re.compile(r"go to (\w+ \d+)")
_TAKE = re.compile(r"take (\w+ \d+) from (\w+ \d+)")
_MOVE = re.compile(r"(?:move|put) (\w+ \d+) (?:to|in/on|in|on) (\w+ \d+)")
_CHANGE = re.compile(r"(clean|heat|cool) (\w+ \d+) with (\w+ \d+)")
_PLACES = re.compile(r"\b(?:an?|the) (\w+ \d+)")

_THOROUGH = 0.8
"""Share of the places of a room from which on all of it was searched."""


@dataclass(frozen=True, slots=True)
class Deeds:
    """What an episode did, in accepted commands.

    Attributes:
        visits: places gone to, in order.
        taken, moved, changed: (thing), (thing, place), (verb, thing), in order.
        places: all that the first observation names.
    """

    visits: list[str]
    taken: list[str]
    moved: list[tuple[str, str]]
    changed: list[tuple[str, str]]
    places: set[str]


def failure_mode(turns: Sequence[Past]) -> str:
    """The first of these that fits, from the coarse to the fine: form, refused commands, circles; things that were
    handled wrongly; the goal's thing found and what became of it; a search that found nothing.

    Args:
        turns: of a failed episode, at least one.
    """
    common = common_failure(turns)
    if common is not None:
        return common
    try:
        goal = read_goal(turns[0].observation)
    except WorldError:
        return "premature_give_up"
    deeds = _deeds(turns)
    found = [thing for thing in deeds.taken if kind_of(thing) == goal.object_type]
    return _after_finding(goal, deeds) if found else _while_searching(deeds)


def _while_searching(deeds: Deeds) -> str:
    """The goal's thing was never taken."""
    if deeds.taken:
        return "entity_confusion"
    seen = set(deeds.visits)
    if deeds.places and len(seen & deeds.places) >= _THOROUGH * len(deeds.places):
        return "exhaustive_exploration_failure"
    if len(deeds.visits) > 2 * len(seen):
        return "repetitive_exploration"
    return "wrong_target_location"


def _after_finding(goal: ReadGoal, deeds: Deeds) -> str:
    """It was taken, and the episode failed all the same."""
    if any(kind_of(thing) != goal.object_type for _, thing in deeds.changed):
        return "wrong_object_interaction"
    placed = [(thing, place) for thing, place in deeds.moved if kind_of(thing) == goal.object_type]
    there = [thing for thing, place in placed if kind_of(place) == goal.target_type]
    done = {thing for verb, thing in deeds.changed if verb == goal.verb}
    if goal.verb and (there or placed) and not done:
        return "missing_precondition"
    if there:
        # Put where it belongs, and still something is missing: the second one, or its state.
        return "missing_precondition" if goal.verb else "premature_give_up"
    if placed:
        return "wrong_receptacle"
    if goal.verb and not done:
        return "missing_precondition"
    if any(kind_of(place) == goal.target_type for place in deeds.visits):
        return "premature_give_up"
    return "wrong_target_location"


def _deeds(turns: Sequence[Past]) -> Deeds:
    deeds = Deeds([], [], [], [], set())
    opening = turns[0].observation.partition("Your task is to")[0]
    deeds.places.update(_PLACES.findall(opening))
    for turn in turns:
        if not turn.accepted:
            continue
        if match := _GO.fullmatch(turn.action):
            deeds.visits.append(match[1])
        elif match := _TAKE.fullmatch(turn.action):
            deeds.taken.append(match[1])
        elif match := _MOVE.fullmatch(turn.action):
            deeds.moved.append((match[1], match[2]))
        elif match := _CHANGE.fullmatch(turn.action):
            deeds.changed.append((match[1], match[2]))
    return deeds
