"""New household games from the room tables: a pure function of (config, split, index).

Splits never share a game. valid_unseen plays in rooms whose inventories occur nowhere else (see
`layouts`); train and valid_seen share rooms but not games, since a hash of task, room and where the
goal's objects lie says which of the two may have a game.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, replace
from functools import lru_cache

from worldwise.config import derive_seed
from worldwise.worlds.contract import WorldError
from worldwise.worlds.household.config import HouseholdConfig
from worldwise.worlds.household.game import Game, Goal, Receptacle, Thing
from worldwise.worlds.household.layouts import Layout, make_layout
from worldwise.worlds.household.objects import (
    CAN_CONTAIN,
    CLEANABLE,
    COOLABLE,
    FITS,
    FIXED,
    HEATABLE,
    PLACES,
    SLICEABLE,
    TOGGLEABLE,
    VESSELS,
)
from worldwise.worlds.household.plan import plan_walkthrough
from worldwise.worlds.household.rooms import (
    APPLIANCE,
    DISTRACTORS_A_PLACE,
    GOAL_FORMS,
    ROOMS,
    STATE_OF_TASK,
    TASK_ROOMS,
)

SPLITS: tuple[str, ...] = ("train", "valid_seen", "valid_unseen")
SEEN_ONE_IN = 4
"""One game in so many, of those in seen rooms, is kept for valid_seen."""
START = 0
"""Location of the agent at the start; layouts number theirs from 1, so no receptacle is there."""

_MOST_TRIES = 400
_STATE_OBJECTS = {"clean": CLEANABLE, "heat": HEATABLE, "cool": COOLABLE}


@dataclass(frozen=True, slots=True)
class _Sketch:
    """A game before it has names: what is asked, and which objects lie in which place of the layout."""

    task_type: str
    object_type: str
    target_type: str
    layout: Layout
    lying: tuple[tuple[str, int], ...]


def split_size(config: HouseholdConfig, split: str) -> int:
    """Number of games in a split.

    Raises:
        WorldError: unknown split.
    """
    sizes = {
        "train": config.train_games,
        "valid_seen": config.valid_seen_games,
        "valid_unseen": config.valid_unseen_games,
    }
    if split not in sizes:
        raise WorldError(f"split={split!r} is not known: use one of {', '.join(SPLITS)}")
    return sizes[split]


def task_type_of(config: HouseholdConfig, split: str, index: int) -> str:
    """The task type of game `index`: every type once in each round, in a seeded order."""
    cycle, position = divmod(index, len(config.task_types))
    return _round_of_types(config.seed, config.task_types, split, cycle)[position]


@lru_cache(maxsize=1024)
def _round_of_types(seed: int, task_types: tuple[str, ...], split: str, cycle: int) -> tuple[str, ...]:
    order = list(task_types)
    random.Random(derive_seed(seed, "types", split, cycle)).shuffle(order)
    return tuple(order)


def generate_game(config: HouseholdConfig, split: str, index: int) -> Game:
    """Game `index` of a split.

    It can be won, is not won at the start, and carries a walkthrough that wins.

    Raises:
        WorldError: unknown split, an index outside of it, or settings under which no game can be made.
    """
    size = split_size(config, split)
    if not 0 <= index < size:
        raise WorldError(f"index={index} is outside of {split} (0..{size - 1}): raise {split}_games or lower the index")
    task_type = task_type_of(config, split, index)
    rng = random.Random(derive_seed(config.seed, "game", split, index))
    for _ in range(_MOST_TRIES):
        sketch = _draw_sketch(rng, config, split, task_type)
        if sketch is not None:
            return _finish(rng, sketch, f"generated/{split}/{index}")
    raise WorldError(
        f"no {task_type} game can be made for {split} with rooms={config.rooms!r}, "
        f"receptacles_min={config.receptacles_min}, receptacles_max={config.receptacles_max}: widen them"
    )


def content_key(game: Game) -> str:
    """What two games must have in common to count as the same one: goal, places and where things lie."""
    goal = f"{game.goal.task_type}:{game.goal.object_type}:{game.goal.target_type}"
    places = ",".join(f"{p.name}@{p.location}{'o' if p.openable else ''}" for p in game.receptacles)
    things = ",".join(f"{t.name} in {'+'.join(t.inside)}" for t in game.things)
    return f"{goal}|{places}|{things}"


def _belongs(split: str, goal: tuple[str, str, str], layout: Layout, lying: list[tuple[str, int]]) -> bool:
    """Whether a game may be in a split, by the hash of its task, room and where the goal's objects lie.

    Distractors do not count: a game of valid_seen is never one of train with other things about.
    """
    if split == "valid_unseen":
        return True
    places = (place.name for place in layout)
    found = sorted(f"{thing}>{layout[place].name}" for thing, place in lying)
    return (derive_seed("game", *goal, *places, *found) % SEEN_ONE_IN == 0) == (split == "valid_seen")


def _draw_sketch(rng: random.Random, config: HouseholdConfig, split: str, task_type: str) -> _Sketch | None:
    weights = {room: weight for room, weight in TASK_ROOMS[task_type].items() if room in config.rooms}
    room = rng.choices(list(weights), list(weights.values()))[0]
    unseen = split == "valid_unseen"
    number = rng.randrange(config.unseen_layouts if unseen else config.layouts)
    layout = make_layout(config, room, number, unseen)
    by_type: dict[str, list[int]] = {}
    for place, receptacle in enumerate(layout):
        by_type.setdefault(receptacle.type, []).append(place)
    goal = _draw_goal(rng, task_type, room, by_type)
    if goal is None:
        return None
    object_type, target_type = goal
    lying = _lay_goal_objects(rng, config, task_type, object_type, target_type, by_type)
    if lying is None or not _belongs(split, (task_type, object_type, target_type), layout, lying):
        return None
    taken = Counter({object_type: config.copies_max})
    if task_type == "look_at_obj_in_light":
        taken["DeskLamp"] = 1
    lying += _lay_distractors(rng, config, room, by_type, taken)
    return _Sketch(task_type, object_type, target_type, layout, tuple(lying))


def _draw_goal(rng: random.Random, task_type: str, room: str, by_type: dict[str, list[int]]) -> tuple[str, str] | None:
    """Object and target type, or None where the drawn object has no allowed target in this room."""
    verb = STATE_OF_TASK.get(task_type)
    objects = [kind for kind in ROOMS[room].objects if kind not in FIXED]
    if verb is not None:
        if APPLIANCE[verb] not in by_type:
            return None
        objects = [kind for kind in objects if kind in _STATE_OBJECTS[verb]]
    object_type = rng.choice(objects)
    if task_type == "look_at_obj_in_light":
        return object_type, "DeskLamp"
    banned = APPLIANCE[verb] if verb is not None else ""
    targets = [kind for kind in by_type if kind != banned and object_type in FITS[kind]]
    if not targets:
        return None
    return object_type, rng.choice(targets)


def _lay_goal_objects(
    rng: random.Random,
    config: HouseholdConfig,
    task_type: str,
    object_type: str,
    target_type: str,
    by_type: dict[str, list[int]],
) -> list[tuple[str, int]] | None:
    """Copies of the goal's object (and the lamp), so that the goal does not hold yet."""
    least = 2 if task_type == "pick_two_obj_and_place" else 1
    copies = rng.randint(least, max(least, config.copies_max))
    # An object that only waits for its state change may already lie in a target; moved things may not.
    forbidden = target_type if task_type in ("pick_and_place_simple", "pick_two_obj_and_place") else ""
    lying = []
    for _ in range(copies):
        place = _draw_place(rng, object_type, by_type, forbidden)
        if place is None:
            return None
        lying.append((object_type, place))
    if task_type == "look_at_obj_in_light":
        place = _draw_place(rng, "DeskLamp", by_type, "")
        if place is None:
            return None
        lying.append(("DeskLamp", place))
    return lying


