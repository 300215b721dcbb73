"""Self-generated play for the base model: random play, and noisy purposeful play with human-like slips.

A language model that was never trained on these games still brings something: it names valid-looking commands
and roughly follows a goal, while it skips steps, mixes up things and wanders. A model from scratch has none of it, so
that prior is stood in for by two kinds of episodes in generated *training* games:

* random valid play, and
* purposeful play: the searching oracle with random commands mixed in (`noise`), which often misreads its
  goal: it skips the cleaning, heating or cooling, brings one thing instead of two, carries a thing about
  instead of using the lamp, takes another thing or goes to another place. After a slip the episode wanders
  and ends unsolved.

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
from worldwise.worlds.household.policies import RandomPolicy, ReadGoal, SearchingOracle, read_goal

SizeName = Literal["small", "default", "full"]
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
        purposeful_turns: most turns of a purposeful one.
        wander_turns: turns played at random after a slip has come to its end.
        stale_commands: chance of a stale command before a turn.
        sizes: room sizes to draw from, in equal shares when listed once each.
    """

    episodes: int = Field(40_000, ge=1)
    seed: int = Field(0, ge=0)
    purposeful_share: float = Field(0.85, ge=0.0, le=1.0)
    noise_low: float = Field(0.0, ge=0.0, le=1.0)
    noise_high: float = Field(0.20, ge=0.0, le=1.0)
    skip_step: float = Field(0.6, ge=0.0, le=1.0)
    wrong_object: float = Field(0.10, ge=0.0, le=1.0)
    wrong_target: float = Field(0.12, ge=0.0, le=1.0)
    random_turns: int = Field(10, ge=1)
    purposeful_turns: int = Field(30, ge=1)
    wander_turns: int = Field(4, ge=0)
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
    """Purposeful play towards a goal that may be misread; wanders once a misread goal is done."""

    def __init__(self, config: PlayConfig, rng: random.Random) -> None:
        self._config = config
        self._rng = rng
        self._oracle = SearchingOracle(rng.uniform(config.noise_low, config.noise_high), rng.getrandbits(40))
        self._random = RandomPolicy(rng.getrandbits(40), by_verb=True)
        self._goal: ReadGoal | None = None
        self._slipped = False
        self.wandered = -1

    def act(self, world: HouseholdWorld, observation: str, info: Info) -> str:
        if self._goal is None:
            observation = self._misread(world, observation)
        if self.wandered >= 0:
            self.wandered += 1
            return self._random.act(world, observation, info)
        action = self._oracle.act(world, observation, info)
        assert self._goal is not None
        if self._slipped and action.startswith(f"move {self._goal.object_type} "):
            self.wandered = 0
        return action

    def _misread(self, world: HouseholdWorld, observation: str) -> str:
        """The first observation with the goal as this episode understands it."""
        true = read_goal(observation)
        rng, config = self._rng, self._config
        goal = true
        if (goal.verb or goal.number == 2 or goal.look) and rng.random() < config.skip_step:
            target = _some_place(world, goal.object_type, rng) if goal.look else goal.target_type
            goal = ReadGoal(goal.object_type, target)
        if not goal.look and rng.random() < config.wrong_target:
            goal = ReadGoal(goal.object_type, _some_place(world, goal.object_type, rng), goal.verb, goal.number)
        if not (goal.look or goal.verb or goal.number == 2) and rng.random() < config.wrong_object:
            goal = ReadGoal(_some_thing(world, goal.target_type, goal.object_type, rng), goal.target_type)
        self._goal = goal
        self._slipped = goal != true
        if not self._slipped:
            return observation
        head, mark, _ = observation.partition(_GOAL_MARK)
        return head + mark + _sentence(goal)


def _sentence(goal: ReadGoal) -> str:
    if goal.verb:
        return f"{goal.verb} some {goal.object_type} and put it in {goal.target_type}."
    if goal.number == 2:
        return f"put two {goal.object_type} in {goal.target_type}."
    return f"put some {goal.object_type} in {goal.target_type}."


def _some_place(world: HouseholdWorld, object_type: str, rng: random.Random) -> str:
    """A receptacle type of the room that takes the object; lower case."""
    fitting = {place for place, things in FITS.items() if object_type in {thing.lower() for thing in things}}
    kinds = sorted({place.type for place in world.game.receptacles if place.type in fitting})
    return rng.choice(kinds or sorted({place.type for place in world.game.receptacles})).lower()


def _some_thing(world: HouseholdWorld, target_type: str, instead_of: str, rng: random.Random) -> str:
    """An object type of the room that the target takes; `instead_of` if there is no other; lower case."""
    fitting = {thing.lower() for place, things in FITS.items() if place.lower() == target_type for thing in things}
    kinds = sorted({thing.type.lower() for thing in world.game.things if thing.pickupable and thing.inside})
    return rng.choice([kind for kind in kinds if kind in fitting] or [instead_of])


def play_episodes(config: PlayConfig, first: int, count: int) -> Iterator[Transcript]:
    """Episodes `first` to `first + count`; each depends on its own number only."""
    games = {"train_games": _FIRST_INDEX + first + count}
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
    limit = config.purposeful_turns if purposeful else config.random_turns
    observations = [observation]
    actions: list[str] = []
    refused: set[int] = set()
    offered: set[str] = set()
    while len(actions) < limit and slipping.wandered < config.wander_turns:
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
