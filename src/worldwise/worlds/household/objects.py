"""Household objects: what can be done with them, where they fit, and where they usually lie.

Our own tables. The type names are ALFRED's (Shridhar et al. 2020, MIT licence), so that what is
learnt on generated games is said in the official vocabulary. The numbers are round guesses at
ordinary homes, not taken from any scene.
"""

from __future__ import annotations

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
VESSELS = frozenset((*DISHES, "Box", "Pan", "Pot"))
"""Objects that could hold others; examined in hand they show their (empty) inside."""
FIXED = frozenset(("DeskLamp", "FloorLamp", "HousePlant", "Television"))
"""Objects that cannot be picked up."""

_TABLEWARE = (*FOOD, *DISHES, *COOKWARE, *CUTLERY, *SHAKERS, *BOTTLES)
_DESK = ("AlarmClock", "Book", "Box", "CD", *POCKET, "Laptop", *PENS, "RemoteControl", "TissueBox", "Watch")
_SEAT = ("Book", "Box", *POCKET, "Laptop", "Newspaper", "Pillow", "RemoteControl")
_TOILETRIES = ("Candle", "Cloth", "DishSponge", "HandTowel", "SoapBar", *SPRAYS, "TissueBox", "ToiletPaper")

_FITS: dict[str, tuple[str, ...]] = {
    "ArmChair": (*_SEAT, "Cloth"),
    "BathtubBasin": (*WASHING, "HandTowel"),
    "Bed": ("Book", "CellPhone", "Laptop", "Pillow", *SPORTS),
    "Cabinet": (
        *(*DISHES, *COOKWARE, *SHAKERS, *BOTTLES, *WASHING, *SPRAYS, "Book", "Box", "CD", "Candle"),
        *("HandTowel", "Ladle", "Newspaper", "TissueBox", "ToiletPaper", "Vase", "WateringCan"),
    ),
    "Cart": _TOILETRIES,
    "CoffeeMachine": ("Mug",),
    "CoffeeTable": (
        *(*DECOR, *POCKET, *PENS, "Book", "Bowl", "Box", "Candle", "Laptop", "Newspaper", "Plate"),
        *("RemoteControl", "TissueBox", "Watch", "WateringCan"),
    ),
    "CounterTop": (
        *(*_TABLEWARE, *_TOILETRIES, *DECOR, *PENS, *POCKET, "AlarmClock", "Book", "CD", "Ladle"),
        *("Laptop", "RemoteControl"),
    ),
    "Desk": (*_DESK, *DECOR, "BasketBall", "Bowl", "Cloth", "Mug", "TennisRacket", "WateringCan"),
    "DiningTable": (
        *(*_TABLEWARE, *_DESK, *SPORTS, *DECOR, *SPRAYS, "Candle", "Cloth", "DishSponge", "Ladle"),
        *("Newspaper", "WateringCan"),
    ),
    "Drawer": (
        *(*CUTLERY, *SHAKERS, *WASHING, *SPRAYS, *PENS, *POCKET, "Book", "CD", "Candle", "HandTowel"),
        *("Ladle", "Newspaper", "RemoteControl", "TissueBox", "ToiletPaper", "Watch"),
    ),
    "Dresser": (
        *(*_DESK, *DECOR, "BasketBall", "Bowl", "Candle", "Cloth", "Mug", "Newspaper", "Plate"),
        *("SprayBottle", "TennisRacket", "ToiletPaper", "WateringCan"),
    ),
    "Fridge": (*FOOD, *DISHES, *BOTTLES, "Pan", "Pot"),
    "GarbageCan": (
        *(*FOOD, *WASHING, *SPRAYS, *PENS, "CD", "HandTowel", "Newspaper", "TissueBox", "ToiletPaper"),
        "WineBottle",
    ),
    "HandTowelHolder": ("HandTowel",),
    "LaundryHamper": ("Cloth",),
    "Microwave": (*DISHES, "Apple", "Bread", "Egg", "Glassbottle", "Potato", "Tomato"),
    "Ottoman": _SEAT,
    "Safe": (*POCKET, *DECOR, "CD", "Watch"),
    "Shelf": (
        *(*DISHES, *SHAKERS, *BOTTLES, *_TOILETRIES, *DECOR, *POCKET, *PENS, "AlarmClock", "Book"),
        *("Box", "CD", "Kettle", "Newspaper", "Pot", "RemoteControl", "Watch", "WateringCan"),
    ),
    "SideTable": (*_TABLEWARE, *_DESK, *_TOILETRIES, *DECOR, *SPORTS, "Newspaper", "WateringCan"),
    "SinkBasin": (*DISHES, *COOKWARE, *CUTLERY, *WASHING, *FOOD, "Glassbottle", "HandTowel", "Ladle"),
    "Sofa": _SEAT,
    "StoveBurner": COOKWARE,
    "TVStand": ("TissueBox",),
    "Toaster": (),
    "Toilet": _TOILETRIES,
    "ToiletPaperHanger": ("ToiletPaper",),
    "TowelHolder": ("Towel",),
}
FITS: dict[str, frozenset[str]] = {place: frozenset(objects) for place, objects in _FITS.items()}
"""Object types that can be put into a place of each type."""

