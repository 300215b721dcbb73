"""Generated rooms without their objects: which places they have and where one stands to use them.

A layout belongs either to train and valid_seen or to valid_unseen, by a hash of its inventory (how
many places of each type). So the rooms of valid_unseen are new in kind, as the official scenes 10,
219, 308 and 424 are, for every size and seed, and no list of reserved rooms is needed.
"""

from __future__ import annotations

import random
from collections import Counter
from functools import lru_cache

from worldwise.config import derive_seed
from worldwise.worlds.contract import WorldError
from worldwise.worlds.household.config import HouseholdConfig
from worldwise.worlds.household.game import Receptacle
from worldwise.worlds.household.rooms import MOST_AT_ONE_SPOT, OPENABLE_SHARE, ROOMS, SAME_SPOT, Room

Layout = tuple[Receptacle, ...]

UNSEEN_ONE_IN = 5
"""One inventory in so many is kept for valid_unseen."""
_MOST_TRIES = 500


def inventory(layout: Layout) -> tuple[tuple[str, int], ...]:
    """How many places of each type a layout has, sorted by type."""
    return tuple(sorted(Counter(place.type for place in layout).items()))


def is_unseen(layout: Layout) -> bool:
    """Whether the layout's inventory is one of those kept for valid_unseen."""
    return _kept_for_unseen(inventory(layout))


def _kept_for_unseen(counts: tuple[tuple[str, int], ...]) -> bool:
    return derive_seed("layout", *(f"{place}={number}" for place, number in counts)) % UNSEEN_ONE_IN == 0


def make_layout(config: HouseholdConfig, room: str, number: int, unseen: bool) -> Layout:
    """Layout `number` of a kind of room, from the unseen or the seen side.

    Raises:
        WorldError: the size limits leave no inventory on that side.
    """
    limits = (config.receptacles_min, config.receptacles_max, config.same_type_max)
    return _make_layout(room, number, unseen, config.seed, *limits, config.shared_spots)


@lru_cache(maxsize=4096)
def _make_layout(
    room: str, number: int, unseen: bool, seed: int, least: int, most: int, same_type_max: int, shared: bool
) -> Layout:
    rng = random.Random(derive_seed(seed, "layout", room, number, int(unseen)))
    rules = ROOMS[room]
    top = min(most, rules.most)
    low = min(max(least, top // 2), top)
    for _ in range(_MOST_TRIES):
        counts = _draw_counts(rng, rules, rng.randint(low, top), same_type_max)
        if _kept_for_unseen(tuple(sorted(counts.items()))) == unseen:
            return _place(rng, counts, shared)
    side = "valid_unseen" if unseen else "train"
    raise WorldError(
        f"no {room} with receptacles_min={least}, receptacles_max={most}, same_type_max={same_type_max} is "
        f"left for {side}: these limits allow too few different rooms; widen them"
    )


def _draw_counts(rng: random.Random, rules: Room, size: int, same_type_max: int) -> Counter[str]:
    """Types and numbers of the places: the core, then what the room's rules give, cut or filled to `size`."""
    counts = Counter(rng.choice(group) for group in rules.core)
    room_left = size - counts.total()
    extra: list[str] = []
    spare: list[str] = []
    for rule in rules.places:
        free = min(rule.high, same_type_max) - counts[rule.type]
        if free <= 0:
            continue
        number = min(free, rng.randint(rule.low, rule.high)) if rng.random() < rule.chance else 0
        extra += [rule.type] * number
        if rule.high > 1:
            spare += [rule.type] * (free - number)
    if len(extra) > room_left:
        extra = rng.sample(extra, room_left)
    elif len(spare) > room_left - len(extra):
        extra += rng.sample(spare, room_left - len(extra))
    else:
        extra += spare
    counts.update(extra)
    return counts


def _place(rng: random.Random, counts: Counter[str], shared: bool) -> Layout:
    """Receptacles in the order of the first observation, standing places numbered from 1."""
    order = sorted(counts, key=str.lower)
    spots: dict[str, list[int]] = {}
    used: Counter[int] = Counter()
    places: list[Receptacle] = []
    for kind in order:
        joins = SAME_SPOT.get(kind, ()) if shared else ()
        share = OPENABLE_SHARE.get(kind, 0.0)
        own = spots.setdefault(kind, [])
        for number in range(counts[kind], 0, -1):
            location = 0
            for other, chance in joins:
                near = spots.get(other)
                if near and used[near[-1]] < MOST_AT_ONE_SPOT and rng.random() < chance:
                    location = near[-1]
                    break
            location = location or len(used) + 1
            used[location] += 1
            own.append(location)
            places.append(Receptacle(f"{kind.lower()} {number}", kind, location, rng.random() < share))
    return tuple(places)
