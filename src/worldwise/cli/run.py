"""`kedro run` as Kedro has it, but an error that says what to do comes without a wall of traceback."""

from __future__ import annotations

import difflib
import os
import re
import shlex
import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import click
from kedro import KedroDeprecationWarning
from kedro.framework.cli.project import run as kedro_run
from kedro.framework.project import pipelines

TRACEBACK_VARIABLE = "WORLDWISE_TRACEBACK"
"""Set to 1, every error keeps its traceback."""


_ONLY_MISSING = "--only-missing-outputs"


class ShortError(click.ClickException):
    """A message for the terminal."""


class StoppedError(ShortError):
    """The user or the system stopped the run."""

    exit_code = 130


def explained(error: BaseException) -> ShortError | None:
    """The short form of an error that says by itself what is wrong; None for any other.

    These are errors of classes of this package, and errors that Kedro itself raised about its input (a name
    that it does not know, a dataset that cannot be read). Everything else is a bug and keeps its traceback.
    """
    from worldwise.tracking.interruption import RunInterrupted

    for cause in _causes(error):
        if isinstance(cause, RunInterrupted):
            return StoppedError(f"{cause}; what was stored before is kept. To go on: {command_that_goes_on(sys.argv)}")
        if type(cause).__module__.partition(".")[0] == "worldwise":
            return ShortError(str(cause))
    if _raised_by(error).partition(".")[0] == "kedro":
        return ShortError(f"{error}{_known_names(str(error))}")
    return None


def command_that_goes_on(argv: Sequence[str]) -> str:
    """The command of this process as one that makes what is still missing."""
    arguments = [*argv[1:], *([] if _ONLY_MISSING in argv else [_ONLY_MISSING])]
    return shlex.join(["kedro", *arguments])


def _known_names(message: str) -> str:
    """What Kedro does not say where it does not know a pipeline or a node: those that there are."""
    unknown = re.search(r"(pipeline|nodes) named \[?'([^']+)'", message)
    if unknown is None:
        return ""
    names = {str(name) for name in pipelines}
    if unknown[1] == "nodes":
        names = {node.name for name in names for node in pipelines[name].nodes}
    close = difflib.get_close_matches(unknown[2], names, n=1)
    return f" Did you mean {close[0]}?" if close else f" Known here: {', '.join(sorted(names))}."


def _causes(error: BaseException) -> Iterator[BaseException]:
    current: BaseException | None = error
    while current is not None:
        yield current
        current = current.__cause__


def _raised_by(error: BaseException) -> str:
    """Name of the module that raised the error."""
    trace = error.__traceback__
    name = ""
    while trace is not None:
        name = str(trace.tb_frame.f_globals.get("__name__", ""))
        trace = trace.tb_next
    return name


def _run(**options: Any) -> Any:
    # `--pipeline` is what the README says and stays understood; its deprecation is not the user's business.
    warnings.filterwarnings("ignore", message="Option '--pipeline'", category=KedroDeprecationWarning)
    assert kedro_run.callback is not None
    if options.get("is_async"):
        raise ShortError("--async is not supported: what is stored would not know which node made it")
    try:
        return kedro_run.callback(**options)
    except click.ClickException:
        raise
    except Exception as error:
        short = None if os.environ.get(TRACEBACK_VARIABLE) == "1" else explained(error)
        if short is None:
            raise
        raise short from error


run = click.Command(name="run", callback=_run, params=kedro_run.params, help=kedro_run.help)
