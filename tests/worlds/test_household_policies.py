"""The policies of the household world: what they read, and how they play."""

from __future__ import annotations

from collections import Counter

import pytest

from worldwise.worlds.contract import Info, ScriptedPolicy, Task, World, WorldError
from worldwise.worlds.household.config import SIZES
from worldwise.worlds.household.family import HouseholdFamily
from worldwise.worlds.household.game import TASK_TYPES
from worldwise.worlds.household.objects import FITS
from worldwise.worlds.household.policies import (
    Memory,
    RandomPolicy,
    ReadGoal,
    SearchingOracle,
    kind_of,
    read_goal,
    search_order,
)

from .household_games import CONFIGS, games, play

FITTING = {place.lower(): {thing.lower() for thing in things} for place, things in FITS.items()}


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
