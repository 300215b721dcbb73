"""`kedro worldwise check-world`: does a world keep its contract?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from kedro.framework.startup import ProjectMetadata

from worldwise.cli.options import blocks, check_split, configured, family, short_errors

if TYPE_CHECKING:
    from worldwise.worlds.contract import WorldFamily


@click.command()
@click.option("--split", default="train", show_default=True, help="Whose tasks to play.")
@click.option("--episodes", type=click.IntRange(1), default=8, show_default=True, help="Tasks to play.")
@configured
@click.pass_obj
def check_world(metadata: ProjectMetadata, /, split: str, episodes: int, env: str, params: dict[str, Any]) -> None:
    """Play the configured world and name every rule of the contract that it breaks."""
    world = family(blocks(metadata, env, params))
    check_split(world, split)

    from worldwise.worlds.checker import check_world as check

    there = _tasks(world, split)
    if there is not None and episodes > there:
        raise click.BadParameter(
            f"{episodes} is more than the {there} tasks of {split}: give at most that", param_hint="--episodes"
        )
    with short_errors():
        report = check(world, split, episodes)
    click.echo(
        f"{report.world}, {report.split}: {report.episodes} tasks, oracle solves {report.oracle_success:.0%} in "
        f"{report.oracle_turns:.1f} turns, random play {report.random_success:.0%}"
    )
    for violation in report.violations:
        click.echo(f"broken rule {violation.rule}: {violation.message}")
    if not report.ok:
        raise click.exceptions.Exit(1)
    click.echo("every rule of the contract holds")


def _tasks(world: WorldFamily, split: str) -> int | None:
    """How many tasks there are; None where the world cannot say, which its rules will name."""
    try:
        return len(world.tasks(split))
    except Exception:
        return None
