"""A world that only has a name: enough for prompts and records, where nothing is played."""

from __future__ import annotations

from collections.abc import Sequence

from worldwise.worlds.contract import ScriptedPolicy, Task, World, WorldFamily


class WorldlessFamily(WorldFamily):
    """No tasks, no worlds; transitions are of kind `any`."""

    name = "worldless"
    splits = ("train",)
    max_turns = 10
    max_return = 1.0

    def tasks(self, split: str, count: int | None = None) -> Sequence[Task]:
        return []

    def new(self) -> World:
        raise NotImplementedError

    def random_policy(self, seed: int) -> ScriptedPolicy:
        raise NotImplementedError

    def oracle_policy(self, seed: int) -> ScriptedPolicy:
        raise NotImplementedError

    def transition_kind(self, action: str, observation: str) -> str:
        return "any"
