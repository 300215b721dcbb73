"""The base model's card, written from its recipe and its measured facts."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined


def model_card(config: Mapping[str, Any], facts: Mapping[str, Any]) -> str:
    """Markdown text of the card; a missing value is an error, not a gap."""
    template = files(__package__).joinpath("card.md.jinja").read_text()
    environment = Environment(undefined=StrictUndefined, trim_blocks=True, autoescape=False)
    return environment.from_string(template).render(config=config, facts=facts)
