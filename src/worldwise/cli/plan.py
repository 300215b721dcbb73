"""`kedro worldwise plan`: what `kedro run --only-missing-outputs` would do, and why."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

import click
from kedro.framework.startup import ProjectMetadata

from worldwise.cli.options import configured, project_context
from worldwise.cli.texts import age, size

if TYPE_CHECKING:
    from worldwise.ledger.plan import NodePlan


@click.command()
@click.option("--pipeline", "--pipelines", "name", default="__default__", help="As for `kedro run`, commas between.")
@click.option("--all-reasons", is_flag=True, help="Every reason why a node has to run, not only the first.")
@configured
@click.pass_obj
def plan(metadata: ProjectMetadata, /, name: str, all_reasons: bool, env: str | None, params: dict[str, Any]) -> None:
    """Which nodes are cached, and why the others have to run."""
    from kedro.framework.project import pipelines
    from kedro.pipeline import Pipeline

    from worldwise.ledger.rest import look_ahead
    from worldwise.pipelines.planning import surroundings

    with project_context(metadata, env, params) as (context, catalog):
        wanted = Pipeline([])
        for part in name.split(","):
            if part not in pipelines:
                close = difflib.get_close_matches(part, pipelines, n=1)
                known = f"did you mean {close[0]}?" if close else f"use one of {', '.join(sorted(pipelines))}"
                raise click.BadParameter(f"{part!r} is no pipeline: {known}", param_hint="--pipeline")
            wanted += pipelines[part]
        outlook = look_ahead(surroundings(context, catalog), wanted)
    plans = outlook.plans
    width = max((len(own.node) for own in plans), default=0)
    for own in plans:
        for line in lines(own, width, all_reasons):
            click.echo(line)
    for note in outlook.notes:
        click.echo(f"\n{note}.")
    cached = sum(own.is_cached for own in plans)
    click.echo(f"\n{cached} of {len(plans)} nodes are cached; --only-missing-outputs runs {len(plans) - cached}.")


def lines(plan: NodePlan, width: int, all_reasons: bool) -> list[str]:
    """What is said of one node."""
    begin = f"{plan.node:<{width}}  "
    if plan.is_cached:
        first = next(iter(plan.cached.values()))
        total = sum(found.manifest.size for found in plan.cached.values())
        state = click.style("cached", fg="green")
        return [f"{begin}{state}  {first.version}  {size(total):>9}  {age(first.manifest.stored_at)}"]
    reasons = plan.reasons if all_reasons else plan.reasons[:1]
    more = len(plan.reasons) - len(reasons)
    found = [f"{begin}{click.style('stale', fg='yellow')}   {reasons[0]}{f' (and {more} more)' if more else ''}"]
    return found + [f"{'':<{width}}          {reason}" for reason in reasons[1:]]