CAN_CONTAIN: frozenset[tuple[str, str]] = frozenset(
    (place, thing) for place, things in FITS.items() for thing in things
)
"""`FITS` as the (receptacle type, object type) pairs of `Game.can_contain`."""

_USUAL: dict[str, str] = {
    "AlarmClock": "Desk 34 Shelf 22 SideTable 19 Dresser 17 DiningTable 6 CounterTop 2",
    "Apple Egg Potato Tomato": (
        "CounterTop 30 Fridge 27 DiningTable 16 GarbageCan 8 SinkBasin 8 Microwave 7 SideTable 4"
    ),
    "BaseballBat BasketBall TennisRacket": "Bed 35 Desk 25 Dresser 20 SideTable 10 DiningTable 10",
    "Book": (
        "Bed 45 Desk 18 Drawer 11 Dresser 6 SideTable 6 CoffeeTable 26 Sofa 16 ArmChair 8 DiningTable 8 "
        "CounterTop 20 Shelf 4 Cabinet 4"
    ),
    "Bowl": (
        "Cabinet 30 CounterTop 24 Fridge 15 DiningTable 13 SinkBasin 6 Microwave 4 Shelf 6 SideTable 2 "
        "Desk 40 CoffeeTable 26 TVStand 15 Dresser 13"
    ),
    "Box": ("DiningTable 22 Sofa 21 CoffeeTable 20 SideTable 8 Desk 12 Shelf 6 Cabinet 5 Dresser 5 ArmChair 4"),
    "Bread": "CounterTop 54 DiningTable 28 Fridge 14 SideTable 4",
    "ButterKnife Fork Knife Spatula Spoon": ("CounterTop 42 DiningTable 22 Drawer 22 SinkBasin 9 SideTable 5"),
    "CD": "Drawer 28 Desk 21 Dresser 13 SideTable 12 GarbageCan 7 Shelf 8 DiningTable 5 Cabinet 2 Safe 3",
    "Candle": (
        "CounterTop 28 Toilet 27 Cabinet 13 Drawer 12 Shelf 7 SideTable 20 CoffeeTable 25 DiningTable 18 "
        "Cart 3 TVStand 6 Dresser 3"
    ),
    "CellPhone": (
        "Drawer 24 Desk 16 SideTable 14 Shelf 12 Dresser 12 CoffeeTable 12 Sofa 10 ArmChair 7 "
        "DiningTable 6 TVStand 5 CounterTop 10 Safe 4 Ottoman 3 Bed 28 Cabinet 1"
    ),
    "Cloth": (
        "BathtubBasin 28 Cabinet 20 CounterTop 17 Drawer 15 SinkBasin 8 Shelf 5 Toilet 4 "
        "LaundryHamper 10 Dresser 5 Desk 5 Cart 2"
    ),
    "CreditCard KeyChain": (
        "Drawer 24 Desk 16 SideTable 14 Shelf 12 Dresser 12 CoffeeTable 12 Sofa 10 ArmChair 7 "
        "DiningTable 6 TVStand 5 CounterTop 10 Safe 4 Ottoman 3 Bed 2 Cabinet 1"
    ),
    "Cup": ("Cabinet 30 CounterTop 24 Fridge 15 DiningTable 13 SinkBasin 6 Microwave 4 Shelf 6 SideTable 2"),
    "DeskLamp": "Desk 38 SideTable 34 Dresser 22 Shelf 8 CoffeeTable 6",
    "DishSponge": (
        "CounterTop 24 Cabinet 20 Drawer 20 DiningTable 12 SinkBasin 8 GarbageCan 4 BathtubBasin 8 Toilet 4 Shelf 4"
    ),
    "Glassbottle WineBottle": "Cabinet 28 CounterTop 33 DiningTable 18 GarbageCan 6 Fridge 6 Shelf 9",
    "HandTowel": "HandTowelHolder 90 CounterTop 5 Shelf 3 Cabinet 2",
    "HousePlant": (
        "CounterTop 40 SideTable 28 Shelf 20 CoffeeTable 14 DiningTable 12 Desk 18 Dresser 8 TVStand 3 Cart 1"
    ),
    "Kettle": "StoveBurner 42 CounterTop 26 Cabinet 24 DiningTable 6 SinkBasin 2",
    "Ladle": "CounterTop 40 Cabinet 24 Drawer 18 DiningTable 14 SinkBasin 4",
    "Laptop": (
        "Bed 60 Desk 22 Sofa 27 CoffeeTable 24 DiningTable 16 Dresser 6 SideTable 6 ArmChair 5 TVStand 4 "
        "Ottoman 2 CounterTop 2"
    ),
    "Lettuce": "CounterTop 42 DiningTable 27 Fridge 24 SinkBasin 5 SideTable 2",
    "Mug": (
        "Cabinet 30 CounterTop 24 Fridge 15 DiningTable 13 SinkBasin 6 Microwave 4 Shelf 6 SideTable 12 "
        "CoffeeMachine 18 Desk 38 Dresser 14"
    ),
    "Newspaper": (
        "Sofa 20 CoffeeTable 18 DiningTable 16 SideTable 15 Shelf 10 Dresser 9 ArmChair 7 TVStand 3 Drawer 2"
    ),
    "Pan": "StoveBurner 52 CounterTop 32 Cabinet 8 Fridge 4 DiningTable 4",
    "Pen Pencil": (
        "Desk 26 Drawer 18 SideTable 16 Shelf 16 Dresser 13 CoffeeTable 20 DiningTable 6 CounterTop 10 "
        "TVStand 5 GarbageCan 4"
    ),
    "PepperShaker SaltShaker": "Cabinet 32 CounterTop 31 DiningTable 16 Drawer 15 Shelf 4 SideTable 2",
    "Pillow": "Bed 90 Sofa 70 ArmChair 20 Ottoman 2",
    "Plate": (
        "Cabinet 30 CounterTop 24 Fridge 15 DiningTable 13 SinkBasin 6 Microwave 4 Shelf 6 SideTable 2 "
        "CoffeeTable 22 Dresser 3"
    ),
    "Pot": "StoveBurner 70 CounterTop 15 Fridge 5 DiningTable 5 Cabinet 5",
    "RemoteControl": (
        "CoffeeTable 22 Sofa 18 SideTable 13 DiningTable 10 Dresser 9 ArmChair 8 TVStand 8 Drawer 9 "
        "Desk 20 Shelf 3 Ottoman 2 CounterTop 5"
    ),
    "SoapBar": (
        "CounterTop 20 Toilet 16 SinkBasin 15 Cabinet 13 BathtubBasin 12 Drawer 11 GarbageCan 6 Shelf 5 Cart 2"
    ),
    "SoapBottle SprayBottle": (
        "CounterTop 30 Toilet 24 Cabinet 20 GarbageCan 9 Shelf 8 DiningTable 12 SideTable 3 Cart 4 Drawer 3"
    ),
    "Statue Vase": (
        "Shelf 30 CoffeeTable 22 DiningTable 14 SideTable 14 Dresser 12 CounterTop 10 TVStand 7 Desk 8 Cabinet 3 Safe 1"
    ),
    "Television": "TVStand 50 Dresser 40 CoffeeTable 6 SideTable 4",
    "TissueBox": (
        "CoffeeTable 30 SideTable 18 CounterTop 25 Shelf 15 DiningTable 15 Desk 25 Drawer 14 TVStand 6 "
        "Dresser 3 Toilet 2 Cart 3 Cabinet 3 GarbageCan 2"
    ),
    "ToiletPaper": ("Toilet 24 CounterTop 22 Cabinet 13 ToiletPaperHanger 12 Drawer 11 GarbageCan 9 Shelf 7 Dresser 2"),
    "Towel": "TowelHolder 100",
    "Watch": ("CoffeeTable 25 Drawer 22 SideTable 18 Dresser 11 DiningTable 10 TVStand 10 Shelf 8 Desk 12 Safe 2"),
    "WateringCan": "CoffeeTable 45 Shelf 35 SideTable 15 Dresser 5",
}
"""Object types -> type of place and how often they lie there, in pairs."""


def _read_weights(text: str) -> dict[str, float]:
    words = text.split()
    return {kind: float(weight) for kind, weight in zip(words[::2], words[1::2], strict=True)}


PLACES: dict[str, dict[str, float]] = {
    kind: _read_weights(weights) for kinds, weights in _USUAL.items() for kind in kinds.split()
}
"""Object type -> type of place -> how often it lies there (any scale).

Read twice: by the generator as the chance that an object lies in a place of that type, and by the
searching oracle as the order in which to look.
"""
