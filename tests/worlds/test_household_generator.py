"""Generated household games: tables, splits, sizes, and that every one can be won."""

from __future__ import annotations

from collections import Counter
from itertools import groupby

import pytest
from pydantic import ValidationError

from worldwise.worlds.contract import WorldError
from worldwise.worlds.household import layouts
from worldwise.worlds.household.config import SIZES, HouseholdConfig
from worldwise.worlds.household.family import HouseholdFamily
from worldwise.worlds.household.game import TASK_TYPES, Game
from worldwise.worlds.household.generator import SPLITS, content_key, generate_game, task_type_of
from worldwise.worlds.household.layouts import inventory, is_unseen
from worldwise.worlds.household.objects import CAN_CONTAIN, FITS, FIXED, PLACES
from worldwise.worlds.household.rooms import GOAL_FORMS, ROOMS, SAME_SPOT, TASK_ROOMS

from .household_games import CONFIGS, games

# Tables.


def test_tables_use_known_names() -> None:
    for room in ROOMS.values():
        types = {rule.type for rule in room.places} | {kind for group in room.core for kind in group}
        assert types <= set(FITS)
        assert set(room.objects) <= set(PLACES)
    for places in PLACES.values():
        assert set(places) <= set(FITS)
        assert min(places.values()) > 0
    assert {thing for things in FITS.values() for thing in things} <= set(PLACES)
    assert set(SAME_SPOT) <= set(FITS)
    assert set(TASK_ROOMS) == set(GOAL_FORMS) == set(TASK_TYPES)


def test_every_object_of_a_room_can_be_put_somewhere_in_it() -> None:
    for room in ROOMS.values():
        types = {rule.type for rule in room.places} | {kind for group in room.core for kind in group}
        for thing in set(room.objects) - FIXED:
            assert any(thing in FITS[place] for place in types)


# The generator.


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("size", SIZES)
def test_walkthroughs_win_and_not_before_their_end(size: str, split: str) -> None:
    family = HouseholdFamily(CONFIGS[size])
    world = family.new()
    for task in family.tasks(split, 300):
        _, info = world.reset(task, 0)
        assert not info.success
        walkthrough = world.game.walkthrough
        assert walkthrough is not None
        for left, command in zip(range(len(walkthrough), 0, -1), walkthrough, strict=True):
            step = world.step(command)
            assert step.info.accepted, (task.task_id, command)
            assert step.info.success == (left == 1), (task.task_id, walkthrough)


def test_thousands_of_default_games_are_won_by_their_walkthrough() -> None:
    family = HouseholdFamily(CONFIGS["default"])
    world = family.new()
    won = 0
    for task in family.tasks("train", 2000):
        world.reset(task, 0)
        for command in world.game.walkthrough or ():
            won += world.step(command).info.success
    assert won == 2000


def test_a_game_depends_on_config_split_and_index_alone() -> None:
    config = CONFIGS["default"]
    forward = [generate_game(config, "train", index) for index in range(20)]
    backward = [generate_game(config.model_copy(), "train", index) for index in reversed(range(20))]
    assert forward == backward[::-1]
    assert forward[0] != generate_game(HouseholdConfig(seed=1), "train", 0)


@pytest.mark.parametrize("size", ["tiny", "default"])
def test_no_two_splits_share_a_game(size: str) -> None:
    keys = {split: {content_key(game) for game in games(size, split, 2000)} for split in SPLITS}
    assert not keys["train"] & keys["valid_seen"]
    assert not keys["train"] & keys["valid_unseen"]
    assert not keys["valid_seen"] & keys["valid_unseen"]
    if size != "tiny":
        assert all(len(found) > 1990 for found in keys.values())


@pytest.mark.parametrize("size", SIZES)
def test_rooms_of_valid_unseen_occur_nowhere_else(size: str) -> None:
    rooms = {split: {inventory(game.receptacles) for game in games(size, split, 500)} for split in SPLITS}
    assert not rooms["valid_unseen"] & (rooms["train"] | rooms["valid_seen"])
    assert all(is_unseen(game.receptacles) for game in games(size, "valid_unseen", 50))


def test_valid_seen_plays_in_the_rooms_of_train() -> None:
    config = HouseholdConfig(layouts=3, unseen_layouts=2)
    rooms = {split: {generate_game(config, split, index).receptacles for index in range(300)} for split in SPLITS}
    assert rooms["train"] == rooms["valid_seen"]
    assert len(rooms["train"]) == 3 * 4
    assert len(rooms["valid_unseen"]) == 2 * 4


def test_distractors_alone_do_not_make_a_game_of_valid_seen() -> None:
    def core(game: Game) -> tuple[object, ...]:
        wanted = {game.goal.object_type, "DeskLamp"} if game.goal.target_type == "DeskLamp" else {game.goal.object_type}
        lying = tuple((thing.name, thing.inside) for thing in game.things if thing.type in wanted)
        return game.goal.task_type, game.goal.target_type, tuple(p.name for p in game.receptacles), lying

    seen = {core(game) for game in games("tiny", "train", 3000)}
    assert not seen & {core(game) for game in games("tiny", "valid_seen", 1000)}


def test_task_types_come_in_equal_shares_and_mixed_order() -> None:
    config = CONFIGS["default"]
    rounds = [[task_type_of(config, "train", 6 * cycle + i) for i in range(6)] for cycle in range(20)]
    assert all(sorted(types) == sorted(TASK_TYPES) for types in rounds)
    assert len({tuple(types) for types in rounds}) > 10
    for index, game in enumerate(games("default", "train", 60)):
        assert game.goal.task_type == task_type_of(config, "train", index)


