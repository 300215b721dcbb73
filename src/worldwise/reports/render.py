"""The one Jinja environment of the reports."""

from __future__ import annotations

from jinja2 import Environment, PackageLoader, StrictUndefined


def environment(escape: bool) -> Environment:
    """Templates of this package; `escape` makes every inserted text harmless in HTML.

    A name that a template uses and nobody gave is an error, never an empty place.
    """
    return Environment(
        loader=PackageLoader("worldwise.reports", "templates"),
        autoescape=escape,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
