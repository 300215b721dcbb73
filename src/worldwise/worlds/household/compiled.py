"""A game prepared for play: everything about it that play does not change."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from worldwise.worlds.contract import WorldError
from worldwise.worlds.household.game import TASK_TYPES, Game
from worldwise.worlds.household.sentences import indefinite

_MEMO_LIMIT = 512
"""Entries a memo may have before it is emptied: bounds a game's memory at about half a megabyte."""

STATE_APPLIANCES: dict[str, frozenset[str]] = {
    "clean": frozenset({"SinkBasin", "Sink"}),
    "cool": frozenset({"Fridge"}),
    "heat": frozenset({"Microwave"}),
}
"""Receptacle types that change a held thing's state; they need neither opening nor putting in."""

KNIVES = frozenset({"Knife", "ButterKnife"})


class Menu(NamedTuple):
    """The sorted admissible commands of a situation; shared, so do not change the list.

    Attributes:
        commands: all but the `slice` commands.
        slices_at: index at which those would stand.
    """

    commands: list[str]
    slices_at: int


class CompiledGame:
    """Index tables and memos of one game, shared by all the episodes that play it.

    Receptacles and things are known by their index in the game; sets of them are bit masks.

    Raises:
        WorldError: two things share a name, a thing names an unknown receptacle, or the goal's
            task type is unknown.
    """

    __slots__ = (
        "_going",
        "_shelves",
        "appliances",
        "arrivals",
        "can_contain",
        "capable",
        "contents",
        "cool",
        "game",
        "goal_receptacles",
        "goal_things",
        "goal_verb",
        "here",
        "here_mask",
        "holds_text",
        "knives",
        "lamps",
        "looks",
        "menus",
        "openable",
        "pickupable",
        "places",
        "receptacle_index",
        "receptacle_location",
        "receptacle_names",
        "sliceables",
        "start",
        "thing_index",
        "thing_names",
        "toggleable",
    )

    def __init__(self, game: Game) -> None:
        self.game = game
        receptacles, things = game.receptacles, game.things
        self.receptacle_names = tuple(receptacle.name for receptacle in receptacles)
        self.thing_names = tuple(thing.name for thing in things)
        self.receptacle_index = {name: index for index, name in enumerate(self.receptacle_names)}
        self.thing_index = {name: index for index, name in enumerate(self.thing_names)}
        names = self.receptacle_names + self.thing_names
        if len(set(names)) != len(names):
            double = sorted({name for name in names if names.count(name) > 1})
            raise WorldError(f"game {game.game_id}: names {double} occur twice; give each its own number")

        self.start = game.start
        self.receptacle_location = tuple(receptacle.location for receptacle in receptacles)
        # By what follows "go": index, location and the beginning of the reply.
        self.arrivals = {
            f"to {place.name}": (index, place.location, f"You arrive at {place.name}. ")
            for index, place in enumerate(receptacles)
        }
        self.openable = tuple(receptacle.openable for receptacle in receptacles)
        here: dict[int, list[int]] = defaultdict(list)
        for index, location in enumerate(self.receptacle_location):
            here[location].append(index)
        self.here = {location: tuple(found) for location, found in here.items()}
        self.here_mask = {location: sum(1 << index for index in found) for location, found in here.items()}

        self.pickupable = tuple(thing.pickupable for thing in things)
        self.toggleable = frozenset(i for i, thing in enumerate(things) if thing.toggleable)
        self.sliceables = tuple(i for i, thing in enumerate(things) if thing.sliceable)
        self.knives = frozenset(i for i, thing in enumerate(things) if thing.type in KNIVES)
        self.capable = {
            "clean": frozenset(i for i, thing in enumerate(things) if thing.cleanable),
            "cool": frozenset(i for i, thing in enumerate(things) if thing.coolable),
            "heat": frozenset(i for i, thing in enumerate(things) if thing.heatable),
        }
        self.appliances = {
            verb: frozenset(i for i, receptacle in enumerate(receptacles) if receptacle.type in types)
            for verb, types in STATE_APPLIANCES.items()
        }
        self.can_contain = game.can_contain
        self.cool = sum(1 << i for i, thing in enumerate(things) if thing.cool)
        self.places = tuple(frozenset() if thing.location is None else frozenset({thing.location}) for thing in things)
        self.holds_text = tuple(indefinite(thing.holds) if thing.vessel else None for thing in things)
        self.contents = self._first_contents()
        self._compile_goal()
        self.menus: dict[tuple[object, ...], Menu] = {}
        self._going: dict[int, list[str]] = {}
        self._shelves: dict[tuple[int, tuple[int, ...]], tuple[str, list[str], list[str]]] = {}

    def _first_contents(self) -> tuple[tuple[int, ...], ...]:
        contents: list[list[int]] = [[] for _ in self.receptacle_names]
        for index, thing in enumerate(self.game.things):
            for name in dict.fromkeys(thing.inside):
                if name not in self.receptacle_index:
                    raise WorldError(
                        f"game {self.game.game_id}: {thing.name} is inside {name!r}, which is not one of its "
                        f"{len(self.receptacle_names)} receptacles"
                    )
                contents[self.receptacle_index[name]].append(index)
        return tuple(tuple(found) for found in contents)

    def _compile_goal(self) -> None:
        goal, things = self.game.goal, self.game.things
        if goal.task_type not in TASK_TYPES:
            raise WorldError(f"game {self.game.game_id}: task type {goal.task_type!r} is not in {TASK_TYPES}")
        wanted = [i for i, thing in enumerate(things) if thing.type == goal.object_type]
        self.looks = goal.task_type == "look_at_obj_in_light"
        self.goal_verb = goal_verb(goal.task_type)
        if self.goal_verb:
            wanted = [index for index in wanted if index in self.capable[self.goal_verb]]
        if goal.sliced:
            wanted = [index for index in wanted if things[index].sliceable]
        self.goal_things = tuple(wanted)
        self.goal_receptacles = tuple(
            i for i, receptacle in enumerate(self.game.receptacles) if receptacle.type == goal.target_type
        )
        self.lamps = tuple(i for i, thing in enumerate(things) if thing.type == goal.target_type and thing.toggleable)

    def __reduce__(self) -> tuple[type[CompiledGame], tuple[Game]]:
        return CompiledGame, (self.game,)

    def menu(self, location: int, opened: int, held: int, *contents: tuple[int, ...]) -> Menu:
        """The admissible commands at a location without the `slice` commands; kept in `menus`.

        Args:
            location: where the agent stands.
            opened: mask of the open receptacles among those at the location.
            held: index of the held thing, -1 for none.
            contents: what is in each receptacle of the location.
        """
        if len(self.menus) >= _MEMO_LIMIT:
            self.menus.clear()
        found = self.menus[location, opened, held, *contents] = self._make_menu(location, opened, held, contents)
        return found

    def _make_menu(self, location: int, opened: int, held: int, contents: Sequence[tuple[int, ...]]) -> Menu:
        here = self.here.get(location, ())
        thing = self.thing_names[held] if held >= 0 else ""
        changes: dict[str, list[str]] = {"clean": [], "cool": [], "heat": []}
        examines = [f"examine {thing}"] if thing else []
        closes: list[str] = []
        opens: list[str] = []
        moves: list[str] = []
        takes: list[str] = []
        uses: set[str] = set()
        for index, inside in zip(here, contents, strict=True):
            name = self.receptacle_names[index]
            is_open = bool(opened >> index & 1)
            examines.append(f"examine {name}")
            if self.openable[index]:
                (closes if is_open else opens).append(f"close {name}" if is_open else f"open {name}")
            _, more_takes, more_uses = self.shelf(index, inside)
            uses.update(more_uses)
            reachable = is_open or not self.openable[index]
            if held < 0:
                takes += more_takes if reachable else []
                continue
            for verb, commands in changes.items():
                if index in self.appliances[verb] and held in self.capable[verb]:
                    commands.append(f"{verb} {thing} with {name}")
            kinds = (self.game.receptacles[index].type, self.game.things[held].type)
            if reachable and kinds in self.can_contain:
                moves.append(f"move {thing} to {name}")
        first = sorted([*changes["clean"], *closes, *changes["cool"], *examines])
        middle = [*sorted(changes["heat"]), "help", "inventory", "look", *sorted(moves), *sorted(opens)]
        going = self._going.get(location)
        if going is None:
            away = [name for index, name in enumerate(self.receptacle_names) if index not in here]
            going = self._going[location] = sorted(f"go to {name}" for name in away)
        commands = [*first, *going, *middle, *sorted(takes)]
        return Menu([*commands, *sorted(uses)], len(commands))

    def shelf(self, receptacle: int, contents: tuple[int, ...]) -> tuple[str, list[str], list[str]]:
        """What a receptacle with these contents shows and offers; do not change the lists.

        Returns:
            The sentence that tells its contents, and the sorted `take` and `use` commands they allow.
        """
        key = (receptacle, contents)
        found = self._shelves.get(key)
        if found is None:
            name, things = self.receptacle_names[receptacle], self.thing_names
            takes = [f"take {things[index]} from {name}" for index in contents if self.pickupable[index]]
            uses = [f"use {things[index]}" for index in contents if index in self.toggleable]
            seen = indefinite([things[index] for index in contents])
            if self.openable[receptacle]:
                text = f"The {name} is open. In it, you see {seen}."
            else:
                text = f"On the {name}, you see {seen}."
            found = (text, sorted(takes), sorted(uses))
            if len(self._shelves) >= _MEMO_LIMIT:
                self._shelves.clear()
            self._shelves[key] = found
        return found


def goal_verb(task_type: str) -> str | None:
    """The verb (clean, heat, cool) that makes the state a goal asks for, or None."""
    for verb in STATE_APPLIANCES:
        if task_type == f"pick_{verb}_then_place_in_recep":
            return verb
    return None
