"""`kedro worldwise data`: how to get data that is not part of the package, and whether a copy is whole."""

from __future__ import annotations

from pathlib import Path

import click

from worldwise.cli.options import short_errors


@click.group()
def data() -> None:
    """Data of worlds that is not part of this package."""


@data.command()
@click.option(
    "--folder", type=click.Path(path_type=Path), help="Where the games are; default: WORLDWISE_DATA/alfworld."
)
def alfworld(folder: Path | None) -> None:
    """Check a copy of ALFWorld's games, or say how to get one."""
    from worldwise.worlds.household.official import OfficialGames
    from worldwise.worlds.household.verify import how_to_obtain, verify_official

    if OfficialGames.found(folder) is None:
        if folder is not None:
            click.echo(f"there are no official games in {folder}\n")
        click.echo(how_to_obtain())
        raise click.exceptions.Exit(1)
    with short_errors():
        report = verify_official(folder)
    click.echo(report.text())
    if not report.ok:
        raise click.exceptions.Exit(1)
