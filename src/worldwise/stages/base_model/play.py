"""Self-generated play for the base model: random play, and noisy purposeful play with human-like slips.

A language model that was never trained on these games still brings something: it names valid-looking commands
and roughly follows a goal, while it skips steps, mixes up things and wanders. A model from scratch has none of it, so
that prior is stood in for by two kinds of episodes in generated *training* games:

* random valid play, and
* purposeful play: the searching oracle with random commands mixed in (`noise`), which often misreads its
  goal: it skips the cleaning, heating or cooling, brings one thing instead of two, carries a thing about
  instead of using the lamp, takes another thing or goes to another place. What follows a misread goal that was
  carried out is errands, things brought to places that nobody asked for, or now and then the goal read anew. So the
  late turns of long failures, where a policy spends most of its time, are in the data too: without them the model
  said there what it had said before, however often it was refused.

In both, some turns begin with a stale command, one that was possible earlier and is not now: the world answers
"Nothing happens." and play goes on. Refused commands carry no loss; they show what comes after an error. (Commands with
a wrong number in their place did harm: the model took the wrong names for things that are there.)

No episode is kept or dropped for its success.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from worldwise.config import FrozenConfig, derive_seed
from worldwise.worlds.contract import Info, Task
from worldwise.worlds.household.config import SIZES, HouseholdConfig
from worldwise.worlds.household.engine import HouseholdWorld
from worldwise.worlds.household.family import HouseholdFamily
from worldwise.worlds.household.objects import FITS
from worldwise.worlds.household.policies import RandomPolicy, ReadGoal, SearchingOracle, kind_of, read_goal

SizeName = Literal["tiny", "small", "default", "full"]
_GOAL_MARK = "Your task is to: "
_FIRST_INDEX = 1_000_000
"""Play uses training games from this index on, so that the training games of later stages are new."""


class PlayConfig(FrozenConfig):
    """How the play data is made.

    Attributes:
        episodes: number of episodes.
        seed: start of every random choice.
        purposeful_share: share of episodes of purposeful play; the rest is random play.
        noise_low, noise_high: an episode's share of random commands in purposeful play is drawn between them.
        skip_step: chance that purposeful play skips the step that makes its goal more than pick and place.
        wrong_object, wrong_target: chances that it takes another thing, goes to another place.
        random_turns: most turns of a random episode.
        purposeful_turns: most turns of a purposeful one; an episode's limit is drawn between half of it and all.
        second_reading: chance that the goal is read anew, instead of an errand, once a misread goal or an errand is
            done.
        stale_commands: chance of a stale command before a turn.
        sizes: room sizes to draw from, in equal shares when listed once each.
    """

    episodes: int = Field(32_000, ge=1)
    seed: int = Field(0, ge=0)
    purposeful_share: float = Field(0.9, ge=0.0, le=1.0)
    noise_low: float = Field(0.0, ge=0.0, le=1.0)
    noise_high: float = Field(0.12, ge=0.0, le=1.0)
    skip_step: float = Field(0.65, ge=0.0, le=1.0)
    wrong_object: float = Field(0.12, ge=0.0, le=1.0)
    wrong_target: float = Field(0.15, ge=0.0, le=1.0)
    random_turns: int = Field(10, ge=1)
    purposeful_turns: int = Field(50, ge=1)
    second_reading: float = Field(0.1, ge=0.0, le=1.0)
    stale_commands: float = Field(0.05, ge=0.0, lt=1.0)
    sizes: tuple[SizeName, ...] = ("small", "default", "default", "full")


@dataclass(frozen=True, slots=True)
class Transcript:
    """One played episode: observation 0, action 0, observation 1, ...; one more observation than actions.

    `refused` holds the indices of the actions that were played for their answer alone.
    """

    observations: tuple[str, ...]
    actions: tuple[str, ...]
    refused: frozenset[int]
    success: bool
    task_type: str
    purposeful: bool


class _SlippingPolicy:
    """Purposeful play towards a goal that may be misread, then errands and further readings."""

    def __init__(self, config: PlayConfig, rng: random.Random) -> None:
        self._config = config
        self._rng = rng
        self._oracle = SearchingOracle(rng.uniform(config.noise_low, config.noise_high), rng.getrandbits(40))
        self._true: ReadGoal | None = None
        self._goal: ReadGoal | None = None
        self._done = False

    def act(self, world: HouseholdWorld, observation: str, info: Info) -> str:
        if self._true is None:
            self._true = read_goal(observation)
            self._goal = self._reading(world, self._true)
            head, mark, _ = observation.partition(_GOAL_MARK)
            observation = observation if self._goal == self._true else head + mark + _sentence(self._goal)
        elif self._done:
            errand = None if self._rng.random() < self._config.second_reading else self._errand(world)
            self._goal = errand or self._reading(world, self._true)
            self._oracle.turn_to(self._goal)
        action = self._oracle.act(world, observation, info)
        assert self._goal is not None
        self._done = self._goal != self._true and action.startswith(f"move {self._goal.object_type} ")
        return action

    def _reading(self, world: HouseholdWorld, true: ReadGoal) -> ReadGoal:
        """The goal as it is understood this time."""
        rng, config = self._rng, self._config
        goal = true
        if (goal.verb or goal.number == 2 or goal.look) and rng.random() < config.skip_step:
            target = _some_place(world, goal.object_type, rng) if goal.look else goal.target_type
            goal = ReadGoal(goal.object_type, target)
        if not goal.look and rng.random() < config.wrong_target:
            goal = ReadGoal(goal.object_type, _some_place(world, goal.object_type, rng), goal.verb, goal.number)
        if not (goal.look or goal.verb or goal.number == 2) and rng.random() < config.wrong_object:
            goal = ReadGoal(_some_thing(world, goal.target_type, goal.object_type, rng), goal.target_type)
        return goal

    def _errand(self, world: HouseholdWorld) -> ReadGoal | None:
        """A thing that was seen, to bring to a kind of place where none of its kind was seen; None if there is none."""
        known = self._oracle.known()
        where = {(kind_of(name), kind_of(place)) for name, place in known.items()}
        movable = {thing.type.lower() for thing in world.game.things if thing.pickupable}
        errands = [
            (thing, place)
            for thing in sorted({thing for thing, _ in where} & movable)
            for place in _fitting_places(world, thing)
            if (thing, place) not in where
        ]
        return ReadGoal(*self._rng.choice(errands)) if errands else None


def _sentence(goal: ReadGoal) -> str:
    if goal.verb:
        return f"{goal.verb} some {goal.object_type} and put it in {goal.target_type}."
    if goal.number == 2:
        return f"put two {goal.object_type} in {goal.target_type}."
    return f"put some {goal.object_type} in {goal.target_type}."


def _fitting_places(world: HouseholdWorld, object_type: str) -> list[str]:
    """The receptacle types of the room that take the object; lower case, sorted."""
    fitting = {place for place, things in FITS.items() if object_type in {thing.lower() for thing in things}}
    return sorted({place.type.lower() for place in world.game.receptacles if place.type in fitting})


def _some_place(world: HouseholdWorld, object_type: str, rng: random.Random) -> str:
    """A receptacle type of the room that takes the object; lower case."""
    return rng.choice(
        _fitting_places(world, object_type) or sorted({place.type.lower() for place in world.game.receptacles})
    )


def _some_thing(world: HouseholdWorld, target_type: str, instead_of: str, rng: random.Random) -> str:
    """An object type of the room that the target takes; `instead_of` if there is no other; lower case."""
    fitting = {thing.lower() for place, things in FITS.items() if place.lower() == target_type for thing in things}
    kinds = sorted({thing.type.lower() for thing in world.game.things if thing.pickupable and thing.inside})
    return rng.choice([kind for kind in kinds if kind in fitting] or [instead_of])


def play_episodes(config: PlayConfig, first: int, count: int) -> Iterator[Transcript]:
    """Episodes `first` to `first + count`; each depends on its own number only."""
    games = {
        "train_games": _FIRST_INDEX + first + count,
        "max_turns": 1 + max(config.purposeful_turns, config.random_turns),
    }
    families = {
        size: HouseholdFamily(HouseholdConfig.model_validate({**SIZES[size], **games})) for size in set(config.sizes)
    }
    for number in range(first, first + count):
        rng = random.Random(derive_seed(config.seed, "base_play", number))
        family = families[rng.choice(config.sizes)]
        yield _play(config, family, _FIRST_INDEX + number, rng)


def _play(config: PlayConfig, family: HouseholdFamily, index: int, rng: random.Random) -> Transcript:
    world = family.new()
    observation, info = world.reset(Task(f"household/train/{index}", "", "train", {"index": index}), 0)
    purposeful = rng.random() < config.purposeful_share
    slipping = _SlippingPolicy(config, rng)
    policy: _SlippingPolicy | RandomPolicy = slipping if purposeful else RandomPolicy(rng.getrandbits(40), by_verb=True)
    most = config.purposeful_turns
    limit = rng.randint(-(-most // 2), most) if purposeful else config.random_turns
    observations = [observation]
    actions: list[str] = []
    refused: set[int] = set()
    offered: set[str] = set()
    while len(actions) < limit:
        action = policy.act(world, observation, info)
        while rng.random() < config.stale_commands:
            past = sorted(offered.difference(info.admissible or ()))
            if not past or len(actions) + 1 >= limit:
                break
            refused.add(len(actions))
            actions.append(rng.choice(past))
            observations.append(world.step(actions[-1]).observation)
        offered.update(info.admissible or ())
        step = world.step(action)
        observation, info = step.observation, step.info
        actions.append(action)
        observations.append(observation)
        if step.terminated or step.truncated:
            break
    return Transcript(
        tuple(observations), tuple(actions), frozenset(refused), info.success, world.game.goal.task_type, purposeful
    )
