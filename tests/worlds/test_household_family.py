"""The household family: tasks, kinds of transitions, the contract; generated and official games."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Sequence

import pytest

from worldwise.worlds.checker import check_world
from worldwise.worlds.contract import Task, WorldError, WorldFamily
from worldwise.worlds.household.config import SIZES, HouseholdConfig
from worldwise.worlds.household.family import TRANSITION_KINDS, HouseholdFamily
from worldwise.worlds.household.game import TASK_TYPES
from worldwise.worlds.household.generator import SPLITS
from worldwise.worlds.household.official import OfficialGames
from worldwise.worlds.household.policies import (
    SearchingOracle,
)
from worldwise.worlds.registry import WorldConfig, make_family

from .household_games import CONFIGS, play

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
