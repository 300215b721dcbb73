"""`kedro worldwise store`: put a result in its place that could not be stored."""

from __future__ import annotations

from pathlib import Path

import click

from worldwise.cli.options import short_errors
from worldwise.cli.texts import size


@click.command()
@click.argument("kept", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("target", type=click.Path(path_type=Path))
def store(kept: Path, target: Path) -> None:
    """Store the finished result KEPT at TARGET, as the message of the run that could not store it says."""
    from worldwise.ledger.publish import store_kept

    with short_errors():
        manifest = store_kept(kept, target)
    click.echo(f"Stored {target} ({size(manifest.size)}), made by {manifest.made.node or 'nobody that is known'}.")
