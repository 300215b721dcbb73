"""`python -m worldwise`: `kedro run` without the `kedro` command, from a project's root."""

from __future__ import annotations

import sys
from pathlib import Path

from kedro.framework.startup import bootstrap_project


def main(arguments: list[str] | None = None) -> None:
    """Runs a pipeline of the project in the current folder, with the options of `kedro run`."""
    bootstrap_project(Path.cwd())

    from worldwise.cli.run import run

    run(arguments if arguments is not None else sys.argv[1:], prog_name="worldwise")


if __name__ == "__main__":
    main()