@pytest.mark.parametrize("size", SIZES)
def test_sizes_keep_their_limits(size: str) -> None:
    config = CONFIGS[size]
    for game in games(size, "train", 300):
        counts = Counter(place.type for place in game.receptacles)
        assert len(game.receptacles) <= config.receptacles_max
        assert max(counts.values()) <= max(config.same_type_max, 1)
        copies = Counter(thing.type for thing in game.things)
        assert max(copies.values()) <= max(2, config.copies_max)
        others = len(game.things) - copies[game.goal.object_type]
        assert others <= config.distractors_max + (game.goal.target_type == "DeskLamp")
        assert others <= round(1.5 * len(game.receptacles)) + (game.goal.target_type == "DeskLamp")


def test_small_rooms_have_the_asked_number_of_places() -> None:
    config = HouseholdConfig(receptacles_min=7, receptacles_max=7, rooms=("kitchen",), task_types=(TASK_TYPES[0],))
    assert {len(generate_game(config, "train", index).receptacles) for index in range(50)} == {7}


def test_full_rooms_have_realistic_sizes() -> None:
    by_room: dict[str, list[int]] = {"kitchen": [], "bathroom": [], "bedroom": []}
    marks = {"Fridge": "kitchen", "Toilet": "bathroom", "Bed": "bedroom"}
    for game in games("full", "train", 500):
        types = {place.type for place in game.receptacles}
        for mark, room in marks.items():
            if mark in types:
                by_room[room].append(len(game.receptacles))
    assert min(by_room["kitchen"]) >= 15
    assert max(by_room["kitchen"]) <= 30
    assert min(by_room["bathroom"]) >= 7
    assert max(by_room["bathroom"]) <= 14
    assert min(by_room["bedroom"]) >= 10
    assert max(by_room["bedroom"]) <= 20


@pytest.mark.parametrize("size", SIZES)
def test_names_are_listed_as_the_reference_lists_them(size: str) -> None:
    for game in games(size, "train", 100):
        for named in (game.receptacles, game.things):
            kinds = [kind for kind, _ in groupby(item.type.lower() for item in named)]
            assert kinds == sorted(set(kinds))
            for kind, group in groupby(named, key=lambda item: item.type.lower()):
                names = [item.name for item in group]
                assert names == [f"{kind} {number}" for number in range(len(names), 0, -1)]


@pytest.mark.parametrize("size", SIZES)
def test_games_are_consistent(size: str) -> None:
    for game in games(size, "train", 300):
        places = {place.name: place for place in game.receptacles}
        goal = game.goal
        assert game.start not in {place.location for place in game.receptacles}
        assert goal.task_type in TASK_TYPES
        for thing in game.things:
            assert len(thing.inside) == 1
            assert thing.location == places[thing.inside[0]].location
        if goal.task_type == "look_at_obj_in_light":
            assert goal.target_type in {thing.type for thing in game.things if thing.toggleable}
        else:
            assert (goal.target_type, goal.object_type) in CAN_CONTAIN
        if goal.task_type in ("pick_and_place_simple", "pick_two_obj_and_place"):
            wanted = [thing for thing in game.things if thing.type == goal.object_type]
            assert all(places[thing.inside[0]].type != goal.target_type for thing in wanted)
            assert len(wanted) >= (2 if goal.task_type == "pick_two_obj_and_place" else 1)


def test_places_share_spots_only_where_wanted() -> None:
    def shared(game: Game) -> int:
        return len(game.receptacles) - len({place.location for place in game.receptacles})

    assert sum(shared(game) for game in games("full", "train", 200)) > 100
    assert sum(shared(game) for game in games("tiny", "train", 200)) == 0


def test_the_first_observation_reads_as_the_reference() -> None:
    family = HouseholdFamily(CONFIGS["tiny"])
    task = family.tasks("train", 1)[0]
    text, _ = family.new().reset(task, 0)
    game = generate_game(CONFIGS["tiny"], "train", 0)
    names = [f"a {place.name}" for place in game.receptacles]
    assert text == (
        "-= Welcome to TextWorld, ALFRED! =-\n\n"
        "You are in the middle of a room. Looking quickly around you, you see "
        f"{', '.join(names[:-1])}, and {names[-1]}.\n\n"
        f"Your task is to: {game.goal.text}"
    )


def test_unknown_splits_and_far_indices_are_refused() -> None:
    config = HouseholdConfig(train_games=5)
    with pytest.raises(WorldError, match=r"split='test'.*train, valid_seen, valid_unseen"):
        generate_game(config, "test", 0)
    with pytest.raises(WorldError, match=r"index=5.*0\.\.4.*train_games"):
        generate_game(config, "train", 5)


def test_rooms_that_leave_no_layout_for_a_split_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layouts, "UNSEEN_ONE_IN", 1)  # every inventory is one of valid_unseen's
    config = HouseholdConfig(seed=987_654, receptacles_max=8)
    generate_game(config, "valid_unseen", 0)
    with pytest.raises(WorldError, match=r"receptacles_max=8.*left for train"):
        generate_game(config, "train", 0)


# Settings.


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"receptacles_min": 9, "receptacles_max": 8}, "receptacles_min=9 is above receptacles_max=8"),
        ({"distractors_min": 3, "distractors_max": 2}, "distractors_min=3 is above distractors_max=2"),
        ({"rooms": ("bathroom",)}, "look_at_obj_in_light, which needs one of bedroom, living_room"),
        ({"rooms": ("kitchen", "kitchen"), "task_types": (TASK_TYPES[0],)}, "names one twice"),
        ({"receptacles_min": 3}, "receptacles_min"),
        ({"rooms": ("garage",)}, "rooms"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_bad_settings_are_refused(values: dict[str, object], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        HouseholdConfig.model_validate(values)
