"""What rooms look like: which places a room has, which objects lie where, what fits in what.

Our own tables. The type names are ALFRED's (Shridhar et al. 2020, MIT licence), so that what is
learnt on generated games is said in the official vocabulary. The numbers are round guesses at
ordinary homes, chosen so that generated rooms come near the official ones in the kinds and numbers
of places, not copied from any scene.

A `{type: weight}` table in `PLACES` is read twice: by the generator as the chance that an object
lies in a place of that type, and by the searching oracle as the order in which to look.
"""

from __future__ import annotations

from dataclasses import dataclass

ROOM_NAMES: tuple[str, ...] = ("kitchen", "bedroom", "living_room", "bathroom")

FOOD = ("Apple", "Bread", "Egg", "Lettuce", "Potato", "Tomato")
DISHES = ("Bowl", "Cup", "Mug", "Plate")
COOKWARE = ("Kettle", "Pan", "Pot")
CUTLERY = ("ButterKnife", "Fork", "Knife", "Spatula", "Spoon")
SHAKERS = ("PepperShaker", "SaltShaker")
BOTTLES = ("Glassbottle", "WineBottle")
WASHING = ("Cloth", "DishSponge", "SoapBar")
SPRAYS = ("SoapBottle", "SprayBottle")
PENS = ("Pen", "Pencil")
POCKET = ("CellPhone", "CreditCard", "KeyChain")
DECOR = ("Statue", "Vase")
SPORTS = ("BaseballBat", "BasketBall", "TennisRacket")

CLEANABLE = frozenset((*DISHES, *COOKWARE, *CUTLERY, *WASHING, *FOOD, "Ladle")) - {"Bread"}
HEATABLE = frozenset((*FOOD, "Cup", "Mug", "Plate")) - {"Lettuce"}
COOLABLE = frozenset((*FOOD, *DISHES, "Pan", "Pot", "WineBottle"))
SLICEABLE = frozenset(FOOD)
TOGGLEABLE = frozenset(("DeskLamp", "FloorLamp"))
FIXED = frozenset(("DeskLamp", "FloorLamp", "HousePlant", "Television"))
"""Objects that cannot be picked up."""

OPENABLE_SHARE: dict[str, float] = {"Cabinet": 0.85, "Drawer": 0.85, "Fridge": 1.0, "Microwave": 1.0, "Safe": 1.0}
"""Chance that a place of the type has a door that starts closed; the others are always open."""

_TABLEWARE = (*FOOD, *DISHES, *COOKWARE, *CUTLERY, *SHAKERS, *BOTTLES)
_DESK_THINGS = ("AlarmClock", "Book", "Box", "CD", *POCKET, "Laptop", *PENS, "RemoteControl", "TissueBox", "Watch")
_SEAT = ("Book", "Box", *POCKET, "Laptop", "Newspaper", "Pillow", "RemoteControl")
_TOILETRIES = ("Candle", "Cloth", "DishSponge", "HandTowel", "SoapBar", *SPRAYS, "TissueBox", "ToiletPaper")

