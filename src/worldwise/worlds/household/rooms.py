"""What rooms look like: which places a room has and which objects occur in it.

Our own tables, in ALFRED's type names (see `objects`). The numbers are round guesses at ordinary
homes, chosen so that generated rooms come near the official ones in the kinds and numbers of places.
"""

from __future__ import annotations

from dataclasses import dataclass

from worldwise.worlds.household.objects import (
    DECOR,
    DISHES,
    FOOD,
    PENS,
    POCKET,
    SHAKERS,
    SPORTS,
    SPRAYS,
)

OPENABLE_SHARE: dict[str, float] = {
    "Cabinet": 0.85,
    "Drawer": 0.85,
    "Fridge": 1.0,
    "Microwave": 1.0,
    "Safe": 1.0,
}
"""Chance that a place of the type has a door that starts closed; the others are always open."""

SAME_SPOT: dict[str, tuple[tuple[str, float], ...]] = {
    "Cabinet": (("Cabinet", 0.12),),
    "CoffeeMachine": (("CounterTop", 0.5),),
    "Drawer": (("Drawer", 0.2), ("Dresser", 0.1), ("Desk", 0.05)),
    "Shelf": (("Shelf", 0.1), ("TVStand", 0.3)),
    "StoveBurner": (("StoveBurner", 0.5),),
    "Toaster": (("CounterTop", 0.5),),
}
"""For a type: with which other type it shares the agent's standing place, and how often."""
MOST_AT_ONE_SPOT = 4
DISTRACTORS_A_PLACE = 1.5
"""Most objects beside the goal's, for each place of a room: a bathroom is emptier than a kitchen."""


@dataclass(frozen=True, slots=True)
class PlaceRule:
    """How often a room has a type of place (chance 0..1) and how many of it where it has (low..high)."""

    type: str
    chance: float
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Room:
    """A kind of room.

    Attributes:
        most: number of places in a large room of the kind.
        core: groups of types; every room has one place out of each group.
        places: which further places it has.
        objects: type -> how often it occurs, relative to the others.
    """

    most: int
    core: tuple[tuple[str, ...], ...]
    places: tuple[PlaceRule, ...]
    objects: dict[str, float]


