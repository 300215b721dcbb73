"""Play without a model: random policies, and an oracle that searches as a sensible person would.

None of them looks into the game. They know the texts they were shown and the list of admissible
commands, which is what an agent may know.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from worldwise.config import derive_seed
from worldwise.worlds.contract import Info, World, WorldError
from worldwise.worlds.household.objects import FITS, PLACES
from worldwise.worlds.household.rooms import APPLIANCE, OPENABLE_SHARE

WELCOME = "-= Welcome"
"""How a first observation begins; a policy that reads it starts afresh."""

_GOAL = re.compile(
    r"Your task is to: (?:"
    r"(?P<verb>clean|heat|cool) some (?P<o1>\w+) and put it in (?P<t1>\w+)"
    r"|put a (?P<state>clean|hot|cool) (?P<o2>\w+) in (?P<t2>\w+)"
    r"|(?:put|find) two (?P<o3>\w+) (?:in|and put them in) (?P<t3>\w+)"
    r"|(?:look at|examine the) (?P<o4>\w+) (?:under|with) the (?P<t4>\w+)"
    r"|put (?:a|some) (?P<o5>\w+) (?:in|on) (?P<t5>\w+)"
    r")\."
)
_STATE_VERB = {"clean": "clean", "hot": "heat", "cool": "cool"}
_ITEM = re.compile(r"\b(\w+ \d+)")


class RandomPolicy:
    """Random admissible commands, `help` left out.

    Args:
        seed: start of the choices.
        by_verb: draw the verb first, then one of its commands, so that the many `go to` do not
            drown the few commands that change something.
    """

    def __init__(self, seed: int, by_verb: bool = False) -> None:
        self._rng = random.Random(derive_seed(seed, "random_policy"))
        self._by_verb = by_verb

    def act(self, world: World, observation: str, info: Info) -> str:
        """One admissible command.

        Raises:
            WorldError: the world lists no admissible commands.
        """
        return draw_admissible(self._rng, info.admissible, self._by_verb)


def draw_admissible(rng: random.Random, admissible: Sequence[str] | None, by_verb: bool) -> str:
    """A random command of the list other than `help`."""
    commands = [command for command in admissible or () if command != "help"]
    if not commands:
        raise WorldError("random play needs the list of admissible commands, and this world gives none")
    if not by_verb:
        return rng.choice(commands)
    verbs: dict[str, list[str]] = {}
    for command in commands:
        verbs.setdefault(command.split(" ", 1)[0], []).append(command)
    return rng.choice(verbs[rng.choice(list(verbs))])


@dataclass(frozen=True, slots=True)
class ReadGoal:
    """A goal as its sentence states it: shown type names, in lower case.

    Attributes:
        object_type: what to move or to look at.
        target_type: where to put it; the lamp when `look` is set.
        verb: clean, heat or cool, or "" for none.
        number: how many to put (1 or 2).
        look: look at the object under the lamp instead of putting it.
    """

    object_type: str
    target_type: str
    verb: str = ""
    number: int = 1
    look: bool = False


def read_goal(observation: str) -> ReadGoal:
    """The goal out of a first observation.

    Raises:
        WorldError: there is no goal sentence of a known form.
    """
    match = _GOAL.search(observation)
    if match is None:
        raise WorldError(f"no goal of a known form in the observation {observation[-120:]!r}")
    part = match.groupdict()
    if part["o1"]:
        return ReadGoal(part["o1"], part["t1"], verb=part["verb"])
    if part["o2"]:
        return ReadGoal(part["o2"], part["t2"], verb=_STATE_VERB[part["state"]])
    if part["o3"]:
        return ReadGoal(part["o3"], part["t3"], number=2)
    if part["o4"]:
        return ReadGoal(part["o4"], part["t4"], look=True)
    return ReadGoal(part["o5"], part["t5"])


def kind_of(name: str) -> str:
    """Type part of a shown name: "drawer 3" -> "drawer"."""
    return name.rsplit(" ", 1)[0]


_PRIOR = {
    thing.lower(): {place.lower(): weight for place, weight in places.items()} for thing, places in PLACES.items()
}
_FITS = {place.lower(): {thing.lower() for thing in things} for place, things in FITS.items()}
_DOORS = {place.lower() for place in OPENABLE_SHARE}
_FITS_BONUS = 0.5
"""Weight of a place that may hold the object, where the tables name no chance for it."""


def search_order(object_type: str, places: Sequence[str]) -> list[str]:
    """Places (shown names) in the order in which to look for an object.

    The chance that the object lies in a place of the type, shared by the places of that type, over
    the number of commands that looking costs (2 for places with doors); then by number.
    """
    usual = _PRIOR.get(object_type, {})
    numbers: dict[str, int] = {}
    for place in places:
        numbers[kind_of(place)] = numbers.get(kind_of(place), 0) + 1

    def worth(place: str) -> tuple[float, str, int]:
        kind, number = place.rsplit(" ", 1)
        weight = usual.get(kind, 0.0) or (_FITS_BONUS if object_type in _FITS.get(kind, ()) else 0.0)
        return -weight / numbers[kind] / (2 if kind in _DOORS else 1), kind, int(number)

    return sorted(places, key=worth)


@dataclass(slots=True)
class Memory:
    """What the oracle knows of the episode, all of it read from texts.

    Attributes:
        goal: what is asked.
        places: every place, in the order of the first observation.
        here: the place it last went to, "" at the start.
        held: the object in hand, or "".
        source: where the held object was taken from.
        seen: places whose contents it has read.
        closed: places it knows to be closed now.
        known: object -> place where it was last seen.
        states: object -> the last state given to it (clean is kept apart from hot and cool).
        refused: commands that did nothing since the last change of place.
    """

    goal: ReadGoal
    places: list[str]
    here: str = ""
    held: str = ""
    source: str = ""
    seen: set[str] = field(default_factory=set)
    closed: set[str] = field(default_factory=set)
    known: dict[str, str] = field(default_factory=dict)
    states: set[tuple[str, str]] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)

    @classmethod
    def from_first(cls, observation: str) -> Memory:
        """Memory at the start of an episode."""
        head = observation.split("Your task is to:")[0]
        return cls(read_goal(observation), _ITEM.findall(head))

    def after(self, action: str, text: str) -> None:
        """Take in what `action` led to."""
        if text.startswith("Nothing happens"):
            self.refused.add(action)
            return
        verb, _, rest = action.partition(" ")
        if verb == "go":
            self.here = rest.removeprefix("to ")
            self.refused.clear()
            self._read(self.here, text)
        elif verb in ("open", "examine"):
            self._read(rest, text)
        elif verb == "close":
            self.closed.add(rest)
        elif verb == "take":
            self.held, _, self.source = rest.partition(" from ")
            self.known.pop(self.held, None)
        elif verb == "move":
            name, _, place = rest.partition(" to ")
            self.held = ""
            self.known[name] = place
        elif verb in APPLIANCE:
            self._change(verb, rest.partition(" with ")[0])

    def _read(self, place: str, text: str) -> None:
        if "is closed" in text:
            self.closed.add(place)
            return
        _, found, listed = text.partition("you see ")
        if not found:
            return
        self.closed.discard(place)
        self.seen.add(place)
        for name in [name for name, where in self.known.items() if where == place]:
            del self.known[name]
        for name in _ITEM.findall(listed):
            self.known[name] = place

    def _change(self, verb: str, name: str) -> None:
        self.states.add((name, verb))
        if verb != "clean":
            self.states.discard((name, "cool" if verb == "heat" else "heat"))


class SearchingOracle:
    """Solves a game by looking where its object usually is, opening what is closed, and remembering.

    It never looks into the game: everything it uses was in a text it was shown, or in the list of
    admissible commands.

    Args:
        noise: chance 0..1 that it plays a random admissible command instead, and recovers from it.
        seed: start of the random choices.

    Raises:
        WorldError: noise outside of 0..1.
    """

    def __init__(self, noise: float = 0.0, seed: int = 0) -> None:
        if not 0.0 <= noise <= 1.0:
            raise WorldError(f"noise={noise} must lie in 0..1")
        self._noise = noise
        self._rng = random.Random(derive_seed(seed, "searching_oracle"))
        self._memory: Memory | None = None
        self._last = ""
        self._order: dict[str, list[str]] = {}

    def act(self, world: World, observation: str, info: Info) -> str:
        """The next command.

        Raises:
            WorldError: the episode's first observation was not seen, or holds no goal.
        """
        if observation.startswith(WELCOME):
            self._memory = Memory.from_first(observation)
            self._order = {}
        elif self._memory is None:
            raise WorldError("the searching oracle has to see an episode from its first observation on")
        else:
            self._memory.after(self._last, observation)
        if self._noise and self._rng.random() < self._noise:
            self._last = draw_admissible(self._rng, info.admissible, by_verb=True)
        else:
            self._last = self._choose(self._memory, info.admissible)
        return self._last

    def known(self) -> dict[str, str]:
        """Things that it saw, with the place where each was last seen; shown names."""
        return dict(self._memory.known) if self._memory else {}

    def turn_to(self, goal: ReadGoal) -> None:
        """Pursue another goal from the next command on, with all that was seen so far.

        Raises:
            WorldError: the episode's first observation was not seen.
        """
        if self._memory is None:
            raise WorldError("the searching oracle has to see an episode from its first observation on")
        self._memory.goal = goal

    def _choose(self, memory: Memory, admissible: Sequence[str] | None) -> str:
        goal = memory.goal
        if memory.held and kind_of(memory.held) != goal.object_type:
            return self._put_away(memory, admissible)
        if goal.look:
            lamp = next((name for name in memory.known if kind_of(name) == goal.target_type), None)
            if not memory.held:
                return self._obtain(memory, admissible, avoid="")
            if lamp is None:
                return self._search(memory, admissible, goal.target_type)
            return self._at(memory, admissible, memory.known[lamp], f"use {lamp}", opened=False)
        target = self._target(memory)
        if not memory.held:
            return self._obtain(memory, admissible, avoid=target)
        if goal.verb and (memory.held, goal.verb) not in memory.states:
            place = _first_of(memory, APPLIANCE[goal.verb].lower())
            return self._at(memory, admissible, place, f"{goal.verb} {memory.held} with {place}", opened=False)
        return self._at(memory, admissible, target, f"move {memory.held} to {target}", opened=True)

    def _target(self, memory: Memory) -> str:
        """The place to put things: where one of two lies already, else where one stands, else the first."""
        places = sorted((p for p in memory.places if kind_of(p) == memory.goal.target_type), key=_number)
        if not places:
            raise WorldError(f"the room has no {memory.goal.target_type}, which the goal names")
        if memory.goal.number == 2:
            kind = memory.goal.object_type
            holders = {place for name, place in memory.known.items() if kind_of(name) == kind}
            filled = [place for place in places if place in holders]
            if filled:
                return filled[0]
        return memory.here if memory.here in places else places[0]

    def _obtain(self, memory: Memory, admissible: Sequence[str] | None, avoid: str) -> str:
        """Take a known object of the goal's type, one with its state if possible, else search."""
        goal = memory.goal
        found = [
            (name, place)
            for name, place in memory.known.items()
            if kind_of(name) == goal.object_type
            and not (place == avoid and (goal.number == 2 or not goal.verb or (name, goal.verb) in memory.states))
        ]
        if not found:
            return self._search(memory, admissible, goal.object_type)
        name, place = min(
            found, key=lambda entry: ((entry[0], goal.verb) not in memory.states, entry[1] != memory.here)
        )
        return self._at(memory, admissible, place, f"take {name} from {place}", opened=True)

    def _search(self, memory: Memory, admissible: Sequence[str] | None, kind: str) -> str:
        """Look into the next place where such a thing may be."""
        order = self._order.get(kind)
        if order is None:
            order = self._order[kind] = search_order(kind, memory.places)
        for place in order:
            if place not in memory.seen:
                return self._at(memory, admissible, place, f"examine {place}", opened=True)
        # Everything was seen and nothing of the kind is known: noise has moved it about; look again.
        memory.seen.clear()
        return self._at(memory, admissible, order[0], f"examine {order[0]}", opened=True)

    def _put_away(self, memory: Memory, admissible: Sequence[str] | None) -> str:
        """Rid the hand of a thing that random play put there."""
        if admissible is not None:
            for command in admissible:
                if command.startswith(f"move {memory.held} to "):
                    return command
        return self._at(memory, admissible, memory.source, f"move {memory.held} to {memory.source}", opened=True)

    @staticmethod
    def _at(memory: Memory, admissible: Sequence[str] | None, place: str, command: str, opened: bool) -> str:
        """`command`, or what has to come before it: going to `place`, opening it."""
        going = f"go to {place}"
        if memory.here != place and _offered(memory, admissible, going):
            return going
        if opened and place not in memory.seen | memory.closed and memory.here != place:
            # Reached from a place at the same spot, so no arrival text said whether it is closed.
            if _offered(memory, admissible, f"open {place}"):
                return f"open {place}"
        elif opened and place in memory.closed:
            return f"open {place}"
        return command


def _offered(memory: Memory, admissible: Sequence[str] | None, command: str) -> bool:
    """Whether a command would be accepted, as far as known."""
    return command not in memory.refused if admissible is None else command in admissible


def _number(place: str) -> int:
    return int(place.rsplit(" ", 1)[1])


def _first_of(memory: Memory, kind: str) -> str:
    places = [place for place in memory.places if kind_of(place) == kind]
    if not places:
        raise WorldError(f"the room has no {kind}, which the goal needs")
    return memory.here if memory.here in places else min(places, key=_number)
