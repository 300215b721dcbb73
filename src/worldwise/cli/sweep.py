"""`kedro worldwise sweep`: remove what serves nobody."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click
from kedro.framework.startup import ProjectMetadata

from worldwise.cli.options import configured, data_root, short_errors
from worldwise.cli.run import ShortError
from worldwise.cli.texts import size

if TYPE_CHECKING:
    from worldwise.ledger.sweep import Leftover


@click.command()
@click.option(
    "--keep",
    type=click.IntRange(1),
    default=None,
    help="Remove old versions as well: of every dataset the newest KEEP stay, and all that they were made from.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@configured
@click.pass_obj
def sweep(metadata: ProjectMetadata, /, keep: int | None, yes: bool, env: str | None, params: dict[str, Any]) -> None:
    """List unfinished versions, what killed runs left and (with --keep) old versions, and remove them."""
    from worldwise.ledger.runs import LiveRuns
    from worldwise.ledger.sweep import leftovers
    from worldwise.ledger.workspace import WORK_FOLDER

    root = data_root(metadata, env, params)
    runs = LiveRuns(root / WORK_FOLDER)
    with short_errors():
        alive = runs.alive()
        found = leftovers(root, {entry.run_id for entry in alive}, keep)
    for entry in alive:
        click.echo(f"At work: {entry}; what it writes stays, and so do old versions: it may read them.")
    if not found:
        click.echo(f"Nothing to remove in {root}.")
        return
    for own in found:
        click.echo(f"{size(own.size):>10}  {own.path}  ({own.why})")
    click.echo(f"{size(sum(own.size for own in found)):>10}  in all")
    if not yes:
        click.confirm("Remove these?", abort=True)
    try:
        with runs.none_begins() as now:
            begun = [str(entry) for entry in now if entry not in alive]
            if begun:
                raise ShortError(
                    f"{', '.join(begun)} began meanwhile and may use what is listed: nothing was removed. "
                    "Call this again, best once it has ended"
                )
            # A run that has come and gone meanwhile may have left something for what was listed.
            still = {own.path for own in leftovers(root, {entry.run_id for entry in now}, keep)}
            refused = _remove([own for own in found if own.path in still])
    except OSError as error:
        raise ShortError(f"{root} cannot be written ({error.strerror or error}): nothing was removed") from error
    kept = len(found) - sum(own.path in still for own in found)
    if kept:
        click.echo(f"{kept} of them came into use meanwhile and stay.")
    click.echo(f"Removed {len(found) - kept - len(refused)} of {len(found)}.")
    if refused:
        raise ShortError("cannot be removed: " + "; ".join(refused))


def _remove(leftovers: Sequence[Leftover]) -> list[str]:
    """Removes them; gives what could not be removed, and why."""
    refused = []
    for own in leftovers:
        try:
            own.remove()
        except OSError as error:
            refused.append(f"{own.path}: {error.strerror or error}")
    return refused
