"""The state of a household game and what commands do to it.

Written from the behaviour of ALFWorld 0.4 on TextWorld 1.7 (the rules are those of its planning
domain, as its translator reads them). Where the behaviour surprises, the comment says so.
"""

from __future__ import annotations

from collections.abc import Callable

from worldwise.worlds.household import sentences
from worldwise.worlds.household.compiled import CompiledGame
from worldwise.worlds.household.goals import goal_progress

StateKey = tuple[object, ...]


class HouseholdState:
    """One live game. All mutable parts are immutable values that are replaced, so a copy is cheap.

    Attributes:
        rules: the compiled game, shared.
        location: where the agent stands.
        held: index of the held thing, -1 for none.
        opened: mask of open receptacles.
        contents: per receptacle the indices of the things in it, ascending. A thing can be in
            two receptacles, and can stay in one while it is held.
        places: per thing the locations where it counts as lying (for slicing and `look`).
        emptied: (thing, receptacle) pairs where the thing was taken out and is not back.
        clean, hot, cool, toggled, sliced: masks of things.
        accepted: the last command was one of the admissible ones.
    """

    __slots__ = (
        "_progress",
        "accepted",
        "clean",
        "contents",
        "cool",
        "emptied",
        "held",
        "hot",
        "location",
        "opened",
        "places",
        "rules",
        "sliced",
        "toggled",
    )

    def __init__(self, rules: CompiledGame) -> None:
        self.rules = rules
        self.location = rules.start
        self.held = -1
        self.opened = 0
        self.contents = rules.contents
        self.places: tuple[frozenset[int], ...] = rules.places
        self.emptied: frozenset[tuple[int, int]] = frozenset()
        self.clean = 0
        self.hot = 0
        self.cool = rules.cool
        self.toggled = 0
        self.sliced = 0
        self.accepted = True
        self._progress: float | None = None

    def copy(self) -> HouseholdState:
        """An independent game in the same state."""
        other = HouseholdState.__new__(HouseholdState)
        other.rules = self.rules
        other.location = self.location
        other.held = self.held
        other.opened = self.opened
        other.contents = self.contents
        other.places = self.places
        other.emptied = self.emptied
        other.clean = self.clean
        other.hot = self.hot
        other.cool = self.cool
        other.toggled = self.toggled
        other.sliced = self.sliced
        other.accepted = self.accepted
        other._progress = self._progress
        return other

    def key(self) -> StateKey:
        """A hashable value that is equal for equal states of one game (for search)."""
        return (
            self.location,
            self.held,
            self.opened,
            self.contents,
            self.places,
            self.emptied,
            (self.clean, self.hot, self.cool, self.toggled, self.sliced),
        )

    @property
    def observation(self) -> str:
        """The first text of a game, if it began in this state."""
        rules = self.rules
        somewhere = self._look("") if self.location in rules.here else None
        surroundings = somewhere or sentences.room(rules.receptacle_names)
        return sentences.first_observation(surroundings, rules.game.goal.text)

    def play(self, command: str) -> str:
        """Play a command and return what the game says; sets `accepted`."""
        verb, _, rest = command.strip().partition(" ")
        action = _ACTIONS.get(verb)
        text = None if action is None else action(self, rest)
        if text is None:
            self.accepted = False
            return sentences.NOTHING_HAPPENS
        self.accepted = True
        if verb not in _LOOKING and (verb != "go" or self.rules.looks):
            self._progress = None
        return text

    def admissible(self) -> list[str]:
        """Every command the game accepts now, sorted. A new list."""
        rules, location, contents = self.rules, self.location, self.contents
        here = rules.here.get(location, ())
        opened = self.opened and self.opened & rules.here_mask.get(location, 0)
        inside = [contents[index] for index in here]
        menu = rules.menus.get((location, opened, self.held, *inside))
        if menu is None:
            menu = rules.menu(location, opened, self.held, *inside)
        if self.held not in rules.knives:
            return menu.commands.copy()
        return [*menu.commands[: menu.slices_at], *self._slices(), *menu.commands[menu.slices_at :]]

    def _slices(self) -> list[str]:
        rules, knife = self.rules, self.rules.thing_names[self.held]
        found = [index for index in rules.sliceables if self.location in self.places[index]]
        return sorted(f"slice {rules.thing_names[index]} with {knife}" for index in found)

    @property
    def won(self) -> bool:
        """The goal holds now (it can be lost again when play goes on)."""
        return self.progress == 1.0

    @property
    def progress(self) -> float:
        """Fraction of the goal's conditions that hold now, 0..1; see `goals.goal_progress`."""
        if self._progress is None:
            self._progress = goal_progress(self)
        return self._progress

    # What commands do. Each takes the text after the verb and returns what the game says,
    # or None where the command is not admissible (nothing has changed then).

    def _receptacle_here(self, name: str) -> int:
        """Index of the named receptacle if it is at the agent's location, else -1."""
        index = self.rules.receptacle_index.get(name, -1)
        return index if index >= 0 and self.rules.receptacle_location[index] == self.location else -1

    def _reachable(self, index: int) -> bool:
        return not self.rules.openable[index] or bool(self.opened >> index & 1)

    def _describe(self, index: int) -> str:
        rules = self.rules
        if rules.openable[index] and not self.opened >> index & 1:
            return f"The {rules.receptacle_names[index]} is closed."
        return rules.shelf(index, self.contents[index])[0]

    def _look(self, rest: str) -> str | None:
        if rest:
            return None
        rules = self.rules
        here = rules.here.get(self.location, ())
        if not here:
            # Only the first text lists the room: `look` itself never finds receptacles there.
            return sentences.room(())
        beside: list[str] = []
        if self.emptied:
            # A thing lies "next to" its location for each receptacle there that it was taken out of and
            # is not back in: so only after it was moved from one receptacle there to another.
            lying = [thing for thing, places in enumerate(self.places) if self.location in places]
            parted = [thing for thing in lying for index in here if (thing, index) in self.emptied]
            beside = [rules.thing_names[thing] for thing in parted]
        return sentences.facing([rules.receptacle_names[index] for index in here], beside)

    def _inventory(self, rest: str) -> str | None:
        if rest:
            return None
        if self.held < 0:
            return "You are not carrying anything."
        return f"You are carrying: a {self.rules.thing_names[self.held]}."

    def _help(self, rest: str) -> str | None:
        return None if rest else sentences.HELP

    def _go(self, rest: str) -> str | None:
        arrival = self.rules.arrivals.get(rest)
        if arrival is None or arrival[1] == self.location:
            return None
        index, self.location, text = arrival
        return text + self._describe(index)

    def _open(self, rest: str) -> str | None:
        index = self._receptacle_here(rest)
        if index < 0 or self._reachable(index):
            return None
        self.opened |= 1 << index
        return f"You open the {rest}. {self._describe(index)}"

    def _close(self, rest: str) -> str | None:
        index = self._receptacle_here(rest)
        if index < 0 or not self.opened >> index & 1:
            return None
        self.opened &= ~(1 << index)
        return f"You close the {rest}."

    def _examine(self, rest: str) -> str | None:
        index = self._receptacle_here(rest)
        if index >= 0:
            return self._describe(index)
        held, rules = self.held, self.rules
        # Things that lie about cannot be examined, only the held one.
        if held < 0 or rules.thing_names[held] != rest:
            return None
        holds = rules.holds_text[held]
        if holds is not None:
            return f"This is a normal {rest}. In it, you see {holds}."
        return sentences.thing_condition(
            rest,
            clean=bool(self.clean >> held & 1),
            hot=bool(self.hot >> held & 1),
            cool=bool(self.cool >> held & 1),
            sliced=bool(self.sliced >> held & 1),
            toggled=bool(self.toggled >> held & 1),
        )

    def _take(self, rest: str) -> str | None:
        rules = self.rules
        name, _, place = rest.partition(" from ")
        thing, index = rules.thing_index.get(name, -1), self._receptacle_here(place)
        if self.held >= 0 or thing < 0 or index < 0 or thing not in self.contents[index]:
            return None
        if not rules.pickupable[thing] or not self._reachable(index):
            return None
        self.held = thing
        self._set_contents(index, tuple(other for other in self.contents[index] if other != thing))
        self._set_places(thing, self.places[thing] - {self.location})
        self.emptied |= {(thing, index)}
        return f"You pick up the {name} from the {place}."

    def _move(self, rest: str) -> str | None:
        rules = self.rules
        name, _, place = rest.partition(" to ")
        thing, index = rules.thing_index.get(name, -1), self._receptacle_here(place)
        if thing < 0 or thing != self.held or index < 0 or not self._reachable(index):
            return None
        kinds = (rules.game.receptacles[index].type, rules.game.things[thing].type)
        if kinds not in rules.can_contain:
            return None
        self.held = -1
        self._set_contents(index, tuple(sorted({*self.contents[index], thing})))
        self._set_places(thing, self.places[thing] | {self.location})
        self.emptied -= {(thing, index)}
        return f"You move the {name} to the {place}."

    def _set_contents(self, index: int, contents: tuple[int, ...]) -> None:
        self.contents = (*self.contents[:index], contents, *self.contents[index + 1 :])

    def _set_places(self, thing: int, places: frozenset[int]) -> None:
        self.places = (*self.places[:thing], places, *self.places[thing + 1 :])

    def _applied(self, verb: str, rest: str) -> int:
        """Index of the held thing that `verb` works on here, -1 where it does not."""
        name, _, place = rest.partition(" with ")
        rules, held, index = self.rules, self.held, self._receptacle_here(place)
        if held < 0 or index < 0 or rules.thing_names[held] != name:
            return -1
        return held if held in rules.capable[verb] and index in rules.appliances[verb] else -1

    def _clean(self, rest: str) -> str | None:
        thing = self._applied("clean", rest)
        if thing < 0:
            return None
        self.clean |= 1 << thing
        return f"You clean the {rest.replace(' with ', ' using the ')}."

    def _heat(self, rest: str) -> str | None:
        thing = self._applied("heat", rest)
        if thing < 0:
            return None
        self.hot |= 1 << thing
        self.cool &= ~(1 << thing)
        return f"You heat the {rest.replace(' with ', ' using the ')}."

    def _cool(self, rest: str) -> str | None:
        thing = self._applied("cool", rest)
        if thing < 0:
            return None
        self.cool |= 1 << thing
        self.hot &= ~(1 << thing)
        return f"You cool the {rest.replace(' with ', ' using the ')}."

    def _use(self, rest: str) -> str | None:
        rules = self.rules
        thing = rules.thing_index.get(rest, -1)
        if thing not in rules.toggleable:
            return None
        if not any(thing in self.contents[index] for index in rules.here.get(self.location, ())):
            return None
        # A lamp that was used once counts as on for good, and the text says so each time.
        self.toggled |= 1 << thing
        return f"You turn on the {rest}."

    def _slice(self, rest: str) -> str | None:
        rules = self.rules
        name, _, knife = rest.partition(" with ")
        thing = rules.thing_index.get(name, -1)
        if self.held not in rules.knives or rules.thing_names[self.held] != knife:
            return None
        # By location alone: the thing may be inside a closed receptacle.
        if thing not in rules.sliceables or self.location not in self.places[thing]:
            return None
        self.sliced |= 1 << thing
        return f"You sliced the {name} with the {knife}."


_ACTIONS: dict[str, Callable[[HouseholdState, str], str | None]] = {
    "clean": HouseholdState._clean,
    "close": HouseholdState._close,
    "cool": HouseholdState._cool,
    "examine": HouseholdState._examine,
    "go": HouseholdState._go,
    "heat": HouseholdState._heat,
    "help": HouseholdState._help,
    "inventory": HouseholdState._inventory,
    "look": HouseholdState._look,
    "move": HouseholdState._move,
    "open": HouseholdState._open,
    "slice": HouseholdState._slice,
    "take": HouseholdState._take,
    "use": HouseholdState._use,
}

_LOOKING = frozenset({"close", "examine", "help", "inventory", "look", "open"})
"""Verbs that never change whether a goal's condition holds. `go` does where a lamp must be near."""
