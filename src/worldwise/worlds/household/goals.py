"""How far a household game's goal is reached."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from worldwise.worlds.household.state import HouseholdState


def goal_progress(state: HouseholdState) -> float:
    """Fraction of the goal's conditions that hold now, 0..1; exactly 1.0 where the game is won.

    Placing goals: a thing of the type is in hand or at its target, has the wanted state, and is placed
    (counted for the best thing). Two things: each obtained and placed, in one and the same receptacle.
    Looking: the thing is in hand, a lamp of the type is on, and the agent stands at such a lamp. A goal
    that asks for a sliced thing has that as one more condition (two things: only sliced ones count).
    """
    if state.rules.looks:
        return _looking(state)
    if state.rules.game.goal.task_type == "pick_two_obj_and_place":
        return _pair(state)
    return _placing(state)


def _placing(state: HouseholdState) -> float:
    rules, contents, held = state.rules, state.contents, state.held
    masks = {"clean": state.clean, "cool": state.cool, "heat": state.hot}
    wanted = [masks[rules.goal_verb]] if rules.goal_verb else []
    if rules.game.goal.sliced:
        wanted.append(state.sliced)
    best = 0
    for thing in rules.goal_things:
        met = int(thing == held)
        for index in rules.goal_receptacles:
            if thing in contents[index]:
                met = 2
                break
        for mask in wanted:
            met += mask >> thing & 1
        best = max(best, met)
    return best / (2 + len(wanted))


def _pair(state: HouseholdState) -> float:
    rules, held = state.rules, state.held
    things = rules.goal_things
    if rules.game.goal.sliced:
        things = tuple(thing for thing in things if state.sliced >> thing & 1)
    best = 0
    for index in rules.goal_receptacles:
        inside = [thing for thing in state.contents[index] if thing in things]
        placed = min(2, len(inside))
        carried = placed < 2 and held in things and held not in inside
        best = max(best, 2 * placed + carried)
    return best / 4


def _looking(state: HouseholdState) -> float:
    rules = state.rules
    lit = [lamp for lamp in rules.lamps if state.toggled >> lamp & 1]
    here = rules.here.get(state.location, ())
    beside = any(lamp in state.contents[index] for index in here for lamp in lit)
    held = state.held in rules.goal_things
    met = held + bool(lit) + beside
    if not rules.game.goal.sliced:
        return met / 3
    return (met + (held and bool(state.sliced >> state.held & 1))) / 4
