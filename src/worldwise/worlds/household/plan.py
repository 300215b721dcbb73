"""Winning commands for a game whose contents are all known."""

from __future__ import annotations

from collections.abc import Iterable

from worldwise.worlds.contract import WorldError
from worldwise.worlds.household.game import Game, Receptacle, Thing
from worldwise.worlds.household.rooms import APPLIANCE, STATE_OF_TASK


class _Walk:
    """Commands so far, where they lead, and what they have opened."""

    def __init__(self, start: int) -> None:
        self.commands: list[str] = []
        self.location = start
        self.opened: set[str] = set()

    def go(self, place: Receptacle) -> None:
        """Stand where `place` can be used; nothing to do where one stands there already."""
        if place.location != self.location:
            self.commands.append(f"go to {place.name}")
            self.location = place.location

    def reach(self, place: Receptacle) -> None:
        """Stand at `place` with its door open."""
        self.go(place)
        if place.openable and place.name not in self.opened:
            self.commands.append(f"open {place.name}")
            self.opened.add(place.name)

    def take(self, thing: Thing, place: Receptacle) -> None:
        self.reach(place)
        self.commands.append(f"take {thing.name} from {place.name}")

    def move(self, thing: Thing, place: Receptacle) -> None:
        self.reach(place)
        self.commands.append(f"move {thing.name} to {place.name}")


def plan_walkthrough(game: Game) -> tuple[str, ...]:
    """Commands that win the game from its start: take, change the state, bring.

    Short, not always shortest: it prefers what lies open, and an open target.

    Raises:
        WorldError: the game lacks an object, a place or a lamp that its goal needs.
    """
    places = {place.name: place for place in game.receptacles}
    goal = game.goal
    copies = [
        (thing, places[thing.inside[0]])
        for thing in game.things
        if thing.type == goal.object_type and thing.pickupable and thing.inside
    ]
    copies.sort(key=lambda entry: entry[1].openable)
    needed = 2 if goal.task_type == "pick_two_obj_and_place" else 1
    if len(copies) < needed:
        raise WorldError(f"game {game.game_id} has {len(copies)} {goal.object_type}, its goal needs {needed}")
    walk = _Walk(game.start)
    if goal.task_type == "look_at_obj_in_light":
        kind = goal.target_type
        lamps = [thing for thing in game.things if thing.type == kind and thing.toggleable and thing.inside]
        if not lamps:
            raise WorldError(f"game {game.game_id} has no {kind}, its goal needs one")
        walk.take(*copies[0])
        walk.go(places[lamps[0].inside[0]])
        walk.commands.append(f"use {lamps[0].name}")
        return tuple(walk.commands)
    target = _first(game, goal.target_type)
    verb = STATE_OF_TASK.get(goal.task_type)
    for thing, place in copies[:needed]:
        walk.take(thing, place)
        if verb is not None:
            appliance = _first(game, APPLIANCE[verb])
            walk.go(appliance)
            walk.commands.append(f"{verb} {thing.name} with {appliance.name}")
        walk.move(thing, target)
    return tuple(walk.commands)


def _first(game: Game, kind: str) -> Receptacle:
    """A place of a type, an open one if there is one."""
    found: Iterable[Receptacle] = (place for place in game.receptacles if place.type == kind)
    best = min(found, key=lambda place: place.openable, default=None)
    if best is None:
        raise WorldError(f"game {game.game_id} has no {kind}, its goal needs one")
    return best
