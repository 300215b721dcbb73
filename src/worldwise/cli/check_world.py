"""`kedro worldwise check-world`: does a world keep its contract?"""

from __future__ import annotations

from typing import Any

import click
from kedro.framework.startup import ProjectMetadata

from worldwise.cli.options import blocks, configured, short_errors


@click.command()
@click.option("--split", default="train", show_default=True, help="Whose tasks to play.")
@click.option("--episodes", type=click.IntRange(1), default=8, show_default=True, help="Tasks to play.")
@configured
@click.pass_obj
def check_world(metadata: ProjectMetadata, /, split: str, episodes: int, env: str, params: dict[str, Any]) -> None:
    """Play the configured world and name every rule of the contract that it breaks."""
    world = blocks(metadata, env, params)["world"]

    from worldwise.worlds.checker import check_world as check
    from worldwise.worlds.registry import make_family

    with short_errors():
        report = check(make_family(world.name, world), split, episodes)
    click.echo(
        f"{report.world}, {report.split}: {report.episodes} tasks, oracle solves {report.oracle_success:.0%} in "
        f"{report.oracle_turns:.1f} turns, random play {report.random_success:.0%}"
    )
    for violation in report.violations:
        click.echo(f"broken rule {violation.rule}: {violation.message}")
    if not report.ok:
        raise click.exceptions.Exit(1)
    click.echo("every rule of the contract holds")
