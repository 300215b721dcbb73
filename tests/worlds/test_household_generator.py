"""Generated household games, the policies that play them, and their family."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from itertools import groupby

import pytest
from pydantic import ValidationError

from worldwise.worlds.checker import check_world
from worldwise.worlds.contract import Info, ScriptedPolicy, Task, World, WorldError, WorldFamily
from worldwise.worlds.household import layouts
from worldwise.worlds.household.config import SIZES, HouseholdConfig
from worldwise.worlds.household.family import TRANSITION_KINDS, HouseholdFamily
from worldwise.worlds.household.game import TASK_TYPES, Game
from worldwise.worlds.household.generator import SPLITS, content_key, generate_game, task_type_of
from worldwise.worlds.household.layouts import inventory, is_unseen
from worldwise.worlds.household.objects import CAN_CONTAIN, FITS, FIXED, PLACES
from worldwise.worlds.household.official import OfficialGames
from worldwise.worlds.household.policies import (
    Memory,
    RandomPolicy,
    ReadGoal,
    SearchingOracle,
    kind_of,
    read_goal,
    search_order,
)
from worldwise.worlds.household.rooms import GOAL_FORMS, ROOMS, SAME_SPOT, TASK_ROOMS
from worldwise.worlds.registry import WorldConfig, make_family

FITTING = {place.lower(): {thing.lower() for thing in things} for place, things in FITS.items()}
CONFIGS = {
    name: HouseholdConfig.model_validate({**values, "valid_seen_games": 2000, "valid_unseen_games": 2000})
    for name, values in SIZES.items()
}


@lru_cache(maxsize=32)
def games(size: str, split: str, count: int) -> tuple[Game, ...]:
    return tuple(generate_game(CONFIGS[size], split, index) for index in range(count))


def play(world: World, policy: ScriptedPolicy, task: Task, shows_admissible: bool = True) -> tuple[bool, list[str]]:
    observation, info = world.reset(task, 0)
    actions: list[str] = []
    while True:
        actions.append(policy.act(world, observation, info if shows_admissible else info._replace(admissible=None)))
        step = world.step(actions[-1])
        observation, info = step.observation, step.info
        if step.terminated or step.truncated:
            return info.success, actions


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


# What policies read.


@pytest.mark.parametrize(
    ("sentence", "goal"),
    [
        ("put some mug on desk.", ReadGoal("mug", "desk")),
        ("put a mug in desk.", ReadGoal("mug", "desk")),
        ("look at cd under the desklamp.", ReadGoal("cd", "desklamp", look=True)),
        ("examine the cd with the desklamp.", ReadGoal("cd", "desklamp", look=True)),
        ("put a clean mug in coffeemachine.", ReadGoal("mug", "coffeemachine", verb="clean")),
        ("clean some cloth and put it in toilet.", ReadGoal("cloth", "toilet", verb="clean")),
        ("put a hot egg in fridge.", ReadGoal("egg", "fridge", verb="heat")),
        ("heat some egg and put it in fridge.", ReadGoal("egg", "fridge", verb="heat")),
        ("put a cool pan in stoveburner.", ReadGoal("pan", "stoveburner", verb="cool")),
        ("cool some pan and put it in stoveburner.", ReadGoal("pan", "stoveburner", verb="cool")),
        ("put two cd in safe.", ReadGoal("cd", "safe", number=2)),
        ("find two cd and put them in safe.", ReadGoal("cd", "safe", number=2)),
    ],
)
def test_goal_sentences_are_understood(sentence: str, goal: ReadGoal) -> None:
    assert read_goal(f"-= Welcome ... you see a desk 1.\n\nYour task is to: {sentence}") == goal


@pytest.mark.parametrize("size", SIZES)
def test_generated_goals_say_what_is_asked(size: str) -> None:
    verbs = {"clean": TASK_TYPES[2], "heat": TASK_TYPES[3], "cool": TASK_TYPES[4]}
    for game in games(size, "train", 200):
        read = read_goal(f"Your task is to: {game.goal.text}")
        assert read.object_type == game.goal.object_type.lower()
        assert read.target_type == game.goal.target_type.lower()
        kind = verbs.get(read.verb, TASK_TYPES[1] if read.look else TASK_TYPES[5 if read.number == 2 else 0])
        assert kind == game.goal.task_type


def test_a_text_without_a_goal_is_refused() -> None:
    with pytest.raises(WorldError, match="no goal of a known form"):
        read_goal("Your task is to: dance with the fridge.")


def test_likely_places_come_first_and_crowds_share_their_chance() -> None:
    # A pan lies on stoveburners (52) or countertops (32); 4 burners have 13 each, 1 countertop 32;
    # a cabinet 8 over its door's 2 commands; the drawer cannot hold a pan at all.
    places = ["cabinet 1", "countertop 1", "drawer 1", *(f"stoveburner {n}" for n in (4, 3, 2, 1))]
    assert search_order("pan", places) == [
        "countertop 1", "stoveburner 1", "stoveburner 2", "stoveburner 3", "stoveburner 4", "cabinet 1", "drawer 1",
    ]  # fmt: skip


def test_the_memory_follows_the_texts() -> None:
    memory = Memory.from_first(
        "-= Welcome to TextWorld, ALFRED! =-\n\nYou are in the middle of a room. Looking quickly around you, "
        "you see a desk 1, a drawer 2, and a drawer 1.\n\nYour task is to: heat some mug and put it in desk."
    )
    assert memory.places == ["desk 1", "drawer 2", "drawer 1"]
    memory.after("go to drawer 2", "You arrive at drawer 2. The drawer 2 is closed.")
    assert memory.here == "drawer 2"
    assert memory.closed == {"drawer 2"}
    assert memory.seen == set()
    memory.after("open drawer 2", "You open the drawer 2. The drawer 2 is open. In it, you see a mug 2, and a pen 1.")
    assert memory.closed == set()
    assert memory.seen == {"drawer 2"}
    assert memory.known == {"mug 2": "drawer 2", "pen 1": "drawer 2"}
    memory.after("take mug 2 from drawer 2", "You pick up the mug 2 from the drawer 2.")
    assert (memory.held, memory.source, memory.known) == ("mug 2", "drawer 2", {"pen 1": "drawer 2"})
    memory.after("cool mug 2 with fridge 1", "You cool the mug 2 using the fridge 1.")
    memory.after("heat mug 2 with microwave 1", "You heat the mug 2 using the microwave 1.")
    assert memory.states == {("mug 2", "heat")}
    memory.after("move mug 2 to desk 1", "You move the mug 2 to the desk 1.")
    assert (memory.held, memory.known) == ("", {"pen 1": "drawer 2", "mug 2": "desk 1"})
    memory.after("close drawer 2", "You close the drawer 2.")
    assert memory.closed == {"drawer 2"}
    memory.after("go to desk 1", "You arrive at desk 1. On the desk 1, you see nothing.")
    assert memory.known == {"pen 1": "drawer 2"}
    memory.after("go to desk 1", "Nothing happens.")
    assert memory.refused == {"go to desk 1"}


# How policies play.


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("split", ["train", "valid_unseen"])
def test_the_oracle_solves_what_can_be_solved(size: str, split: str) -> None:
    family = HouseholdFamily(CONFIGS[size])
    world, oracle = family.new(), SearchingOracle()
    results = [play(world, oracle, task) for task in family.tasks(split, 300)]
    assert sum(won for won, _ in results) >= 297


def test_the_oracle_recovers_from_its_own_noise() -> None:
    family = HouseholdFamily(CONFIGS["default"])
    world, oracle = family.new(), SearchingOracle(noise=0.4, seed=3)
    results = [play(world, oracle, task) for task in family.tasks("train", 200)]
    assert sum(won for won, _ in results) >= 194
    quiet = [play(world, SearchingOracle(), task) for task in family.tasks("train", 200)]
    assert sum(len(actions) for _, actions in results) > 1.3 * sum(len(actions) for _, actions in quiet)


def test_the_oracle_needs_no_list_of_actions() -> None:
    family = HouseholdFamily(CONFIGS["full"])
    world, oracle = family.new(), SearchingOracle()
    results = [play(world, oracle, task, shows_admissible=False) for task in family.tasks("train", 150)]
    assert sum(won for won, _ in results) >= 148


def test_the_oracle_never_looks_into_the_game() -> None:
    class Blind(World):
        def reset(self, task: Task, seed: int) -> tuple[str, Info]:
            raise AssertionError("the oracle played the world itself")

        def step(self, action: str) -> None:  # type: ignore[override]
            raise AssertionError("the oracle played the world itself")

        def copy(self) -> World:
            raise AssertionError("the oracle copied the world")

    class Blindfolded:
        def __init__(self) -> None:
            self.oracle = SearchingOracle()

        def act(self, world: World, observation: str, info: Info) -> str:
            return self.oracle.act(Blind(), observation, Info(False, 0.0, True, info.admissible))

    family = HouseholdFamily(CONFIGS["default"])
    world = family.new()
    assert all(play(world, Blindfolded(), task)[0] for task in family.tasks("train", 30))


def test_the_oracle_turns_to_another_goal_with_what_it_saw() -> None:
    family = HouseholdFamily(CONFIGS["default"])
    world, errands = family.new(), 0
    for task in family.tasks("train", 40):
        oracle = SearchingOracle()
        observation, info = world.reset(task, 0)
        kind = ""
        for number in range(8):
            action = oracle.act(world, observation, info)
            if number == 4:
                portable = [name for name in oracle.known() if kind_of(name) in FITTING["shelf"]]
                places = [line for line in info.admissible or () if line.startswith("go to shelf ")]
                if not portable or not places or any(line.startswith("move ") for line in info.admissible or ()):
                    break
                kind = kind_of(portable[0])
                oracle.turn_to(ReadGoal(kind, "shelf"))
            elif kind and action.startswith("take "):
                assert kind_of(action.removeprefix("take ").partition(" from ")[0]) == kind
                errands += 1
                break
            step = world.step(action)
            observation, info = step.observation, step.info
            if step.terminated:
                break
        else:
            pytest.fail(f"{task.task_id}: a thing that was seen was not fetched in three commands")
    assert errands >= 3
    with pytest.raises(WorldError, match="from its first observation on"):
        SearchingOracle().turn_to(ReadGoal("mug", "desk"))
    assert SearchingOracle().known() == {}


def test_policies_repeat_with_their_seed() -> None:
    family = HouseholdFamily(CONFIGS["default"])
    world, tasks = family.new(), family.tasks("train", 3)

    def played(policy: ScriptedPolicy) -> list[list[str]]:
        return [play(world, policy, task)[1] for task in tasks]

    assert played(family.random_policy(5)) == played(family.random_policy(5))
    assert played(family.random_policy(5)) != played(family.random_policy(6))
    assert played(SearchingOracle(0.3, 1)) == played(SearchingOracle(0.3, 1))
    assert played(SearchingOracle(0.3, 1)) != played(SearchingOracle(0.3, 2))


def test_random_play_is_admissible_and_never_asks_for_help() -> None:
    commands = ["help", "look", "go to desk 1", "go to desk 2", "go to desk 3", "go to desk 4"]
    info = Info(False, 0.0, True, commands)
    world = HouseholdFamily(CONFIGS["tiny"]).new()

    def counts(policy: RandomPolicy) -> Counter[str]:
        return Counter(policy.act(world, "", info) for _ in range(2000))

    uniform, balanced = counts(RandomPolicy(0)), counts(RandomPolicy(0, by_verb=True))
    assert set(uniform) == set(balanced) == set(commands) - {"help"}
    assert 320 < uniform["look"] < 480  # 2000 / 5
    assert 900 < balanced["look"] < 1100  # 2000 / 2


def test_random_play_needs_a_list() -> None:
    world = HouseholdFamily(CONFIGS["tiny"]).new()
    with pytest.raises(WorldError, match="list of admissible commands"):
        RandomPolicy(0).act(world, "", Info(False, 0.0, True, None))


def test_bad_policy_arguments_are_refused() -> None:
    with pytest.raises(WorldError, match=r"noise=1\.5"):
        SearchingOracle(noise=1.5)
    world = HouseholdFamily(CONFIGS["tiny"]).new()
    with pytest.raises(WorldError, match="from its first observation on"):
        SearchingOracle().act(world, "You arrive at desk 1.", Info(False, 0.0, True, ["look"]))


# The family.


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("split", SPLITS)
def test_the_world_keeps_the_contract(size: str, split: str) -> None:
    check_world(HouseholdFamily(CONFIGS[size]), split, episodes=6).raise_if_broken()


def test_tasks_are_counted_and_typed() -> None:
    family = HouseholdFamily(HouseholdConfig(valid_seen_games=12))
    tasks = family.tasks("valid_seen")
    assert len(tasks) == 12
    assert tasks[7].task_id == "generated/valid_seen/7"
    assert tasks[7].payload == {"index": 7}
    assert Counter(task.task_type for task in tasks) == dict.fromkeys(TASK_TYPES, 2)
    assert list(family.tasks("valid_seen", 5)) == list(tasks[:5])
    with pytest.raises(WorldError, match=r"count=13.*0\.\.12.*valid_seen_games"):
        family.tasks("valid_seen", 13)


def test_a_foreign_task_is_refused() -> None:
    with pytest.raises(WorldError, match="not a generated game"):
        HouseholdFamily(HouseholdConfig()).new().reset(Task("x", TASK_TYPES[0], "train"), 0)


@pytest.mark.parametrize(
    ("action", "observation", "kind"),
    [
        ("go to desk 1", "You arrive at desk 1. On the desk 1, you see a pen 1.", "arrive_open"),
        ("go to drawer 1", "You arrive at drawer 1. The drawer 1 is closed.", "arrive_closed"),
        ("open drawer 1", "You open the drawer 1. The drawer 1 is open. In it, you see nothing.", "open"),
        ("close drawer 1", "You close the drawer 1.", "close"),
        ("take pen 1 from desk 1", "You pick up the pen 1 from the desk 1.", "take"),
        ("move pen 1 to desk 1", "You move the pen 1 to the desk 1.", "move"),
        ("put pen 1 in/on desk 1", "You move the pen 1 to the desk 1.", "move"),
        ("heat egg 1 with microwave 1", "You heat the egg 1 using the microwave 1.", "change"),
        ("slice egg 1 with knife 1", "You sliced the egg 1 with the knife 1.", "change"),
        ("use desklamp 1", "You turn on the desklamp 1.", "use"),
        ("examine desk 1", "On the desk 1, you see nothing.", "examine"),
        ("look", "You are facing the desk 1. Next to it, you see nothing.", "look"),
        ("inventory", "You are not carrying anything.", "inventory"),
        ("go to moon", "Nothing happens.", "nothing_happens"),
        ("help", "\nAvailable commands:\n", "other"),
    ],
)
def test_transitions_have_their_kind(action: str, observation: str, kind: str) -> None:
    assert HouseholdFamily(HouseholdConfig()).transition_kind(action, observation) == kind
    assert kind in TRANSITION_KINDS


def test_the_task_text_is_cut_out() -> None:
    family = HouseholdFamily(HouseholdConfig())
    assert family.task_text("... you see a desk 1.\n\nYour task is to: put two cd in safe.") == "put two cd in safe."
    assert family.task_text("You arrive at desk 1.") == "You arrive at desk 1."


def test_a_family_can_be_sent_to_another_process() -> None:
    family: WorldFamily = HouseholdFamily(CONFIGS["tiny"])
    task = family.tasks("train", 1)[0]
    other = pickle.loads(pickle.dumps(family))
    assert other.new().reset(task, 0) == family.new().reset(task, 0)


def test_settings_reach_the_world() -> None:
    family = HouseholdFamily(HouseholdConfig(max_turns=1, success_reward=10.0))
    world = family.new()
    world.reset(family.tasks("train", 1)[0], 0)
    assert world.step("look").truncated
    assert (family.max_turns, family.max_return) == (1, 10.0)


def test_worlds_are_made_by_name() -> None:
    config = WorldConfig.model_validate({"name": "household", "household": {"max_turns": 7}})
    assert make_family(config.name, config).max_turns == 7
    with pytest.raises(WorldError, match=r"world\.name='chess'.*household"):
        make_family("chess", config)


# The official games.


@pytest.fixture(scope="module")
def official() -> HouseholdFamily:
    if OfficialGames.found() is None:
        pytest.skip("the official ALFWorld games are not there: set WORLDWISE_DATA to the folder that has alfworld/")
    return HouseholdFamily(HouseholdConfig(source="official"))


def success(family: WorldFamily, tasks: Sequence[Task]) -> float:
    world, oracle = family.new(), SearchingOracle()
    return sum(play(world, oracle, task)[0] for task in tasks) / len(tasks)


@pytest.mark.parametrize(("split", "number"), [("valid_seen", 140), ("valid_unseen", 134)])
def test_the_oracle_solves_the_official_games(official: HouseholdFamily, split: str, number: int) -> None:
    tasks = official.tasks(split)
    assert len(tasks) == number
    assert success(official, tasks) >= 0.99


def test_official_games_keep_the_contract(official: HouseholdFamily) -> None:
    check_world(official, "valid_unseen").raise_if_broken()


def test_official_tasks_are_mixed_filtered_and_counted(official: HouseholdFamily) -> None:
    first = official.tasks("valid_unseen", 40)
    assert {task.task_type for task in first} == set(TASK_TYPES)
    assert list(first) == list(official.tasks("valid_unseen"))[:40]
    looking = HouseholdFamily(HouseholdConfig(source="official", task_types=("look_at_obj_in_light",)))
    assert len(looking.tasks("valid_unseen")) == 18
    with pytest.raises(WorldError, match=r"count=19.*0\.\.18"):
        looking.tasks("valid_unseen", 19)
    with pytest.raises(WorldError, match="split 'test'"):
        official.tasks("test")