FITS: dict[str, frozenset[str]] = {
    place: frozenset(objects)
    for place, objects in {
        "ArmChair": (*_SEAT, "Cloth"),
        "BathtubBasin": (*WASHING, "HandTowel"),
        "Bed": ("Book", "CellPhone", "Laptop", "Pillow", *SPORTS),
        "Cabinet": (
            *DISHES, *COOKWARE, *SHAKERS, *BOTTLES, *WASHING, *SPRAYS, "Book", "Box", "CD", "Candle",
            "HandTowel", "Ladle", "Newspaper", "TissueBox", "ToiletPaper", "Vase", "WateringCan",
        ),
        "Cart": _TOILETRIES,
        "CoffeeMachine": ("Mug",),
        "CoffeeTable": (
            *DECOR, *POCKET, *PENS, "Book", "Bowl", "Box", "Candle", "Laptop", "Newspaper", "Plate",
            "RemoteControl", "TissueBox", "Watch", "WateringCan",
        ),
        "CounterTop": (
            *_TABLEWARE, *_TOILETRIES, *DECOR, *PENS, *POCKET, "AlarmClock", "Book", "CD", "Ladle", "Laptop",
            "RemoteControl",
        ),
        "Desk": (*_DESK_THINGS, *DECOR, "BasketBall", "Bowl", "Cloth", "Mug", "TennisRacket", "WateringCan"),
        "DiningTable": (
            *_TABLEWARE, *_DESK_THINGS, *SPORTS, *DECOR, *SPRAYS, "Candle", "Cloth", "DishSponge", "Ladle",
            "Newspaper", "WateringCan",
        ),
        "Drawer": (
            *CUTLERY, *SHAKERS, *WASHING, *SPRAYS, *PENS, *POCKET, "Book", "CD", "Candle", "HandTowel", "Ladle",
            "Newspaper", "RemoteControl", "TissueBox", "ToiletPaper", "Watch",
        ),
        "Dresser": (
            *_DESK_THINGS, *DECOR, "BasketBall", "Bowl", "Candle", "Cloth", "Mug", "Newspaper", "Plate",
            "SprayBottle", "TennisRacket", "ToiletPaper", "WateringCan",
        ),
        "Fridge": (*FOOD, *DISHES, *BOTTLES, "Pan", "Pot"),
        "GarbageCan": (
            *FOOD, *WASHING, *SPRAYS, *PENS, "CD", "HandTowel", "Newspaper", "TissueBox", "ToiletPaper", "WineBottle",
        ),
        "HandTowelHolder": ("HandTowel",),
        "LaundryHamper": ("Cloth",),
        "Microwave": (*DISHES, "Apple", "Bread", "Egg", "Glassbottle", "Potato", "Tomato"),
        "Ottoman": _SEAT,
        "Safe": (*POCKET, *DECOR, "CD", "Watch"),
        "Shelf": (
            *DISHES, *SHAKERS, *BOTTLES, *_TOILETRIES, *DECOR, *POCKET, *PENS, "AlarmClock", "Book", "Box", "CD",
            "Kettle", "Newspaper", "Pot", "RemoteControl", "Watch", "WateringCan",
        ),
        "SideTable": (
            *_TABLEWARE, *_DESK_THINGS, *_TOILETRIES, *DECOR, *SPORTS, "Newspaper", "WateringCan",
        ),
        "SinkBasin": (*DISHES, *COOKWARE, *CUTLERY, *WASHING, *FOOD, "Glassbottle", "HandTowel", "Ladle"),
        "Sofa": _SEAT,
        "StoveBurner": COOKWARE,
        "TVStand": ("TissueBox",),
        "Toaster": (),
        "Toilet": _TOILETRIES,
        "ToiletPaperHanger": ("ToiletPaper",),
        "TowelHolder": ("Towel",),
    }.items()
}  # fmt: skip
"""Object types that can be put into a place of each type."""

CAN_CONTAIN: frozenset[tuple[str, str]] = frozenset(
    (place, thing) for place, things in FITS.items() for thing in things
)
"""`FITS` as the (receptacle type, object type) pairs of `Game.can_contain`."""

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
            **dict.fromkeys(("Box", "CreditCard", "KeyChain", "Laptop", "RemoteControl", "Statue", "Pillow"), 10.0),
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

_FOOD_PLACES = {
    "CounterTop": 30, "Fridge": 27, "DiningTable": 16, "GarbageCan": 8, "SinkBasin": 8, "Microwave": 7, "SideTable": 4,
}  # fmt: skip
_DISH_PLACES = {
    "Cabinet": 30, "CounterTop": 24, "Fridge": 15, "DiningTable": 13, "SinkBasin": 6, "Microwave": 4, "Shelf": 6,
    "SideTable": 2,
}  # fmt: skip
_CUTLERY_PLACES = {"CounterTop": 42, "DiningTable": 22, "Drawer": 22, "SinkBasin": 9, "SideTable": 5}
_SHAKER_PLACES = {"Cabinet": 32, "CounterTop": 31, "DiningTable": 16, "Drawer": 15, "Shelf": 4, "SideTable": 2}
_BOTTLE_PLACES = {"Cabinet": 28, "CounterTop": 33, "DiningTable": 18, "GarbageCan": 6, "Fridge": 6, "Shelf": 9}
_POCKET_PLACES = {
    "Drawer": 24, "Desk": 16, "SideTable": 14, "Shelf": 12, "Dresser": 12, "CoffeeTable": 12, "Sofa": 10, "ArmChair": 7,
    "DiningTable": 6, "TVStand": 5, "CounterTop": 10, "Safe": 4, "Ottoman": 3, "Bed": 2, "Cabinet": 1,
}  # fmt: skip
_PEN_PLACES = {
    "Desk": 26, "Drawer": 18, "SideTable": 16, "Shelf": 16, "Dresser": 13, "CoffeeTable": 20, "DiningTable": 6,
    "CounterTop": 10, "TVStand": 5, "GarbageCan": 4,
}  # fmt: skip
_DECOR_PLACES = {
    "Shelf": 30, "CoffeeTable": 22, "DiningTable": 14, "SideTable": 14, "Dresser": 12, "CounterTop": 10, "TVStand": 7,
    "Desk": 8, "Cabinet": 3, "Safe": 1,
}  # fmt: skip
_SPORT_PLACES = {"Bed": 35, "Desk": 25, "Dresser": 20, "SideTable": 10, "DiningTable": 10}
_SPRAY_PLACES = {
    "CounterTop": 30, "Toilet": 24, "Cabinet": 20, "GarbageCan": 9, "Shelf": 8, "DiningTable": 12, "SideTable": 3,
    "Cart": 4, "Drawer": 3,
}  # fmt: skip

