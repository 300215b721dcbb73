"""`kedro worldwise lineage`: what made a version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from kedro.framework.startup import ProjectMetadata

from worldwise.cli.options import configured, project_context
from worldwise.cli.texts import age, size

if TYPE_CHECKING:
    from worldwise.ledger.lineage import Ancestor


@click.command()
@click.argument("dataset")
@click.option("--parameters", is_flag=True, help="The parameters of every step as well.")
@configured
@click.pass_obj
def lineage(
    metadata: ProjectMetadata, /, dataset: str, parameters: bool, env: str | None, params: dict[str, Any]
) -> None:
    """What made DATASET (or DATASET:VERSION), back to raw data."""
    from worldwise.ledger import lineage as ledger
    from worldwise.ledger.stored import stored_versions, versioned

    name, _, version = dataset.partition(":")
    with project_context(metadata, env, params) as (_, catalog):
        source = versioned(catalog, name) if name in known_datasets() else None
        if source is None:
            raise click.BadParameter(
                f"{name!r} is no dataset that is kept in versions: use one of {', '.join(known_datasets())}",
                param_hint="DATASET",
            )
        stored = [found.version for found in stored_versions(source)]
        if not stored:
            raise click.BadParameter(f"no version of {name} is stored", param_hint="DATASET")
        if version and version not in stored:
            raise click.BadParameter(
                f"{name}:{version} is not stored; there are: {', '.join(stored)}", param_hint="DATASET"
            )
        for ancestor in ledger.lineage(catalog, name, version or stored[0]):
            for line in lines(ancestor, parameters):
                click.echo("  " * ancestor.depth + line)


def known_datasets() -> list[str]:
    """Everything that some pipeline makes."""
    from kedro.framework.project import pipelines

    return sorted({name for pipeline in pipelines.values() for name in pipeline.all_outputs()})


def lines(ancestor: Ancestor, parameters: bool) -> list[str]:
    """What is said of one version."""
    from worldwise.ledger.plan import ABSENT

    title = click.style(f"{ancestor.dataset}:{ancestor.version}", bold=True)
    if ancestor.found is None:
        return [f"{title}  is gone"]
    manifest = ancestor.found.manifest
    made = manifest.made
    if ancestor.changed:
        title += click.style("  is not what was read then", fg="red")
    found = [f"{title}  {size(manifest.size)}, {age(manifest.stored_at)}{', see above' if ancestor.shown else ''}"]
    if ancestor.shown:
        return found
    commit = f", commit {made.git_commit[:12]}{' and changes' if made.git_dirty else ''}" if made.git_commit else ""
    tracked = f", MLflow run {made.mlflow_run}" if made.mlflow_run else ""
    by = f"made by {made.node} in run {made.run_id}" if made.node else "stored outside of a run"
    over = f", taken over from run {made.reused}" if made.reused else ""
    found.append(f"  {by}{over}{commit}{tracked}")
    found += [f"  {name}: {digest[:16]}" for name, digest in made.raw.items()]
    files = {name: read.digest for name, read in made.inputs.items() if not read.version and read != ABSENT}
    found += [f"  {name}: a file {digest[:16]}" for name, digest in files.items()]
    if parameters:
        found += [f"  {name} = {value}" for name, value in made.parameters.items()]
    return found
