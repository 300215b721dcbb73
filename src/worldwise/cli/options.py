"""Options that several commands share, and the parameters that they lead to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
from kedro.framework.cli.utils import _split_params, env_option
from kedro.framework.startup import ProjectMetadata

from worldwise.cli.run import ShortError, explained

Command = TypeVar("Command", bound=Callable[..., Any])


def configured(command: Command) -> Command:
    """Gives a command `--env` and `--params` as `kedro run` has them."""
    params = click.option(
        "--params", type=click.UNPROCESSED, default="", callback=_split_params, help="Parameters, as for `kedro run`."
    )
    both: Command = env_option(params(command))
    return both


def blocks(metadata: ProjectMetadata, env: str | None, params: dict[str, Any]) -> dict[str, Any]:
    """The validated parameter blocks of the project.

    Raises:
        ShortError: they are not valid.
    """
    from kedro.framework.project import settings

    from worldwise.pipelines.parameters import validated

    loader = settings.CONFIG_LOADER_CLASS(
        conf_source=str(Path(metadata.project_path) / settings.CONF_SOURCE),
        env=env,
        runtime_params=params,
        **settings.CONFIG_LOADER_ARGS,
    )
    with short_errors():
        return validated(loader["parameters"])


class short_errors:
    """A context in which an error that explains itself ends the command with its message alone."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, Exception) and not isinstance(error, click.ClickException):
            short: ShortError | None = explained(error)
            if short is not None:
                raise short from error
