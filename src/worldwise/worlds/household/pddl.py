"""Reads official ALFWorld games (`game.tw-pddl`) as data.

Only the initial facts, the goal, the goal sentence and the walkthrough are read. The planning
domain and the text grammar inside a file are never interpreted: the grammar holds expressions
that the reference engine evaluates as Python, so a file could run code there. Here it cannot.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from worldwise.worlds.household.game import Game, GameFileError, Goal, Receptacle, Thing
from worldwise.worlds.household.sentences import translate_put_form

_NUMBER_FACT = re.compile(r"\(=\s*\([^()]*\)\s*[\d.]+\s*\)")
_GOAL_SENTENCE = re.compile(r'Your task is to: ((?:[^"\\]|\\.)*)"')

_PAIRS = frozenset(
    {
        "atLocation",
        "canContain",
        "inReceptacle",
        "inReceptacleObject",
        "objectAtLocation",
        "objectType",
        "receptacleAtLocation",
        "receptacleType",
    }
)
_SINGLES = frozenset(
    {
        "cleanable",
        "coolable",
        "heatable",
        "isCool",
        "isReceptacleObject",
        "openable",
        "pickupable",
        "sliceable",
        "toggleable",
    }
)
_WITHOUT_EFFECT = frozenset(
    f"({predicate}"
    for predicate in (
        "checked",
        "examined",
        "full",
        "isReceptacleObjectFull",
        "moveable",
        "wasInReceptacle",
    )
)
"""Predicates of the domain that no rule in use reads."""

_PLACE_GOAL = re.compile(
    r"\(:goal\(and\(exists\(\?r - receptacle\)\(exists\(\?o - object(?: \?ko - object)?\)"
    r"\(and((?:\([^()]+\))+)\)\)\)\)\)"
)
_PAIR_GOAL = re.compile(
    r"\(:goal\(and\(exists\(\?r - receptacle\)\(exists\(\?o1 - object\)\(and"
    r"(?P<slice>\(sliceable \?o1\)\(isSliced \?o1\))?"
    r"\(objectType \?o1 (?P<object>\w+)Type\)\(receptacleType \?r (?P<target>\w+)Type\)"
    r"\(inReceptacle \?o1 \?r\)\(exists\(\?o2 - object\)\(and\(not\(= \?o1 \?o2\)\)"
    r"(?(slice)\(sliceable \?o2\)\(isSliced \?o2\))"
    r"\(objectType \?o2 (?P=object)Type\)\(receptacleType \?r (?P=target)Type\)"
    r"\(inReceptacle \?o2 \?r\)\)\)\)\)\)\)\)"
)
_LOOK_GOAL = re.compile(
    r"\(:goal\(and\(exists\(\?ot - object \?r - receptacle \?a - agent \?l - location\)\(and"
    r"\(objectType \?ot (?P<target>\w+)Type\)\(toggleable \?ot\)\(isToggled \?ot\)"
    r"\(receptacleAtLocation \?r \?l\)\(atLocation \?a \?l\)\(inReceptacle \?ot \?r\)\)\)"
    r"\(exists\(\?o - object \?a - agent\)\(and"
    r"\(objectType \?o (?P<object>\w+)Type\)\(holds \?a \?o\)\)\)\)\)"
)
_STATES = {
    frozenset(): "pick_and_place_simple",
    frozenset({"(cleanable ?o)", "(isClean ?o)"}): "pick_clean_then_place_in_recep",
    frozenset({"(heatable ?o)", "(isHot ?o)"}): "pick_heat_then_place_in_recep",
    frozenset({"(coolable ?o)", "(isCool ?o)"}): "pick_cool_then_place_in_recep",
}
_SLICED = frozenset({"(sliceable ?o)", "(isSliced ?o)"})


class GameFile(NamedTuple):
    """The parts of a game file that are read.

    Attributes:
        problem: the planning problem's text.
        sentence: the goal sentence with its full stop.
        walkthrough: commands that win, in the form of ALFWorld 0.4, or None.
        solvable: the makers found a solution; ALFWorld skips games without one.
    """

    problem: str
    sentence: str
    walkthrough: tuple[str, ...] | None
    solvable: bool


def open_game_file(data: bytes | str, name: str) -> GameFile:
    """Take the parts that are read out of a game file.

    Args:
        data: the file's content.
        name: what error messages call the file.

    Raises:
        GameFileError: not JSON, not a game, or a part is missing.
    """
    if not data:
        raise GameFileError(f"{name}: the file is empty; fetch it again")
    try:
        content = json.loads(data)
    except ValueError as error:
        raise GameFileError(
            f"{name}: not valid JSON ({error}); the file is damaged or truncated, fetch it again"
        ) from None
    if not isinstance(content, dict):
        raise GameFileError(f"{name}: holds a JSON {type(content).__name__}, not a game's object")
    problem, grammar = (_text_of(content, key, name) for key in ("pddl_problem", "grammar"))
    sentence = _GOAL_SENTENCE.search(grammar)
    if sentence is None:
        raise GameFileError(f"{name}: its grammar has no sentence 'Your task is to: ...'")
    walkthrough = content.get("walkthrough")
    if walkthrough is not None and (
        not isinstance(walkthrough, list) or not all(isinstance(command, str) for command in walkthrough)
    ):
        raise GameFileError(f"{name}: walkthrough is {walkthrough!r:.60}; expected a list of commands or null")
    solvable = content.get("solvable")
    if not isinstance(solvable, bool):
        raise GameFileError(f"{name}: solvable is {solvable!r:.60}; expected true or false")
    if walkthrough is not None:
        walkthrough = [translate_put_form(command) for command in walkthrough]
    text = sentence[1] if "\\" not in sentence[1] else str(json.loads(f'"{sentence[1]}"'))
    return GameFile(problem, text, None if walkthrough is None else tuple(walkthrough), solvable)


def _text_of(content: dict[str, object], key: str, name: str) -> str:
    text = content.get(key)
    if not isinstance(text, str) or not text.strip():
        raise GameFileError(f"{name}: key {key!r} is {'missing' if text is None else 'no text'}")
    return text


def read_game(data: bytes | str, game_id: str, name: str | None = None) -> Game:
    """Read one official game.

    Args:
        data: the content of a `game.tw-pddl`.
        game_id: the game's id.
        name: what error messages call the file; the game's id if not given.

    Raises:
        GameFileError: the file is damaged, or no household game.
    """
    name = game_id if name is None else name
    return build_game(open_game_file(data, name), game_id, name)


def build_game(file: GameFile, game_id: str, name: str) -> Game:
    """Make a game from the parts of its file; arguments and errors as in `read_game`."""
    problem = file.problem
    begin, end = problem.find("(:init"), problem.find("(:goal")
    if begin < 0 or end < begin:
        raise GameFileError(f"{name}: its problem has no (:init ...) followed by a (:goal ...)")
    facts = _Facts(problem[begin + len("(:init") : end], name)
    receptacles, things, start = facts.entities()
    return Game(
        game_id=game_id,
        receptacles=receptacles,
        things=things,
        start=start,
        can_contain=facts.can_contain,
        goal=read_goal(problem[end:], file.sentence, name),
        walkthrough=file.walkthrough,
    )


def read_goal(text: str, sentence: str, name: str) -> Goal:
    """Read the goal from the end of a problem, from "(:goal" on.

    Raises:
        GameFileError: the goal has none of the known shapes.
    """
    goal = re.sub(r"\s*([()])\s*", r"\1", re.sub(r"\s+", " ", text))
    if not goal.endswith(")"):
        raise GameFileError(f"{name}: its problem breaks off inside the goal")
    goal = goal[:-1]
    place = _PLACE_GOAL.fullmatch(goal)
    if place is not None:
        atoms = set(re.findall(r"\([^()]+\)", place[1]))
        objects = [atom[len("(objectType ?o ") : -5] for atom in atoms if atom.startswith("(objectType ?o ")]
        targets = [atom[len("(receptacleType ?r ") : -5] for atom in atoms if atom.startswith("(receptacleType ?r ")]
        rest = atoms - {"(inReceptacle ?o ?r)"}
        rest = {atom for atom in rest if not atom.startswith(("(objectType ?o ", "(receptacleType ?r "))}
        sliced = rest >= _SLICED
        task_type = _STATES.get(frozenset(rest - _SLICED if sliced else rest))
        if task_type and len(objects) == len(targets) == 1 and "(inReceptacle ?o ?r)" in atoms:
            return Goal(task_type, objects[0], targets[0], sentence, sliced)
    pair = _PAIR_GOAL.fullmatch(goal)
    if pair is not None:
        return Goal("pick_two_obj_and_place", pair["object"], pair["target"], sentence, pair["slice"] is not None)
    look = _LOOK_GOAL.fullmatch(goal)
    if look is not None:
        return Goal("look_at_obj_in_light", look["object"], look["target"], sentence)
    raise GameFileError(f"{name}: unknown task type: its goal is none of the six that ALFWorld plays: {goal:.200}")


class _Facts:
    """The initial facts of a problem, by predicate."""

    def __init__(self, text: str, name: str) -> None:
        self.name = name
        if "(=" in text:
            text = _NUMBER_FACT.sub("", text)
        self.pairs: dict[str, list[tuple[str, str]]] = {predicate: [] for predicate in _PAIRS}
        self.singles: dict[str, set[str]] = {predicate: set() for predicate in _SINGLES}
        add_pair = {f"({predicate}": found.append for predicate, found in self.pairs.items()}
        add_single = {f"({predicate}": found.add for predicate, found in self.singles.items()}
        # Splitting at the closing brackets is several times as fast as matching fact by fact.
        *parts, last, after = text.split(")")
        if last.strip() or after.strip():
            raise GameFileError(f"{name}: the initial facts end in {f'{last}){after}'.strip()!r:.80}")
        if text.count("(") != len(parts):
            raise GameFileError(f"{name}: the brackets of the initial facts do not match")
        for part in parts:
            words = part.split()
            count = len(words)
            if count == 3 and words[0] in add_pair:
                add_pair[words[0]]((words[1], words[2]))
            elif count == 2 and words[0] in add_single:
                add_single[words[0]](words[1])
            elif not words or words[0] not in _WITHOUT_EFFECT:
                raise GameFileError(f"{name}: a game cannot begin with the fact {f'{part.strip()})'!r:.80}")
        self._types: dict[str, str] = {}
        contain = self.pairs["canContain"]
        kinds = {kind: self._type(kind) for kind in {word for pair in contain for word in pair}}
        self.can_contain = frozenset([(kinds[place], kinds[thing]) for place, thing in contain])

    def _type(self, text: str) -> str:
        known = self._types.get(text)
        if known is None:
            known = text.removesuffix("Type")
            if not known or known == text:
                raise GameFileError(f"{self.name}: {text!r} is no type name; expected one such as 'MugType'")
            self._types[text] = known
        return known

    def _single(self, predicate: str) -> dict[str, str]:
        """Facts of a predicate that may hold for one second argument only."""
        found: dict[str, str] = {}
        for first, second in self.pairs[predicate]:
            if found.setdefault(first, second) != second:
                raise GameFileError(
                    f"{self.name}: {predicate} of {first} is both {found[first]} and {second}; expected one value"
                )
        return found

    def entities(self) -> tuple[tuple[Receptacle, ...], tuple[Thing, ...], int]:
        """The receptacles and things in the reference engine's order, and the start's location."""
        receptacle_types, thing_types = self._single("receptacleType"), self._single("objectType")
        receptacle_places, thing_places = (
            self._single("receptacleAtLocation"),
            self._single("objectAtLocation"),
        )
        starts = self.pairs["atLocation"]
        if len(starts) != 1 or not receptacle_types or not thing_types:
            raise GameFileError(
                f"{self.name}: has {len(starts)} agents, {len(receptacle_types)} receptacles and "
                f"{len(thing_types)} things; expected 1, some and some"
            )
        inside, holds = defaultdict(list), defaultdict(list)
        for thing, place in self.pairs["inReceptacle"]:
            inside[thing].append(place)
        for thing, vessel in self.pairs["inReceptacleObject"]:
            holds[vessel].append(thing)
        self._check("receptacle", receptacle_types, receptacle_places, *inside.values())
        if len(receptacle_places) < len(receptacle_types):
            lost = sorted(set(receptacle_types) - set(receptacle_places))
            raise GameFileError(f"{self.name}: receptacle {lost[0]} is at no location")
        self._check("thing", thing_types, thing_places, inside, holds, *holds.values())

        locations: dict[str, int] = {}
        for place in (*receptacle_places.values(), *thing_places.values(), starts[0][1]):
            locations.setdefault(place, len(locations))
        names = shown_names({*receptacle_types, *thing_types})
        receptacles = tuple(
            Receptacle(
                name=names[key],
                type=self._type(receptacle_types[key]),
                location=locations[receptacle_places[key]],
                openable=key in self.singles["openable"],
            )
            for key in sorted(receptacle_types, key=str.lower)
        )
        things = tuple(
            Thing(
                name=names[key],
                type=self._type(thing_types[key]),
                inside=tuple(names[place] for place in inside[key]),
                location=locations[thing_places[key]] if key in thing_places else None,
                pickupable=key in self.singles["pickupable"],
                cleanable=key in self.singles["cleanable"],
                heatable=key in self.singles["heatable"],
                coolable=key in self.singles["coolable"],
                toggleable=key in self.singles["toggleable"],
                sliceable=key in self.singles["sliceable"],
                cool=key in self.singles["isCool"],
                vessel=key in self.singles["isReceptacleObject"],
                # The reference never lists a thing as inside itself, though a few facts say so.
                holds=tuple(names[other] for other in sorted(holds[key], key=str.lower) if other != key),
            )
            for key in sorted(thing_types, key=str.lower)
        )
        return receptacles, things, locations[starts[0][1]]

    def _check(self, kind: str, known: Iterable[str], *used: Iterable[str]) -> None:
        """Every id in use has a type, so that nothing of the room is lost unseen."""
        unknown = sorted({key for keys in used for key in keys} - set(known))
        if unknown:
            raise GameFileError(f"{self.name}: {kind} {unknown[0]} has no type")


def shown_names(ids: Iterable[str]) -> dict[str, str]:
    """The shown name of each id, as ALFWorld makes it.

    The name is what stands before the first "_bar_", with "basin" appended if that word occurs
    anywhere in the id, and a number that counts down in the order of the ids.
    """
    ordered = sorted(ids, key=str.lower)
    stems: dict[str, str] = {}
    for key in ordered:
        lower = key.lower()
        stem, bar, _ = lower.partition("_bar_")
        if bar:
            stems[key] = f"{stem}basin" if "basin" in lower else stem
    left = Counter(stems.values())
    names: dict[str, str] = {}
    for key in ordered:
        if key not in stems:
            # An id without "_bar_" gets no number, and the reference leaves the blank standing.
            names[key] = f"{key.lower()} "
            continue
        names[key] = f"{stems[key]} {left[stems[key]]}"
        left[stems[key]] -= 1
    return names