def _lay_distractors(
    rng: random.Random, config: HouseholdConfig, room: str, by_type: dict[str, list[int]], taken: Counter[str]
) -> list[tuple[str, int]]:
    """Other objects, as frequent as the room has them; fewer where the room is too small to hold them."""
    kinds = [kind for kind in ROOMS[room].objects if taken[kind] == 0]
    weights = [ROOMS[room].objects[kind] for kind in kinds]
    most = round(DISTRACTORS_A_PLACE * sum(map(len, by_type.values())))
    number = rng.randint(min(config.distractors_min, most), min(config.distractors_max, most))
    lying: list[tuple[str, int]] = []
    for kind in rng.choices(kinds, weights, k=2 * number):
        if len(lying) == number:
            break
        if taken[kind] >= (1 if kind in FIXED else config.copies_max):
            continue
        place = _draw_place(rng, kind, by_type, "")
        if place is not None:
            taken[kind] += 1
            lying.append((kind, place))
    return lying


def _draw_place(rng: random.Random, object_type: str, by_type: dict[str, list[int]], forbidden: str) -> int | None:
    """Index of a place where such an object may lie, drawn by the tables; None where there is none."""
    usual = PLACES[object_type]
    kinds = [kind for kind in by_type if kind in usual and kind != forbidden]
    if kinds:
        kind = rng.choices(kinds, [usual[kind] for kind in kinds])[0]
    else:
        kinds = [kind for kind in by_type if object_type in FITS[kind] and kind != forbidden]
        if not kinds:
            return None
        kind = rng.choice(kinds)
    return rng.choice(by_type[kind])


def _finish(rng: random.Random, sketch: _Sketch, game_id: str) -> Game:
    """Names, properties, goal sentence and walkthrough."""
    things = []
    ordered = sorted(sketch.lying, key=lambda entry: entry[0].lower())
    left = Counter(kind for kind, _ in ordered)
    for kind, place in ordered:
        things.append(_thing(kind, left[kind], sketch.layout[place]))
        left[kind] -= 1
    words = {"object": sketch.object_type.lower(), "target": sketch.target_type.lower()}
    text = rng.choice(GOAL_FORMS[sketch.task_type]).format(**words)
    goal = Goal(sketch.task_type, sketch.object_type, sketch.target_type, text)
    game = Game(game_id, sketch.layout, tuple(things), START, CAN_CONTAIN, goal)
    return replace(game, walkthrough=plan_walkthrough(game))


def _thing(kind: str, number: int, place: Receptacle) -> Thing:
    return Thing(
        name=f"{kind.lower()} {number}",
        type=kind,
        inside=(place.name,),
        location=place.location,
        pickupable=kind not in FIXED,
        cleanable=kind in CLEANABLE,
        heatable=kind in HEATABLE,
        coolable=kind in COOLABLE,
        toggleable=kind in TOGGLEABLE,
        sliceable=kind in SLICEABLE,
        vessel=kind in VESSELS,
    )
