"""A household game as data: what the reader and the generator make and the engine plays.

Names are the shown ones ("drawer 3", "mug 1"), as ALFWorld's texts use them. A game is immutable
and shared by all the episodes that play it.
"""

from __future__ import annotations

from dataclasses import dataclass

TASK_TYPES: tuple[str, ...] = (
    "pick_and_place_simple",
    "look_at_obj_in_light",
    "pick_clean_then_place_in_recep",
    "pick_heat_then_place_in_recep",
    "pick_cool_then_place_in_recep",
    "pick_two_obj_and_place",
)
"""ALFRED's six task types, in the order of their ids (1..6)."""


@dataclass(frozen=True, slots=True)
class Receptacle:
    """A place that holds things.

    Attributes:
        name: shown name with number, "drawer 3".
        type: ALFRED's type name without the `Type` ending, "Drawer".
        location: index of the spot where the agent stands to use it; several
            receptacles may share one.
        openable: it starts closed and must be opened first.
    """

    name: str
    type: str
    location: int
    openable: bool


@dataclass(frozen=True, slots=True)
class Thing:
    """An object.

    Attributes:
        name: shown name with number, "mug 1".
        type: ALFRED's type name without the `Type` ending, "Mug".
        inside: shown names of the receptacles it is in at the start; official games place
            a few objects in two, or in none.
        location: index of its location at the start (facts `objectAtLocation`), or None.
        pickupable, cleanable, heatable, coolable, toggleable, sliceable: what can be done with it.
        cool: it is cold from the beginning (fact `isCool`; things in an official fridge).
        vessel: it can hold other things ("This is a normal mug 1. In it, you see nothing.");
            fact `isReceptacleObject`. What it holds never changes in play.
        holds: shown names of what a vessel holds, in the order of the listing.
    """

    name: str
    type: str
    inside: tuple[str, ...]
    location: int | None
    pickupable: bool = False
    cleanable: bool = False
    heatable: bool = False
    coolable: bool = False
    toggleable: bool = False
    sliceable: bool = False
    cool: bool = False
    vessel: bool = False
    holds: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Goal:
    """What must hold in the end.

    Attributes:
        task_type: one of `TASK_TYPES`.
        object_type: type of the object to move or to look at, "Mug".
        target_type: type of the receptacle to put it in, or of the lamp (look_at_obj_in_light).
        text: the goal sentence as the first observation shows it, without "Your task is to: ".
        sliced: the object has to be sliced as well (never so in the official games seen, but
            their goals can say it).
    """

    task_type: str
    object_type: str
    target_type: str
    text: str
    sliced: bool = False


@dataclass(frozen=True, slots=True)
class Game:
    """One game.

    Attributes:
        game_id: relative path of an official game, or `generated/<split>/<seed>`.
        receptacles: in the order of the reference engine's first observation.
        things: all objects, in the order in which the reference engine lists them.
        start: location index of the agent at the beginning.
        can_contain: allowed (receptacle type, object type) pairs.
        goal: what to reach.
        walkthrough: commands that win, if known.
    """

    game_id: str
    receptacles: tuple[Receptacle, ...]
    things: tuple[Thing, ...]
    start: int
    can_contain: frozenset[tuple[str, str]]
    goal: Goal
    walkthrough: tuple[str, ...] | None = None


class GameFileError(ValueError):
    """A game file cannot be read. The message names the file and what is wrong with it."""
