"""Configuration as Kedro's OmegaConfigLoader reads it, with three conveniences of this project.

- `world: webshop` means `world: {name: webshop}`, in files and in `--params` alike.
- `${parameter:world.name}` in any configuration file is the parameter's value after all overrides, so that
  the paths of the catalog carry the world that is played.
- `${games:}` is the world's name, followed by where its games come from if that is not the default: results
  on `household_official` games lie beside those on `household` ones, not among them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kedro.config import AbstractConfigLoader, OmegaConfigLoader
from omegaconf import OmegaConf

DEFAULT_SOURCE = "generated"
"""Source of games that needs no mention in a path."""


def _named_world(parameters: dict[str, Any]) -> dict[str, Any]:
    """The parameters with a world given by its bare name written out."""
    world = parameters.get("world")
    return {**parameters, "world": {"name": world}} if isinstance(world, str) else parameters


class WorldwiseConfigLoader(OmegaConfigLoader):
    """OmegaConfigLoader that knows worlds by name and the resolvers `parameter` and `games`."""

    _known: dict[str, Any] | None = None

    def __init__(
        self,
        conf_source: str | Path,
        env: str | None = None,
        runtime_params: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(conf_source, env=env, runtime_params=_named_world(runtime_params or {}), **options)
        OmegaConf.register_new_resolver("parameter", self._parameter, replace=True)
        OmegaConf.register_new_resolver("games", self._games, replace=True)

    def __getitem__(self, key: str) -> dict[str, Any]:
        if key == "parameters":
            return _named_world(super().__getitem__(key))
        # The resolvers read the parameters once for a whole file, not once for every path in it.
        self._known = None
        return super().__getitem__(key)

    def _parameters(self) -> dict[str, Any]:
        if self._known is None:
            self._known = self["parameters"]
        return self._known

    def _parameter(self, path: str) -> Any:
        value: Any = self._parameters()
        for part in path.split("."):
            if not isinstance(value, dict) or part not in value:
                raise KeyError(f"${{parameter:{path}}} asks for a parameter that no configuration file has")
            value = value[part]
        return value

    def _games(self) -> str:
        world = self._parameters()["world"]
        source = (world.get(world["name"]) or {}).get("source", DEFAULT_SOURCE)
        return str(world["name"]) if source == DEFAULT_SOURCE else f"{world['name']}_{source}"


def data_root(loader: AbstractConfigLoader, project: Path) -> Path:
    """The folder that everything is stored in, as the configuration and `--params` have it."""
    return project / data_root_as_given(loader)


def data_root_as_given(loader: AbstractConfigLoader) -> str:
    """The parameter as it was written, for messages."""
    return str(loader.runtime_params.get("data_root") or loader["globals"]["data_root"])
