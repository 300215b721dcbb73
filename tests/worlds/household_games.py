"""Games of every size, and how a policy plays one of them."""

from __future__ import annotations

from functools import lru_cache

from worldwise.worlds.contract import ScriptedPolicy, Task, World
from worldwise.worlds.household.config import SIZES, HouseholdConfig
from worldwise.worlds.household.game import Game
from worldwise.worlds.household.generator import generate_game

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