ROOMS: dict[str, Room] = {
    "kitchen": Room(
        most=30,
        core=(("Fridge",), ("Microwave",), ("SinkBasin",), ("CounterTop", "CounterTop", "DiningTable")),
        places=(
            PlaceRule("Cabinet", 1.0, 4, 14),
            PlaceRule("CoffeeMachine", 0.95, 1, 1),
            PlaceRule("CounterTop", 1.0, 1, 3),
            PlaceRule("DiningTable", 0.5, 1, 1),
            PlaceRule("Drawer", 0.95, 2, 9),
            PlaceRule("GarbageCan", 0.95, 1, 1),
            PlaceRule("Safe", 0.04, 1, 1),
            PlaceRule("Shelf", 0.25, 1, 3),
            PlaceRule("SideTable", 0.15, 1, 1),
            PlaceRule("StoveBurner", 0.95, 2, 4),
            PlaceRule("Toaster", 0.95, 1, 1),
        ),
        objects={
            **dict.fromkeys((*FOOD, *DISHES, "ButterKnife", "Fork", "Knife", "Spoon", "Spatula"), 10.0),
            **dict.fromkeys(("Pan", "Pot", *SHAKERS, "DishSponge", "SoapBottle"), 8.0),
            **dict.fromkeys(("Kettle", "WineBottle", "Ladle", "Glassbottle"), 4.0),
            **dict.fromkeys(("HousePlant", "Statue", "Vase", "Book", "CellPhone", "CreditCard"), 1.5),
            **dict.fromkeys(("Pen", "Pencil", "SprayBottle"), 0.7),
        },
    ),
    "bedroom": Room(
        most=20,
        core=(("Bed",), ("Desk", "Desk", "SideTable", "Dresser")),
        places=(
            PlaceRule("ArmChair", 0.2, 1, 2),
            PlaceRule("Bed", 0.1, 1, 1),
            PlaceRule("Cabinet", 0.15, 1, 4),
            PlaceRule("Desk", 0.4, 1, 1),
            PlaceRule("DiningTable", 0.1, 1, 1),
            PlaceRule("Drawer", 0.95, 2, 10),
            PlaceRule("Dresser", 0.4, 1, 1),
            PlaceRule("GarbageCan", 0.95, 1, 1),
            PlaceRule("LaundryHamper", 0.3, 1, 1),
            PlaceRule("Safe", 0.25, 1, 1),
            PlaceRule("Shelf", 0.7, 1, 7),
            PlaceRule("SideTable", 0.6, 1, 2),
        ),
        objects={
            **dict.fromkeys(("AlarmClock", "Book", "CD", "Laptop", *POCKET, *PENS, "Pillow"), 10.0),
            **dict.fromkeys(("Bowl", "Mug"), 5.0),
            **dict.fromkeys((*SPORTS, "HousePlant", "TissueBox", "Box", "DeskLamp"), 2.5),
            **dict.fromkeys(("Cloth", *DECOR, "RemoteControl", "Watch", "Television"), 1.5),
        },
    ),
    "living_room": Room(
        most=18,
        core=(("Sofa",), ("SideTable", "CoffeeTable", "Dresser")),
        places=(
            PlaceRule("ArmChair", 0.9, 1, 2),
            PlaceRule("Cabinet", 0.2, 2, 6),
            PlaceRule("CoffeeTable", 0.75, 1, 1),
            PlaceRule("Desk", 0.06, 1, 1),
            PlaceRule("DiningTable", 0.5, 1, 1),
            PlaceRule("Drawer", 0.75, 1, 8),
            PlaceRule("Dresser", 0.3, 1, 1),
            PlaceRule("GarbageCan", 0.95, 1, 1),
            PlaceRule("Ottoman", 0.15, 1, 1),
            PlaceRule("Safe", 0.1, 1, 1),
            PlaceRule("Shelf", 0.4, 2, 8),
            PlaceRule("SideTable", 0.7, 1, 3),
            PlaceRule("Sofa", 0.15, 1, 1),
            PlaceRule("TVStand", 0.4, 1, 1),
        ),
        objects={
            **dict.fromkeys(("Box", "CreditCard", "KeyChain", "Laptop", "RemoteControl"), 10.0),
            **dict.fromkeys(("Pillow", "Statue"), 10.0),
            **dict.fromkeys(("Newspaper", "Vase", "Watch", "HousePlant", "Television"), 6.0),
            **dict.fromkeys(("Plate", "TissueBox", "Book", "CellPhone", *PENS, "WateringCan"), 3.0),
            **dict.fromkeys(("Bowl", "Candle", "DeskLamp"), 2.0),
        },
    ),
    "bathroom": Room(
        most=14,
        core=(("SinkBasin",), ("Toilet",)),
        places=(
            PlaceRule("BathtubBasin", 0.65, 1, 1),
            PlaceRule("Cabinet", 0.55, 1, 6),
            PlaceRule("Cart", 0.1, 1, 1),
            PlaceRule("CounterTop", 0.85, 1, 1),
            PlaceRule("Drawer", 0.55, 1, 6),
            PlaceRule("Dresser", 0.07, 1, 1),
            PlaceRule("GarbageCan", 0.95, 1, 1),
            PlaceRule("HandTowelHolder", 0.95, 1, 2),
            PlaceRule("Shelf", 0.3, 1, 3),
            PlaceRule("SideTable", 0.1, 1, 1),
            PlaceRule("SinkBasin", 0.45, 1, 1),
            PlaceRule("ToiletPaperHanger", 0.95, 1, 1),
            PlaceRule("TowelHolder", 0.95, 1, 1),
        ),
        objects={
            **dict.fromkeys(("Candle", "Cloth", "SoapBar", *SPRAYS, "ToiletPaper"), 10.0),
            **dict.fromkeys(("HandTowel", "Towel"), 5.0),
            **dict.fromkeys(("DishSponge", "TissueBox"), 2.5),
            "HousePlant": 0.5,
        },
    ),
}

APPLIANCE: dict[str, str] = {"clean": "SinkBasin", "heat": "Microwave", "cool": "Fridge"}
"""Verb of a state change -> type of the place where it is done."""
STATE_OF_TASK: dict[str, str] = {
    "pick_clean_then_place_in_recep": "clean",
    "pick_heat_then_place_in_recep": "heat",
    "pick_cool_then_place_in_recep": "cool",
}
"""Task type -> verb of the state change that it asks for."""

TASK_ROOMS: dict[str, dict[str, float]] = {
    "pick_and_place_simple": {"bathroom": 3, "bedroom": 3, "kitchen": 2, "living_room": 3},
    "look_at_obj_in_light": {"bedroom": 4, "living_room": 1},
    "pick_clean_then_place_in_recep": {"kitchen": 3, "bathroom": 1},
    "pick_heat_then_place_in_recep": {"kitchen": 1},
    "pick_cool_then_place_in_recep": {"kitchen": 1},
    "pick_two_obj_and_place": {"bathroom": 3, "bedroom": 3, "kitchen": 2, "living_room": 3},
}
"""Task type -> rooms in which it is played, with weights."""

GOAL_FORMS: dict[str, tuple[str, str]] = {
    "pick_and_place_simple": (
        "put some {object} on {target}.",
        "put a {object} in {target}.",
    ),
    "look_at_obj_in_light": (
        "look at {object} under the {target}.",
        "examine the {object} with the {target}.",
    ),
    "pick_clean_then_place_in_recep": (
        "put a clean {object} in {target}.",
        "clean some {object} and put it in {target}.",
    ),
    "pick_heat_then_place_in_recep": (
        "put a hot {object} in {target}.",
        "heat some {object} and put it in {target}.",
    ),
    "pick_cool_then_place_in_recep": (
        "put a cool {object} in {target}.",
        "cool some {object} and put it in {target}.",
    ),
    "pick_two_obj_and_place": (
        "put two {object} in {target}.",
        "find two {object} and put them in {target}.",
    ),
}
"""The two sentences in which ALFWorld states a goal of each type."""
