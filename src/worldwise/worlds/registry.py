"""Worlds by name. A new world adds its settings to `WorldConfig` and a line to `BUILDERS`."""

from __future__ import annotations

from collections.abc import Callable

from pydantic import Field

from worldwise.config import FrozenConfig
from worldwise.worlds.contract import WorldError, WorldFamily
from worldwise.worlds.household.config import HouseholdConfig
from worldwise.worlds.household.family import HouseholdFamily


class WorldConfig(FrozenConfig):
    """Which world is played, and every world's settings.

    Attributes:
        name: a key of `BUILDERS`.
        household: settings of the household world, used when it is the one played.
    """

    name: str = "household"
    household: HouseholdConfig = Field(default_factory=HouseholdConfig)


BUILDERS: dict[str, Callable[[WorldConfig], WorldFamily]] = {
    "household": lambda config: HouseholdFamily(config.household),
}
"""World name -> what builds its family."""


def make_family(name: str, config: WorldConfig) -> WorldFamily:
    """The family of the world `name`.

    Raises:
        WorldError: unknown name, or settings under which the world cannot be built.
    """
    builder = BUILDERS.get(name)
    if builder is None:
        raise WorldError(f"world.name={name!r} is not known: use one of {', '.join(sorted(BUILDERS))}")
    return builder(config)
