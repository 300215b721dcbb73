"""Options that several commands share, and the parameters that they lead to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from kedro.config import AbstractConfigLoader
from kedro.framework.cli.utils import _split_params, env_option
from kedro.framework.startup import ProjectMetadata

from worldwise.cli.run import ShortError, explained

if TYPE_CHECKING:
    from kedro.framework.context import KedroContext
    from kedro.io import DataCatalog

    from worldwise.worlds.contract import WorldFamily

Command = TypeVar("Command", bound=Callable[..., Any])


def configured(command: Command) -> Command:
    """Gives a command `--env` and `--params` as `kedro run` has them."""
    params = click.option(
        "--params", type=click.UNPROCESSED, default="", callback=_split_params, help="Parameters, as for `kedro run`."
    )
    both: Command = env_option(params(command))
    return both


class RefusedError(ShortError):
    """What the command was given is wrong; leaves with the status of wrong usage."""

    exit_code = 2


def blocks(metadata: ProjectMetadata, env: str | None, params: dict[str, Any]) -> dict[str, Any]:
    """The validated parameter blocks of the project.

    Raises:
        RefusedError: they are not valid.
        BadParameter: there is no such environment.
    """
    from omegaconf.errors import OmegaConfBaseException

    from worldwise.pipelines.errors import InputError
    from worldwise.pipelines.parameters import validated

    try:
        return validated(_loader(metadata, env, params)["parameters"])
    except InputError as error:
        raise RefusedError(str(error)) from error
    except OmegaConfBaseException as error:
        raise RefusedError(f"the configuration or --params cannot be read: {str(error).splitlines()[0]}") from error


def data_root(metadata: ProjectMetadata, env: str | None, params: dict[str, Any]) -> Path:
    """The folder that everything is stored in."""
    from worldwise.config_loader import data_root as configured_root

    return configured_root(_loader(metadata, env, params), Path(metadata.project_path))


def family(values: dict[str, Any]) -> WorldFamily:
    """The configured world.

    Raises:
        RefusedError: unknown name.
        ShortError: it cannot be built, because its data are not there.
    """
    from worldwise.worlds.registry import BUILDERS, make_family

    world = values["world"]
    if world.name not in BUILDERS:
        known = ", ".join(sorted(BUILDERS))
        raise RefusedError(f"parameter world.name is {world.name!r}, which is not known: use one of {known}")
    with short_errors():
        return make_family(world.name, world)


def check_split(world: WorldFamily, split: str) -> None:
    """Refuses a split that a world does not have.

    Raises:
        BadParameter: so it is.
    """
    if split not in world.splits:
        raise click.BadParameter(
            f"{split!r} is no split of {world.name}: use one of {', '.join(world.splits)}", param_hint="--split"
        )


def _loader(metadata: ProjectMetadata, env: str | None, params: dict[str, Any]) -> AbstractConfigLoader:
    from kedro.framework.project import settings

    source = Path(metadata.project_path) / settings.CONF_SOURCE
    if env and not (source / env).is_dir():
        known = sorted(path.name for path in source.iterdir() if path.is_dir())
        raise click.BadParameter(f"{env!r} is no folder in {source}: use one of {', '.join(known)}", param_hint="--env")
    loader: AbstractConfigLoader = settings.CONFIG_LOADER_CLASS(
        conf_source=str(source), env=env, runtime_params=params, **settings.CONFIG_LOADER_ARGS
    )
    return loader


@contextmanager
def project_context(
    metadata: ProjectMetadata, env: str | None, params: dict[str, Any] | None = None
) -> Iterator[tuple[KedroContext, DataCatalog]]:
    """The project as a run would see it: its configuration, which is checked, and its catalog.

    Raises:
        ShortError: the configuration is not valid.
    """
    from kedro.framework.session import KedroSession
    from kedro.io import DataCatalog

    given = params or {}
    with short_errors():
        session = KedroSession.create(metadata.project_path, save_on_close=False, env=env, runtime_params=given)
        assert isinstance(session, KedroSession)
        with session:
            context = session.load_context()
            catalog = context.catalog
            assert isinstance(catalog, DataCatalog)
            yield context, catalog


class short_errors:
    """A context in which an error that explains itself ends the command with its message alone."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, Exception) and not isinstance(error, click.ClickException):
            short: ShortError | None = explained(error)
            if short is not None:
                raise short from error