PLACES: dict[str, dict[str, float]] = {
    **{food: dict(_FOOD_PLACES) for food in FOOD},
    **{dish: dict(_DISH_PLACES) for dish in DISHES},
    **{tool: dict(_CUTLERY_PLACES) for tool in CUTLERY},
    **{shaker: dict(_SHAKER_PLACES) for shaker in SHAKERS},
    **{bottle: dict(_BOTTLE_PLACES) for bottle in BOTTLES},
    **{item: dict(_POCKET_PLACES) for item in POCKET},
    **{pen: dict(_PEN_PLACES) for pen in PENS},
    **{item: dict(_DECOR_PLACES) for item in DECOR},
    **{item: dict(_SPORT_PLACES) for item in SPORTS},
    **{spray: dict(_SPRAY_PLACES) for spray in SPRAYS},
    "AlarmClock": {"Desk": 34, "Shelf": 22, "SideTable": 19, "Dresser": 17, "DiningTable": 6, "CounterTop": 2},
    "Book": {
        "Bed": 45, "Desk": 18, "Drawer": 11, "Dresser": 6, "SideTable": 6, "CoffeeTable": 26, "Sofa": 16, "ArmChair": 8,
        "DiningTable": 8, "CounterTop": 20, "Shelf": 4, "Cabinet": 4,
    },
    "Bowl": {**_DISH_PLACES, "Desk": 40, "CoffeeTable": 26, "TVStand": 15, "Dresser": 13},
    "Box": {"DiningTable": 22, "Sofa": 21, "CoffeeTable": 20, "SideTable": 8, "Desk": 12, "Shelf": 6, "Cabinet": 5,
            "Dresser": 5, "ArmChair": 4},
    "CD": {"Drawer": 28, "Desk": 21, "Dresser": 13, "SideTable": 12, "GarbageCan": 7, "Shelf": 8, "DiningTable": 5,
           "Cabinet": 2, "Safe": 3},
    "Candle": {"CounterTop": 28, "Toilet": 27, "Cabinet": 13, "Drawer": 12, "Shelf": 7, "SideTable": 20,
               "CoffeeTable": 25, "DiningTable": 18, "Cart": 3, "TVStand": 6, "Dresser": 3},
    "CellPhone": {**_POCKET_PLACES, "Bed": 28},
    "Cloth": {"BathtubBasin": 28, "Cabinet": 20, "CounterTop": 17, "Drawer": 15, "SinkBasin": 8, "Shelf": 5,
              "Toilet": 4, "LaundryHamper": 10, "Dresser": 5, "Desk": 5, "Cart": 2},
    "DeskLamp": {"Desk": 38, "SideTable": 34, "Dresser": 22, "Shelf": 8, "CoffeeTable": 6},
    "DishSponge": {"CounterTop": 24, "Cabinet": 20, "Drawer": 20, "DiningTable": 12, "SinkBasin": 8, "GarbageCan": 4,
                   "BathtubBasin": 8, "Toilet": 4, "Shelf": 4},
    "HandTowel": {"HandTowelHolder": 90, "CounterTop": 5, "Shelf": 3, "Cabinet": 2},
    "HousePlant": {"CounterTop": 40, "SideTable": 28, "Shelf": 20, "CoffeeTable": 14, "DiningTable": 12, "Desk": 18,
                   "Dresser": 8, "TVStand": 3, "Cart": 1},
    "Kettle": {"StoveBurner": 42, "CounterTop": 26, "Cabinet": 24, "DiningTable": 6, "SinkBasin": 2},
    "Ladle": {"CounterTop": 40, "Cabinet": 24, "Drawer": 18, "DiningTable": 14, "SinkBasin": 4},
    "Laptop": {"Bed": 60, "Desk": 22, "Sofa": 27, "CoffeeTable": 24, "DiningTable": 16, "Dresser": 6, "SideTable": 6,
               "ArmChair": 5, "TVStand": 4, "Ottoman": 2, "CounterTop": 2},
    "Lettuce": {"CounterTop": 42, "DiningTable": 27, "Fridge": 24, "SinkBasin": 5, "SideTable": 2},
    "Bread": {"CounterTop": 54, "DiningTable": 28, "Fridge": 14, "SideTable": 4},
    "Mug": {**_DISH_PLACES, "CoffeeMachine": 18, "Desk": 38, "Dresser": 14, "SideTable": 12},
    "Newspaper": {"Sofa": 20, "CoffeeTable": 18, "DiningTable": 16, "SideTable": 15, "Shelf": 10, "Dresser": 9,
                  "ArmChair": 7, "TVStand": 3, "Drawer": 2},
    "Pan": {"StoveBurner": 52, "CounterTop": 32, "Cabinet": 8, "Fridge": 4, "DiningTable": 4},
    "Pot": {"StoveBurner": 70, "CounterTop": 15, "Fridge": 5, "DiningTable": 5, "Cabinet": 5},
    "Pillow": {"Bed": 90, "Sofa": 70, "ArmChair": 20, "Ottoman": 2},
    "Plate": {**_DISH_PLACES, "CoffeeTable": 22, "Dresser": 3},
    "RemoteControl": {"CoffeeTable": 22, "Sofa": 18, "SideTable": 13, "DiningTable": 10, "Dresser": 9, "ArmChair": 8,
                      "TVStand": 8, "Drawer": 9, "Desk": 20, "Shelf": 3, "Ottoman": 2, "CounterTop": 5},
    "SoapBar": {"CounterTop": 20, "Toilet": 16, "SinkBasin": 15, "Cabinet": 13, "BathtubBasin": 12, "Drawer": 11,
                "GarbageCan": 6, "Shelf": 5, "Cart": 2},
    "Television": {"TVStand": 50, "Dresser": 40, "CoffeeTable": 6, "SideTable": 4},
    "TissueBox": {"CoffeeTable": 30, "SideTable": 18, "CounterTop": 25, "Shelf": 15, "DiningTable": 15, "Desk": 25,
                  "Drawer": 14, "TVStand": 6, "Dresser": 3, "Toilet": 2, "Cart": 3, "Cabinet": 3, "GarbageCan": 2},
    "ToiletPaper": {"Toilet": 24, "CounterTop": 22, "Cabinet": 13, "ToiletPaperHanger": 12, "Drawer": 11,
                    "GarbageCan": 9, "Shelf": 7, "Dresser": 2},
    "Towel": {"TowelHolder": 100},
    "Watch": {"CoffeeTable": 25, "Drawer": 22, "SideTable": 18, "Dresser": 11, "DiningTable": 10, "TVStand": 10,
              "Shelf": 8, "Desk": 12, "Safe": 2},
    "WateringCan": {"CoffeeTable": 45, "Shelf": 35, "SideTable": 15, "Dresser": 5},
}  # fmt: skip
"""Object type -> type of place -> how often it lies there (any scale)."""

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
    "pick_and_place_simple": ("put some {object} on {target}.", "put a {object} in {target}."),
    "look_at_obj_in_light": ("look at {object} under the {target}.", "examine the {object} with the {target}."),
    "pick_clean_then_place_in_recep": (
        "put a clean {object} in {target}.", "clean some {object} and put it in {target}.",
    ),
    "pick_heat_then_place_in_recep": ("put a hot {object} in {target}.", "heat some {object} and put it in {target}."),
    "pick_cool_then_place_in_recep": ("put a cool {object} in {target}.", "cool some {object} and put it in {target}."),
    "pick_two_obj_and_place": ("put two {object} in {target}.", "find two {object} and put them in {target}."),
}  # fmt: skip
"""The two sentences in which ALFWorld states a goal of each type."""
